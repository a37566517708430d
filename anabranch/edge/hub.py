"""The hub's folder: authority, users of the broker, its settings and its store.

HUB/authority/         the key that signs certificates; keep it from everybody else
HUB/server/ cloud/     credentials of the broker, and of relay, keeper and Spark
HUB/devices/NAME/      credentials of a device, to be carried there
HUB/users.json         who may connect; broker.conf and users.conf are written from it
HUB/store/ control/    the broker's streams; the log of placements
HUB/mailboxes-0/       what devices that are away for long have yet to get, beyond the bound
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from anabranch.edge.certificates import issue, make_authority
from anabranch.edge.naming import device_name
from anabranch.edge.ownership import CLOUD
from anabranch.errors import AnabranchError

__all__ = ["Hub"]

_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([\w-]*\w)?(\.\w([\w-]*\w)?)*", re.ASCII)
_PAYLOAD = 8 << 20  # bytes of a message: an entry may hold many thousand views


class Hub:
    """Enrols and revokes devices, and writes what the broker reads.

    Parameters
    ----------
    folder
        Made by `Hub.create`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        if not (self.folder / "users.json").exists():
            raise AnabranchError(
                f"there is no hub in {self.folder}: make one with `anabranch edge init`"
            )

    @classmethod
    def create(cls, folder: str | os.PathLike[str], hosts: Sequence[str]) -> Hub:
        """Make a hub that devices reach under these host names or addresses."""
        made = Path(folder).absolute()
        strange = [host for host in hosts if not _is_host(host)]
        if strange or not hosts:
            raise AnabranchError(
                "a host is a name or an address under which devices reach the hub, for example "
                f"hub.example.com or 10.0.0.7, got {', '.join(map(repr, strange)) or 'none'}"
            )
        authority = made / "authority"
        try:
            if made.exists() and any(made.iterdir()):
                raise AnabranchError(
                    f"there is something in {made} already, and a hub needs an empty folder"
                )
            for path in (made, authority, made / "control"):
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o700)
        except OSError as error:
            raise AnabranchError(
                f"{made} cannot be made a hub ({error.strerror}): name a folder that is empty or "
                "not there yet"
            ) from None
        make_authority(authority)
        issue(authority, made / "server", "hub", hosts)
        _write(made / "users.json", {CLOUD: issue(authority, made / CLOUD, CLOUD)})
        hub = cls(made)
        hub._write_users()
        return hub

    @property
    def cloud(self) -> Path:
        """Credentials of relay, keeper and Spark."""
        return self.folder / CLOUD

    @property
    def control(self) -> Path:
        """The log of placements."""
        return self.folder / "control"

    def devices(self) -> list[str]:
        """Who is enrolled."""
        return sorted(self._users().keys() - {CLOUD})

    def enrol(self, *names: str) -> list[Path]:
        """Let devices in, at once if the broker runs; the folders of their credentials."""
        users, names = self._users(), tuple(dict.fromkeys(names))
        known = [name for name in map(device_name, names) if name in users]
        if known:
            raise AnabranchError(
                f"{', '.join(known)} enrolled already: revoke first, if the key may be known"
            )
        folders = [self.folder / "devices" / name for name in names]
        made = [issue(self.folder / "authority", f, f.name) for f in folders]
        self._change(users | dict(zip(names, made, strict=True)))
        return folders

    def revoke(self, *names: str) -> None:
        """Lock devices out: a running broker disconnects them at once."""
        users = self._users()
        strange = [name for name in names if name not in users or name == CLOUD]
        if strange:
            raise AnabranchError(f"{', '.join(strange)} not enrolled; there is {self.devices()}")
        self._change({name: user for name, user in users.items() if name not in names})

    def write_settings(self, listen: str, sync_interval: str, version: tuple[int, ...]) -> Path:
        """Write ``broker.conf`` for a version of nats-server; where it is."""
        # 2.9 has neither: there the interval is two minutes, and only clients insist on TLS 1.3.
        newer = version >= (2, 10)
        least = 'min_version: "1.3"' if newer else ""
        sync = f"sync_interval: {json.dumps(sync_interval)}" if newer else ""
        inside = {name: json.dumps(str(self.folder / name)) for name in ("store", "broker.pid")}
        server = {
            name: json.dumps(str(self.folder / "server" / f"{name}.pem"))
            for name in ("cert", "key", "ca")
        }
        path = self.folder / "broker.conf"
        path.write_text(
            f"listen: {json.dumps(listen)}\n"
            f"pid_file: {inside['broker.pid']}\n"
            f"max_payload: {_PAYLOAD}\n"
            f"tls {{ cert_file: {server['cert']}, key_file: {server['key']}, "
            f"ca_file: {server['ca']}, verify_and_map: true, timeout: 5, {least} }}\n"
            f"jetstream {{ store_dir: {inside['store']}, {sync} }}\n"
            'authorization { include "users.conf" }\n'
        )
        return path

    def _users(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / "users.json").read_text())
        return found

    def _change(self, users: dict[str, str]) -> None:
        _write(self.folder / "users.json", users)
        self._write_users()
        number = self.running()
        if number is not None:  # else it reads the file when it starts
            os.kill(number, signal.SIGHUP)

    def running(self) -> int | None:
        """The broker's process. A file of a killed one may name a process that is another's now."""
        try:
            number = int((self.folder / "broker.pid").read_text())
            command = Path(f"/proc/{number}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return number if str(self.folder / "broker.conf").encode() in command else None

    def _write_users(self) -> None:
        """A device publishes one subject and subscribes to one; all else is forbidden."""
        rights = {
            name: "{}" if name == CLOUD else f'{{ publish: "u.{name}", subscribe: "d.{name}" }}'
            for name in self._users()
        }
        lines = (
            f"  {{ user: {json.dumps(user)}, permissions: {rights[name]} }}\n"
            for name, user in self._users().items()
        )
        _replace(self.folder / "users.conf", "users: [\n" + "".join(lines) + "]\n")


def _is_host(host: str) -> bool:
    """Whether a certificate can name a host so.

    Examples
    --------
    >>> [_is_host(host) for host in ("hub-1.example.com", "10.0.0.7", "::1", "*.example.com")]
    [True, True, True, True]
    >>> [_is_host(host) for host in ("bad host!", "a,DNS:b", "10.0.0.700", "")]
    [False, False, False, False]
    """
    try:
        ip_address(host)
        return True
    except ValueError:
        named = len(host) <= 253 and not host.replace(".", "").isdigit()
        return named and bool(_HOST.fullmatch(host))


def _write(path: Path, form: dict[str, str]) -> None:
    _replace(path, json.dumps(form, indent=1))


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: a broker that reloads meanwhile must not read half of it."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)
