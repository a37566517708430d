"""Who may connect: the hub's own authority, and a key and certificate for each device.

Keys are made by the ``openssl`` program (3.0 or later), which every server has: a device needs only
Python's `ssl` to use what was made here, so no package is needed for it on either side.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

from anabranch.errors import AnabranchError

__all__ = ["client_context", "issue", "make_authority"]

_DAYS = 3650
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def make_authority(folder: Path) -> None:
    """Make ``ca.key`` and ``ca.pem``, which signs certificates and does nothing else."""
    _openssl(
        *("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=anabranch authority"),
        *("-addext", "basicConstraints=critical,CA:TRUE,pathlen:0"),
        *("-addext", "keyUsage=critical,keyCertSign"),
        folder=folder,
    )


def issue(authority: Path, folder: Path, name: str, hosts: Sequence[str] = ()) -> str:
    """Make ``key.pem``, ``cert.pem`` and ``ca.pem`` in a folder; the name that the broker sees.

    Each certificate has a mark of its own in its name, so that one that was revoked stays so when
    its device is enrolled again. With `hosts` it is that of a server.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    mark = secrets.token_hex(8)
    known = ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
    names = ("-addext", f"subjectAltName={known}") if hosts else ()
    _openssl(
        *("-CA", str(authority / "ca.pem"), "-CAkey", str(authority / "ca.key")),
        *("-keyout", "key.pem", "-out", "cert.pem", "-subj", f"/OU={mark}/CN={name}"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-addext", f"extendedKeyUsage={'serverAuth' if hosts else 'clientAuth'}", *names),
        folder=folder,
    )
    shutil.copyfile(authority / "ca.pem", folder / "ca.pem")
    return f"CN={name},OU={mark}"


def client_context(folder: str | os.PathLike[str]) -> ssl.SSLContext:
    """How to connect with the credentials in a folder: TLS 1.3, both sides known."""
    inside = Path(folder)
    missing = [name for name in ("key.pem", "cert.pem", "ca.pem") if not (inside / name).exists()]
    if missing:
        raise AnabranchError(
            f"there are no credentials in {inside}: {', '.join(missing)} missing; "
            "take the folder that `anabranch edge enrol` made"
        )
    logging.getLogger("asyncio").addFilter(_is_news)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(inside / "ca.pem")
    context.load_cert_chain(inside / "cert.pem", inside / "key.pem")
    return context


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line is more than what nats-py causes whenever a connection with TLS ends."""
    return not record.getMessage().startswith("returning true from eof_received()")


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _openssl(*arguments: str, folder: Path) -> None:
    if shutil.which("openssl") is None:
        raise AnabranchError("certificates are made by openssl, which is not installed")
    command = ["openssl", "req", "-x509", "-sha256", "-days", str(_DAYS), *_KEY, *arguments]
    before = os.umask(0o077)  # a key is never readable by others, not even while it is written
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    finally:
        os.umask(before)
    if run.returncode:
        raise AnabranchError(f"openssl could not make a certificate: {run.stderr[-500:]}")
