"""The page as one file: scripts, styles and figures inside, and nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import time

__all__ = ["self_contained"]


def self_contained(files: dict[str, bytes], state: bytes) -> bytes:
    """The page with its scripts, its styles and its state inside."""
    scripts = [files[name].decode() for name in ("uPlot.iife.min.js", "charts.js", "app.js")]
    # Inside a script nothing may look like its end.
    data = state.decode().replace("<", "\\u003c")
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
    )
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = files["index.html"].decode()
    head, _, rest = page.partition("<!-- styles -->")
    styles = "".join(
        f"<style>{files[name].decode()}</style>" for name in ("uPlot.min.css", "style.css")
    )
    body, _, _ = rest.partition("<!-- scripts -->")
    _, _, body = body.partition("<!-- /styles -->")
    saved = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    made = (
        f'{head}<meta http-equiv="Content-Security-Policy" content="{policy}">{styles}{body}'
        f'<script type="application/json" id="saved" data-at="{saved}">{data}</script>'
        + "".join(f"<script>{text}</script>" for text in scripts)
        + "</body></html>\n"
    )
    return made.encode()
