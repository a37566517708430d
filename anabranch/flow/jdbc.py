"""What a PostgreSQL address of the driver's library is to Java's, which writes from executors.

Both must connect to the same place under the same conditions. So a setting that Java's library
does not know, or knows otherwise, is named and not left out: it may be what makes the connection
safe. What the driver's library takes by itself, as files in the user's folder, is said to Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

__all__ = ["jdbc_address", "with_own_files"]

_SAME = (
    "user",
    "password",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "options",
)
_OTHER_NAMES = {
    "application_name": "ApplicationName",
    "connect_timeout": "connectTimeout",
    "gssencmode": "gssEncMode",
    "krbsrvname": "kerberosServerName",
}
_OTHER_VALUES = {
    "keepalives": ("tcpKeepAlive", {"0": "false", "1": "true"}),
    "load_balance_hosts": ("loadBalanceHosts", {"disable": "false", "random": "true"}),
    "target_session_attrs": (
        "targetServerType",
        {"any": "any", "primary": "primary", "read-write": "primary"},
    ),
}
# To Java the first is the name of a file; of the others older ones know nothing, and say nothing.
_DEMANDS = {
    ("sslrootcert", "system"),
    ("channel_binding", "require"),
    ("sslnegotiation", "direct"),
}
# Unless they are among those, they change neither where a connection leads nor what it allows.
_NO_MATTER = {
    "channel_binding",
    "client_encoding",
    "fallback_application_name",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "sslcompression",
    "sslnegotiation",
    "tcp_user_timeout",
}
_PLACE = {"host", "hostaddr", "port", "dbname"}


def jdbc_address(given: Mapping[str, str]) -> tuple[str | None, list[str]]:
    """The address for Java, and the settings that it cannot have; None if it cannot be reached.

    Examples
    --------
    >>> jdbc_address({"host": "db", "user": "me", "sslmode": "verify-full", "dbname": "news"})
    ('jdbc:postgresql://db:5432/news?user=me&sslmode=verify-full', [])
    >>> jdbc_address({"host": "a,b", "port": "5432,5433", "connect_timeout": "3"})
    ('jdbc:postgresql://a:5432,b:5433/?connectTimeout=3', [])
    >>> jdbc_address({"host": "db", "sslcrl": "/revoked", "service": "news"})
    (None, ['service', 'sslcrl'])
    >>> jdbc_address({"host": "/var/run/postgresql"})  # a socket, which Java cannot open
    (None, [])
    """
    said: dict[str, str] = {}
    unknown = []
    for name, value in sorted(given.items(), key=lambda item: _order(item[0])):
        if (name, value) in _DEMANDS:
            unknown.append(f"{name}={value}")
        elif name in _PLACE or name in _NO_MATTER:
            continue
        elif name in _SAME:
            said[name] = value
        elif name in _OTHER_NAMES:
            said[_OTHER_NAMES[name]] = value
        elif name in _OTHER_VALUES and value in _OTHER_VALUES[name][1]:
            java, values = _OTHER_VALUES[name]
            said[java] = values[value]
        else:
            unknown.append(f"{name}={value}" if name in _OTHER_VALUES else name)
    if said.get("sslmode") == "require" and "sslrootcert" in said:
        said["sslmode"] = "verify-ca"  # as the driver's library does
    if "host" in given and "hostaddr" in given:
        unknown.append("hostaddr")
    hosts = _hosts(given.get("host") or given.get("hostaddr", ""), given.get("port", ""))
    if hosts is None or unknown:
        return None, unknown
    base = f"jdbc:postgresql://{hosts}/{quote(given.get('dbname', ''), safe='')}"
    return (f"{base}?{urlencode(said, quote_via=quote)}" if said else base), []


def with_own_files(given: Mapping[str, str], home: Path) -> dict[str, str]:
    """The settings with the files that the driver's library takes by itself from a user's folder.

    Where it finds authorities it checks the server by them, under ``sslmode=require`` too.

    Examples
    --------
    >>> with_own_files({"sslmode": "require"}, Path("/nobody"))
    {'sslmode': 'require'}
    """
    found = dict(given)
    if given.get("sslmode") in ("require", "verify-ca", "verify-full"):
        for name, file in (("sslrootcert", "root.crt"), ("sslcrl", "root.crl")):
            path = home / ".postgresql" / file
            if not found.get(name) and path.exists():
                found[name] = str(path)
            if not found.get("sslrootcert"):  # without authorities no list of theirs is read
                break
    return found


def _order(name: str) -> tuple[int, str]:
    return (_SAME.index(name) if name in _SAME else len(_SAME), name)


def _hosts(hosts: str, ports: str) -> str | None:
    """Hosts with their ports; None if there is none, or one that is a socket of this machine."""
    names = hosts.split(",")
    numbers = ports.split(",")
    numbers = numbers * len(names) if len(numbers) == 1 else numbers
    if len(numbers) != len(names) or any(not name or name[0] in "/@" for name in names):
        return None
    pairs = zip(names, numbers, strict=True)
    return ",".join(
        f"{f'[{name}]' if ':' in name else name}:{number or 5432}" for name, number in pairs
    )
