"""A device without socket, thread or clock: events in, effects out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgpack

from anabranch.edge.copies import TAKEN_OVER, checksum, contradiction
from anabranch.edge.directives import Directive
from anabranch.edge.effects import Effects
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import (
    NOTHING,
    Down,
    Output,
    Up,
    decode_output,
    decode_up,
    encode_output,
    encode_up,
)
from anabranch.edge.meter import Meter
from anabranch.edge.own_stream import OwnStream, Row, portion
from anabranch.edge.ownership import NEVER
from anabranch.edge.sections import Results, Section
from anabranch.edge.splitting import shared
from anabranch.errors import StateMismatch

__all__ = ["AgentState", "Effects"]

_VERSION = 3


class AgentState:
    """One device.

    Parameters
    ----------
    device
        Its name.
    incarnation
        Of its outbox: 0 until the cloud gives it one, larger than those of all before it.
    token
        By which a new outbox asks for an incarnation: different from any other's.
    slack
        How old a row may be when it is put, in microseconds.
    beat
        How often streams without rows are heard of.
    window
        Bytes that may be under way without acknowledgement.
    portion
        Bytes of rows that share a frame at most.
    """

    def __init__(
        self,
        device: str,
        incarnation: int,
        *,
        token: int = 0,
        slack: int = 1_000_000,
        beat: int = 30_000_000,
        window: int = 262_144,
        portion: int = 100_000,
    ) -> None:
        self.device = device
        self.incarnation = incarnation
        self.epoch = -1
        self.evaluator = Evaluator(device)
        self._token, self._slack, self._beat = token, slack, beat
        self._window, self._portion = window, portion
        self._begun = False
        self._seen = -1
        self._next = 0
        self._check = 0  # checksum of the frame before that
        self._acked = -1
        self._sent = -1
        self._asked: int | None = None  # after which mailbox frame a hello asked for more
        self._own: dict[str, OwnStream] = {}
        self._uploads: tuple[tuple[int, float, int], ...] = ()
        self._pending: list[Row] = []
        self._frames: dict[int, bytes] = {}
        self._outgoing: list[Results] = []
        self._meters: dict[str, Meter] = {}
        self.clock: float | None = None  # seconds that it is ahead of the broker's, to be reported
        self._stopped = ""

    @classmethod
    def restore(
        cls,
        device: str,
        incarnation: int,
        state: bytes | None,
        rows: Iterable[Row],
        frames: Iterable[tuple[int, bytes]],
        **options: int,
    ) -> AgentState:
        """After a restart: the state that was kept, and all rows and frames that were."""
        agent = cls(device, incarnation, **options)
        if state is not None:
            agent._load(state)
        for row in sorted(rows, key=lambda row: row.n):
            own = agent._stream(row.stream)
            own.note(row)
            if row.n > own.framed:
                agent._pending.append(row)
        agent._frames = {n: frame for n, frame in sorted(frames) if n > agent._acked}
        agent._sent = agent._next - 1  # until it is connected
        return agent

    # ------------------------------------------------------------ what can be seen of it

    @property
    def backlog(self) -> int:
        """Frames without acknowledgement."""
        return len(self._frames)

    @property
    def waiting(self) -> bool:
        """Whether the cloud has not acknowledged all that it asked for."""
        return bool(self._frames) or (self.epoch >= 0 and bool(self._pending))

    @property
    def begun(self) -> bool:
        """Whether the cloud knows this incarnation."""
        return self._begun

    @property
    def following(self) -> int:
        """The number of the next frame."""
        return self._next

    @property
    def seen(self) -> int:
        """The number of the newest mailbox frame that was processed."""
        return self._seen

    def done(self) -> dict[str, int]:
        """Up to which row each stream's are in frames, or never will be."""
        return {name: own.framed for name, own in self._own.items()}

    def newest(self, stream: str) -> int:
        """The time of a stream's newest row."""
        return self._stream(stream).newest

    def earliest(self, stream: str) -> int:
        """The earliest time that a stream's next row may have."""
        own = self._stream(stream)
        return max(own.newest, own.watermark + 1)

    def tick(self, stream: str) -> int:
        """The tick of a stream; 0 if it has none, or none is known yet."""
        declared = self._stream(stream).declared
        return 0 if declared is None else declared.tick

    # ------------------------------------------------------------ what happens

    def put(self, stream: str, t: int, values: Mapping[str, Any]) -> Effects:
        """A row of the application: it is there once the effects are committed."""
        stamp = self.epoch if self.epoch >= 0 else None
        row = self._stream(stream).row(t, values, stamp)
        self._pending.append(row)
        return Effects(rows=[row])

    def flush(self, now: int) -> Effects:
        """Evaluate and send what has been put; `now`, less the slack, is a watermark."""
        effects = Effects()
        for own in self._own.values():
            own.watermark = max(own.watermark, own.newest - 1, now - self._slack)
        extras: dict[str, Any] = {}
        if rates := self._rates(now):
            extras["rates"] = rates
        if self.clock is not None:
            extras["clock"], self.clock = self.clock, None
        self._frame(effects, extras)
        return self._done(effects)

    def receive(self, down: Down) -> Effects:
        """A frame of the mailbox."""
        effects = Effects(stopped=self._stopped)
        if not self._is_next(down, effects):
            return effects
        self._seen, self._asked = down.number, None
        if down.acked > self._acked:
            self._acked = effects.freed = down.acked
            self._frames = {n: frame for n, frame in self._frames.items() if n > down.acked}
        directives = [step for step in down.steps if isinstance(step, Directive)]
        if directives:
            self._frame(effects)  # what was put so far belongs to what held so far
        self._found(self.evaluator.take(down.steps), effects)
        if directives:
            self._adopt(directives, effects)
        effects.results += down.results
        if down.extras.get("rewind", -1) > self._acked:  # send again from there
            self._sent = int(down.extras["rewind"]) - 1
        return self._done(effects)

    def leave(self) -> Effects:
        """Leave for good: what was put goes out, and views over this device's streams end."""
        effects = Effects()
        self._frame(effects, {"bye": True})
        return self._done(effects)

    def connect(self, now: int | None = None) -> Effects:
        """After every connection, and if no acknowledgement comes: say hello, send again.

        The answer says what the broker's clock showed; `now` is what this one shows.
        """
        self._sent, self._asked = self._acked, None
        effects = Effects(send=[self._hello(now)], stopped=self._stopped)
        self._send(effects)
        return effects

    # ------------------------------------------------------------ what follows

    def _is_next(self, down: Down, effects: Effects) -> bool:
        """Whether a mailbox frame is to be processed now; asks for what is missing."""
        given = down.extras.get("given", {}).get(self._token)
        if given is not None and not self.incarnation:
            self._number(given, effects)
        begin = down.extras.get("begin")
        if begin is not None and begin[0] == self.incarnation and not self._begun:
            self._begun = True
            self._seen = (down.number if begin[1] is None else begin[1]) - 1
        stop = down.extras.get("stop")
        if stop and stop[0] == self.incarnation and (len(stop) < 3 or self._seen <= stop[2]):
            self._stopped = effects.stopped = stop[1]
        if self._stopped or not self._begun or down.number <= self._seen:
            return False
        why = contradiction(down, self._next, self._acked, self._frames)
        if begin is not None and begin[0] > self.incarnation:
            why = TAKEN_OVER
        self._stopped = effects.stopped = why
        if why:
            return False
        if down.number > self._seen + 1:
            if self._asked != self._seen:
                self._asked = self._seen
                effects.send.append(self._hello())
            return False
        return True

    def _number(self, incarnation: int, effects: Effects) -> None:
        """The cloud has given this outbox an incarnation: rows are numbered by it."""
        self.incarnation = effects.incarnation = incarnation
        base = incarnation << 32
        for own in self._own.values():
            own.following += base
        self._pending = [replace(row, n=row.n + base) for row in self._pending]
        waiting, self._frames = list(self._frames.values()), {}
        self._next, self._sent, self._check = 0, -1, 0
        for content in waiting:  # which have no rows yet
            self._emit(effects, [], decode_up(content).extras)
        effects.send.append(self._hello())
        self._done(effects)

    def _adopt(self, directives: list[Directive], effects: Effects) -> None:
        """Do as told from now on, and say up to which time rows were stamped before."""
        for directive in directives:
            for number, stream in directive.streams:
                if stream.home == self.device:
                    own = self._stream(stream.name)
                    own.number, own.declared = number, stream
            if directive.uploads is not None:
                self._uploads = directive.uploads
        before, self.epoch = self.epoch, directives[-1].epoch
        newest = max((own.newest for own in self._own.values()), default=NEVER)
        if before < 0:  # rows that waited have the first stamp
            newest = NEVER
            self._pending = [replace(row, stamp=self.epoch) for row in self._pending]
            effects.rows += self._pending
        if self.epoch > before:
            self._emit(effects, [], {"adopted": [[self.epoch, newest]]})

    def _frame(self, effects: Effects, extras: dict[str, Any] | None = None) -> None:
        """Evaluate the rows that were put, and make frames of what others need of them."""
        rows: list[Row] = []
        if self.epoch >= 0:
            rows, self._pending = self._pending, []
        while True:
            count = portion(rows, self._portion)
            now, rows = rows[:count], rows[count:]
            sections: list[Section] = []
            for own in self._own.values() if self.epoch >= 0 else ():
                # What is promised holds for rows that wait for the next frame as well.
                ahead = next((row.t - 1 for row in rows if row.stream == own.name), own.watermark)
                mine = [row for row in now if row.stream == own.name]
                sections += self._sections(own, mine, min(ahead, own.watermark), effects)
            if sections or self._outgoing or (extras and not rows):
                self._emit(effects, sections, {} if rows else extras or {})
            if not rows:
                return

    def _rates(self, now: int) -> dict[int, float]:
        """Rows per second of own streams, sent or not, where that is to be reported."""
        found = {}
        for own in self._own.values():
            if own.declared is not None:
                meter = self._meters.setdefault(own.name, Meter())
                meter.count(now, own.counted)
                own.counted = 0
                rate = meter.due(now)
                if rate is not None:
                    found[own.number] = rate
        return found

    def _sections(
        self, own: OwnStream, rows: list[Row], watermark: int, effects: Effects
    ) -> list[Section]:
        """Evaluate rows of a stream; what others need of them."""
        if own.declared is None:  # no view that is to come asks for rows stamped before it
            own.framed = rows[-1].n if rows else own.framed
            return []
        sampled = own.sections(rows, watermark)
        alone = Section(own.number, self.epoch, NOTHING, NOTHING, (), watermark)
        self._found(self.evaluator.step([*sampled, alone]), effects)
        own.counted += sum(len(section.n) for section in sampled)
        found = [part for section in sampled for part in own.uploads(section, self._uploads)]
        asked = any(stream == own.number for stream, _, _ in self._uploads)
        if not found and asked and watermark - own.told >= self._beat:
            found = [alone]
        own.told = watermark if found else own.told
        return found

    def _found(self, found: list[Results], effects: Effects) -> None:
        """Results that were computed here: to be shown, and sent to others who asked for them."""
        effects.results += found
        for one in found:
            view = self.evaluator.known[one.view]
            homes = {self.evaluator.streams[stream].home for stream in view.inputs}
            deliver = self.evaluator.definitions[view.definition].deliver
            if "cloud" in deliver or ("inputs" in deliver and homes != {self.device}):
                self._outgoing.append(one)

    def _emit(self, effects: Effects, sections: list[Section], extras: dict[str, Any]) -> None:
        """Make the next frame, or more if there are many results."""
        for carried in shared(sections, self._outgoing, extras):
            head = self.incarnation, self._next, self.epoch, self._seen
            content = encode_up(Up(*head, *carried, self._check))
            self._check, self._frames[self._next] = checksum(content), content
            effects.frames.append((self._next, content))
            self._next += 1
        self._outgoing = []

    def _hello(self, now: int | None = None) -> bytes:
        extras = {"hello": self._next} | ({} if now is None else {"at": now})
        extras |= {} if self.incarnation else {"new": self._token}
        return encode_up(Up(self.incarnation, -1, self.epoch, self._seen, extras=extras))

    def _done(self, effects: Effects) -> Effects:
        self._send(effects)
        effects.state = self._dump()
        effects.stopped = self._stopped
        return effects

    def _send(self, effects: Effects) -> None:
        """Send frames, in order, as far as the window allows."""
        if not self.incarnation:
            return
        under_way = sum(len(frame) for n, frame in self._frames.items() if n <= self._sent)
        for number, frame in self._frames.items():
            if number <= self._sent:
                continue
            if under_way and under_way + len(frame) > self._window:
                return
            under_way += len(frame)
            self._sent = number
            effects.send.append(frame)

    def _stream(self, name: str) -> OwnStream:
        if name not in self._own:
            self._own[name] = OwnStream(name, self.incarnation << 32)
        return self._own[name]

    # ------------------------------------------------------------ what is kept

    def _dump(self) -> bytes:
        own = [one.to_form() for one in self._own.values()]
        head = [self.epoch, self._begun, self._seen, self._next, self._acked, self._stopped]
        outgoing = encode_output(Output(0, tuple(self._outgoing)))
        rest = [self._check, self._uploads, own, outgoing, self.evaluator.snapshot()]
        blob: bytes = msgpack.packb([_VERSION, *head, *rest])
        return blob

    def _load(self, state: bytes) -> None:
        version, *form = msgpack.unpackb(state, strict_map_key=False)
        if version != _VERSION:
            raise StateMismatch(
                f"the state of device {self.device!r} has version {version!r}, and this is "
                f"{_VERSION}: go on with the version that wrote it, or begin a new outbox"
            )
        self.epoch, self._begun, self._seen, self._next, self._acked, self._stopped = form[:6]
        self._check, uploads, own, outgoing, evaluator = form[6:]
        self._uploads = tuple((stream, share, until) for stream, share, until in uploads)
        self._own = {one.name: one for one in map(OwnStream.from_form, own)}
        self._outgoing = list(decode_output(outgoing).results)
        self.evaluator = Evaluator.restore(evaluator)
