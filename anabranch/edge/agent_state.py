"""A device without socket, thread or clock: events in, effects out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgpack

from anabranch.edge.copies import LOST, TAKEN_OVER, contradiction
from anabranch.edge.directives import Directive
from anabranch.edge.effects import Effects
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import (
    NOTHING,
    Down,
    Output,
    Up,
    decode_output,
    encode_output,
    encode_up,
)
from anabranch.edge.mail import fresh_results
from anabranch.edge.meter import Meter, due_rates
from anabranch.edge.own_stream import OwnStream, Row, due_losses, portion
from anabranch.edge.ownership import EARLIEST
from anabranch.edge.presence import Presence
from anabranch.edge.sections import Results, Section
from anabranch.edge.sending import Sending
from anabranch.edge.splitting import shared
from anabranch.edge.versions import check_version

__all__ = ["AgentState", "Effects"]

_VERSION = 5
_NO_OUTPUT = encode_output(Output(0, ()))


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
        How often streams without rows are heard of, and after half of that time with what is
        sent anyway: so with the reports of their rates, one a minute, in one frame.
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
        beat: int = 90_000_000,
        window: int = 262_144,
        portion: int = 100_000,
    ) -> None:
        self.device, self.incarnation = device, incarnation
        self.epoch = -1
        self.evaluator = Evaluator(device)
        self._token, self._slack, self._beat, self._portion = token, slack, beat, portion
        self._begun = False
        self._seen = -1
        self._sending = Sending(window)
        self._adopted: list[int] = []  # the newest entry, and the newest time stamped below it
        self._had: dict[str, int] = {}  # by origin: the newest frame whose results are here
        self._asked: int | None = None  # after which mailbox frame a hello asked for more
        self._own: dict[str, OwnStream] = {}
        self._uploads: tuple[tuple[int, float, int], ...] = ()
        self._pending: list[Row] = []
        self._outgoing: list[Results] = []
        self._meters: dict[str, Meter] = {}
        self.clock: float | None = None  # seconds that it is ahead of the broker's, to be reported
        self._stopped = ""
        self._presence = Presence()

    @classmethod
    def restore(
        cls,
        device: str,
        incarnation: int,
        state: bytes | None,
        rows: Iterable[Row],
        frames: Iterable[tuple[int, bytes]],
        former: AgentState | None = None,
        **options: int,
    ) -> AgentState:
        """After a restart: the state that was kept, and all rows and frames that were.

        Without one `former` is what this process had: a device that left is not back by that, and
        rows that were dropped are.
        """
        agent = cls(device, incarnation, **options)
        if state is not None:
            agent._load(state, restarted=former is None or not former._presence.left)
        for own in former._own.values() if former is not None else ():
            agent.stream(own.name).dropped = own.dropped
        for row in sorted(rows, key=lambda row: row.n):
            own = agent.stream(row.stream)
            own.note(row)
            if row.n > own.framed:
                agent._pending.append(row)
        sending = agent._sending
        if sending.asked:
            agent._stopped = sending.resume(frames)
        else:
            sending.hold([(n, frame) for n, frame in frames if n > sending.acked])
        sending.sent = sending.next - 1  # until it is connected
        return agent

    # ------------------------------------------------------------ what can be seen of it

    @property
    def backlog(self) -> int:
        """Frames without acknowledgement."""
        return len(self._sending.kept)

    @property
    def waiting(self) -> bool:
        """Whether the cloud has not acknowledged all that it asked for."""
        unsaid = self._presence.left and self._presence.waiting
        return bool(self._sending.kept) or unsaid or (self.epoch >= 0 and bool(self._pending))

    @property
    def begun(self) -> bool:
        """Whether the cloud knows this incarnation."""
        return self._begun

    @property
    def following(self) -> int:
        """The number of the next frame."""
        return self._sending.next

    @property
    def seen(self) -> int:
        """The number of the newest mailbox frame that was processed."""
        return self._seen

    def done(self) -> dict[str, int]:
        """Up to which row each stream's are in frames, or never will be."""
        return {name: own.framed for name, own in self._own.items()}

    def stream(self, name: str) -> OwnStream:
        """A stream of its own."""
        if name not in self._own:
            self._own[name] = OwnStream(name, self.incarnation << 32)
        return self._own[name]

    @property
    def unfit(self) -> dict[str, int]:
        """Rows that came before their stream was declared and are of other columns, by stream."""
        return {own.name: own.unfit for own in self._own.values() if own.unfit}

    # ------------------------------------------------------------ what happens

    def put(self, stream: str, t: int, values: Mapping[str, Any]) -> Effects:
        """A row of the application: it is there once the effects are committed."""
        stamp = self.epoch if self.epoch >= 0 else None
        row = self.stream(stream).row(t, values, stamp)
        self._pending.append(row)
        return Effects(rows=[row])

    def flush(self, now: int) -> Effects:
        """Evaluate and send what has been put; `now`, less the slack, is a watermark."""
        effects = Effects()
        for own in self._own.values():
            own.watermark = max(own.watermark, own.newest - 1, now - self._slack)
        extras: dict[str, Any] = {}
        if self._seen >= 0:  # whoever has had nothing of its mailbox has sent no frame
            if rates := due_rates(self._own.values(), self._meters, now):
                extras["rates"] = rates
            if self.clock is not None:
                extras["clock"], self.clock = self.clock, None
            extras |= due_losses(self._own.values()) | self._presence.due()
        self._frame(effects, extras)
        return self._done(effects)

    def receive(self, down: Down) -> Effects:
        """A frame of the mailbox."""
        effects = Effects(stopped=self._stopped)
        if not self._is_next(down, effects):
            return effects
        self._seen, self._asked = down.number, None
        if down.acked > self._sending.acked:
            effects.freed = down.acked
            self._sending.acknowledge(down.acked)
        directives = [step for step in down.steps if isinstance(step, Directive)]
        if directives:
            self._frame(effects)  # what was put so far belongs to what held so far
        self._found(self.evaluator.take(down.steps), effects)
        if directives:
            self._adopt(directives, effects)
        effects.results += [one for one, _ in fresh_results(down, self._had)]
        if down.extras.get("rewind", -1) > self._sending.acked:  # send again from there
            self._sending.sent = int(down.extras["rewind"]) - 1
        if self._sending.ask(down.extras.get("again")):
            effects.again = True
            if self._adopted:  # the frame that said it may be kept no more
                self._emit(effects, [], {"adopted": [self._adopted]})
        return self._done(effects)

    def again(self, frames: Iterable[tuple[int, bytes]]) -> Effects:
        """The cloud has lost messages, and asked for all frames: these are kept, oldest first."""
        if self._sending.asked:
            self._stopped = self._sending.resume(frames)
        return self._done(self.connect())

    def leave(self) -> Effects:
        """Leave, until it starts again: what was put goes out, and views over its streams end."""
        effects = Effects()
        self._presence.leave()
        self._frame(effects, self._presence.due() if self._seen >= 0 else {})
        return self._done(effects)

    def connect(self, now: int | None = None) -> Effects:
        """After every connection, and if no acknowledgement comes: say hello, send again.

        The answer says what the broker's clock showed; `now` is what this one shows.
        """
        self._sending.sent, self._asked = self._sending.acked, None
        effects = Effects(send=[self._hello(now)], stopped=self._stopped)
        self._send(effects)
        return effects

    # ------------------------------------------------------------ what follows

    def _is_next(self, down: Down, effects: Effects) -> bool:
        """Whether a mailbox frame is to be processed now; asks for what is missing."""
        given = None if self.incarnation else down.extras.get("given", {}).get(self._token)
        if given is not None:
            self._number(given, effects)
        begin = down.extras.get("begin")
        if begin is not None and begin[0] == self.incarnation and not self._begun:
            self._begun = True
            self._seen = (down.number if begin[1] is None else begin[1]) - 1
        stop = down.extras.get("stop")
        if stop and stop[0] == self.incarnation and (len(stop) < 3 or self._seen <= stop[2]):
            self._stopped = effects.stopped = stop[1]
        ahead = down.extras.get("ahead") == self.incarnation
        if ahead if down.number <= self._seen else self._sending.outlived(down):
            effects.stopped = LOST  # until the hub is healed, so it is not kept
            return False
        if self._stopped or not self._begun or down.number <= self._seen:
            return False
        why = contradiction(down, self._sending.next, self._sending.acked, self._sending.kept)
        if begin is not None and begin[0] > self.incarnation:
            why = TAKEN_OVER
        self._stopped = effects.stopped = why
        if why:
            return False
        if not down.follows(self._seen):
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
        effects.send.append(self._hello())
        self._done(effects)

    def _adopt(self, directives: list[Directive], effects: Effects) -> None:
        """Do as told from now on, and say up to which time rows were stamped before."""
        for directive in directives:
            for number, stream in directive.streams:
                if stream.home == self.device:
                    own = self.stream(stream.name)
                    own.number, own.declared = number, stream
            if directive.uploads is not None:
                self._uploads = directive.uploads
        before, self.epoch = self.epoch, directives[-1].epoch
        newest = max((own.newest for own in self._own.values()), default=EARLIEST)
        if before < 0:  # rows that waited have the first stamp
            newest = EARLIEST
            self._pending = [replace(row, stamp=self.epoch) for row in self._pending]
            effects.rows += self._pending
        if self.epoch > before:
            self._adopted = [self.epoch, newest]
            self._emit(effects, [], {"adopted": [self._adopted]})

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
                beat = self._beat // 2 if extras else self._beat
                sections += self._sections(own, mine, min(ahead, own.watermark), beat, effects)
            if sections or self._outgoing or (extras and not rows):
                self._emit(effects, sections, {} if rows else extras or {})
            if not rows:
                return

    def _sections(
        self, own: OwnStream, rows: list[Row], watermark: int, beat: int, effects: Effects
    ) -> list[Section]:
        """Evaluate rows of a stream; what others need of them, or how far it is after a beat."""
        if own.declared is None:  # no view that is to come asks for rows stamped before it
            own.framed = rows[-1].n if rows else own.framed
            return []
        sampled = own.sections(rows, watermark)
        alone = Section(own.number, self.epoch, NOTHING, NOTHING, (), watermark)
        self._found(self.evaluator.step([*sampled, alone]), effects)
        own.counted += sum(len(section.n) for section in sampled)
        found = [part for section in sampled for part in own.uploads(section, self._uploads)]
        asked = any(stream == own.number for stream, _, _ in self._uploads)
        if not found and asked and watermark - own.told >= beat:
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
            head = self.incarnation, self._sending.next, self.epoch, self._seen
            content = encode_up(Up(*head, *carried, self._sending.check))
            effects.frames.append((self._sending.add(content), content))
        self._outgoing = []

    def _hello(self, now: int | None = None) -> bytes:
        extras: dict[str, Any] = {"hello": self._sending.next}
        extras |= {} if now is None else {"at": now}
        extras |= {"again": self._sending.resumed()} if self._sending.generation else {}
        extras |= {} if self.incarnation else {"new": self._token}
        extras |= {} if self._begun else {"fresh": True}
        return encode_up(Up(self.incarnation, -1, self.epoch, self._seen, extras=extras))

    def _done(self, effects: Effects) -> Effects:
        self._send(effects)
        effects.state = self._dump()
        effects.stopped = self._stopped
        return effects

    def _send(self, effects: Effects) -> None:
        """Send frames, in order, as far as the window allows."""
        if self.incarnation:
            effects.send += self._sending.due()

    # ------------------------------------------------------------ what is kept

    def _dump(self) -> bytes:
        own = [one.to_form() for one in self._own.values()]
        head = [self.epoch, self._begun, self._seen, self._stopped, self._adopted, self._had]
        found = self._outgoing
        outgoing = encode_output(Output(0, tuple(found))) if found else _NO_OUTPUT
        sending = [self._presence.to_form(), self._sending.to_form()]
        rest = [*sending, self._uploads, own, outgoing, self.evaluator.snapshot()]
        blob: bytes = msgpack.packb([_VERSION, *head, *rest])
        return blob

    def _load(self, state: bytes, restarted: bool) -> None:
        version, *form = msgpack.unpackb(state, strict_map_key=False)
        what = f"the state of device {self.device!r}"
        check_version(what, version, _VERSION, "begin a new outbox")
        self.epoch, self._begun, self._seen, self._stopped, self._adopted, self._had = form[:6]
        left, sending, uploads, own, outgoing, evaluator = form[6:]
        self._presence.load(left, restarted)
        self._sending.load(sending)
        self._uploads = tuple((stream, share, until) for stream, share, until in uploads)
        self._own = {one.name: one for one in map(OwnStream.from_form, own)}
        self._outgoing = list(decode_output(outgoing).results)
        self.evaluator = Evaluator.restore(evaluator)
