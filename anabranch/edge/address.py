"""How processes of Spark reach the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.errors import extra

__all__ = ["Broker"]

_ATTEMPTS = 30  # to connect, a second apart


@dataclass(frozen=True)
class Broker:
    """An address, and the folder with the credentials of the cloud, if it asks for any."""

    url: str
    credentials: str | None = None

    async def connect(self) -> Any:
        """A connection; while the broker is being restarted it waits."""
        with extra("edge", "a broker", "nats"):  # here, for tables do without
            from anabranch.edge.streams import connect

        return await connect(
            self.url,
            self.credentials,
            "spark",
            allow_reconnect=True,
            max_reconnect_attempts=_ATTEMPTS,
            reconnect_time_wait=1,
        )
