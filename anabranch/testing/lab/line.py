"""A long line to the broker, without root: ``python -m anabranch.testing.lab.line``.

It takes connections, passes on what comes after a delay each way, and counts what the sockets of
devices have carried: bytes and packets, as the kernel counts them. For each line of its input it
prints the counts, after a cut if the line asks for one; it ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from collections import Counter
from typing import Any, cast

__all__ = ["HEADERS", "Line"]

HEADERS = 66
"""Bytes of Ethernet, IP and TCP (with timestamps) around what a packet carries."""
_COUNTS = struct.Struct("QQII")  # of tcp_info: bytes acknowledged and received, packets out and in
_COUNTS_AT, _INFO = 120, 256


class _End(asyncio.Protocol):
    """One end of a connection; what it hears, the other end says later."""

    def __init__(self, line: Line, other: _End | None = None) -> None:
        self._line, self._other = line, other
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._device = other is None  # as the device opens a connection, and the line the next

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        for data in self._early:
            self._transport.write(data)
        ended = self._other is not None and self._other not in self._line.ends
        if ended or (self._device and self._line.is_cut):
            self._transport.abort()
        elif self._device:
            self._line.ends.add(self)
            self._line.connections += 1
            asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        loop, other = asyncio.get_running_loop(), _End(self._line, self)
        self._other = other
        try:
            await loop.create_connection(lambda: other, *self._line.target)
        except OSError:
            self._close()

    def data_received(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._line.delay, self._pass_on, data)

    def _pass_on(self, data: bytes) -> None:
        if self._other is not None:
            self._other.say(data)

    def say(self, data: bytes) -> None:
        """Send, or keep until the connection is there."""
        if self._transport is None:
            self._early.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._line.ends:
            self._line.ends.remove(self)
            self._line.past += self._carried()  # the socket is closed after this
        if self._other is not None:
            asyncio.get_running_loop().call_later(self._line.delay, self._other._close)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """Close this end and the other."""
        self._close()
        if self._other is not None:
            self._other._close()

    def counts(self) -> Counter[str]:
        """What this socket has carried."""
        if self._transport is None or self._transport.is_closing():
            return Counter()
        return self._carried()

    def _carried(self) -> Counter[str]:
        assert self._transport is not None
        found: Counter[str] = Counter()
        sock = self._transport.get_extra_info("socket")
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO)
        except OSError:
            return found
        down, up, down_packets, up_packets = _COUNTS.unpack_from(info, _COUNTS_AT)
        found.update(up=up, down=down, up_packets=up_packets, down_packets=down_packets)
        return found


class Line:
    """Serves until cancelled.

    Parameters
    ----------
    target
        Address and port of the broker.
    delay
        Seconds that everything takes, each way.
    """

    def __init__(self, target: tuple[str, int], delay: float) -> None:
        self.target, self.delay = target, delay
        self.ends: set[_End] = set()
        self.past: Counter[str] = Counter()  # what sockets carried that have ended
        self.connections = 0
        self._cut_until = 0.0

    async def serve(self) -> int:
        """Begin to listen; the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self), "127.0.0.1", 0, backlog=1000)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """End all connections."""
        self._server.close()
        for end in list(self.ends):
            end.end()

    @property
    def is_cut(self) -> bool:
        """Whether nobody gets through who has no connection."""
        return asyncio.get_running_loop().time() < self._cut_until

    def cut(self, share: float, seconds: float) -> None:
        """Break a share of all connections; for so long no new one gets through."""
        self._cut_until = asyncio.get_running_loop().time() + seconds
        for end in random.sample(list(self.ends), round(share * len(self.ends))):
            end.end()

    def counts(self) -> dict[str, Any]:
        """What all sockets of devices have carried so far, those that have ended among them."""
        total = sum((end.counts() for end in self.ends), Counter(self.past))
        return {**total, "connections": self.connections, "open": len(self.ends)}


async def _main(port: str, delay: str) -> None:
    line = Line(("127.0.0.1", int(port)), float(delay))
    print(await line.serve(), flush=True)
    while order := await asyncio.to_thread(sys.stdin.readline):
        if order.strip():
            line.cut(**json.loads(order))
        print(json.dumps(line.counts()), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
