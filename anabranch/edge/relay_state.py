"""The relay without socket, thread or clock: a fold over UP, the one log of all that happened.

UP holds the frames of devices, the entries of the keeper and the results of the cloud in one order.
What goes to which mailbox or bucket is a function of that order alone, so a relay that is killed
folds again from a snapshot and skips what each subject has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgpack
import numpy as np

from anabranch.edge.book import Book
from anabranch.edge.checking import results_problem, section_problem
from anabranch.edge.copies import FORGOTTEN, TAKEN_OVER
from anabranch.edge.definitions import listed
from anabranch.edge.frames import NOTHING, Output, Up
from anabranch.edge.known import LATE_ROWS, KnownDevice
from anabranch.edge.losses import reported
from anabranch.edge.mail import Covered, Mail, Message
from anabranch.edge.ownership import CLOUD, EARLIEST, NOWHERE
from anabranch.edge.placements import Entry
from anabranch.edge.sections import Results, Section, thinned
from anabranch.edge.versions import check_version
from anabranch.errors import StateMismatch

__all__ = ["RECOVER", "Covered", "Message", "RelayState"]

_VERSION = 5
RECOVER = "stop `anabranch edge serve` and run `anabranch edge recover`"
_UNACKED = 64  # frames of a device after which it is told, if there is nothing else to say


class RelayState:
    """One relay of a generation of streams; `covered` says what each subject has at the start."""

    def __init__(
        self, buckets: int, covered: Mapping[str, Covered] | None = None, generation: int = 0
    ) -> None:
        self.buckets, self.generation = buckets, generation
        self.book = Book()
        self.passed = 0  # rows to devices, since the start
        self.counts: Counter[str] = Counter()  # late rows, frames and rows left out, and why
        self._mail = Mail(covered, generation)
        self._devices: dict[str, KnownDevice] = {}
        self._batches: dict[int, int] = {}
        self._shapes: dict[int, list[int]] = {}  # lengths of the vectors of each stream
        self._routes: dict[tuple[int, int], list[tuple[str, float, int]]] = {}
        self._reports: list[tuple[str, dict[str, Any]]] = []
        self._hellos: dict[str, int] = {}

    # ------------------------------------------------------------ what happens

    def frame(self, position: int, device: str, up: Up, at: int | None = None) -> None:
        """A frame of a device, at a position of UP; `at` is the broker's time, in microseconds."""
        self.position = position
        known = self._devices.get(device) or self._devices.setdefault(device, KnownDevice())
        if not up.incarnation:
            given = known.give(up.extras.get("new"), self.generation)
            if not given:
                self.counts["frames without an incarnation"] += 1
            elif pending := self._mail.pend(f"m.{device}"):
                pending.extras.setdefault("given", {}).update(given)
            return
        if up.incarnation < known.incarnation:
            self.counts["frames of a former incarnation"] += 1
            if up.number < 0:
                self._mail.extra(device, stop=[up.incarnation, TAKEN_OVER])
            return
        if up.incarnation > known.incarnation:
            self._begin(device, known, up.incarnation)
        elif up.seen > max(self._mail.newest(f"m.{device}").number, self._mail.base - 1):
            # It would take new frames for those that it has had.
            self.counts["frames of a device ahead of its mailbox"] += 1
            self._mail.extra(device, ahead=up.incarnation)
            return
        if not known.resumes(up, self.generation):
            self._ask_again(device, known, up)
        elif up.number < 0:
            self._hello(device, known, up, at)
        elif up.number < known.next:
            self.counts["frames that were there"] += 1
        elif up.number > known.next:
            self.counts["frames after a gap"] += 1
            if known.asked != known.next:
                known.asked = known.next
                self._mail.extra(device, rewind=known.next)
        elif up.before != known.check:
            # The answer says which frame is here, by which an outbox knows that it is a copy.
            self.counts["frames of a copy"] += 1
            self.acknowledge(device)
        else:
            self._take(device, known, up)

    def entry(self, position: int, entry: Entry) -> None:
        """An entry of the placement log, at a position of UP; only the next one is taken.

        The keeper publishes again what was not taken.
        """
        self.position = position
        if entry.number != self.book.epoch + 1:
            if entry.number > self.book.epoch:
                self.counts["entries out of order"] += 1
            return
        late = {stream: self.book.watermark(stream) for stream, _ in entry.presumed}
        changed = self.book.enact(entry)
        self._routes.clear()
        self._direct(changed)
        for stream, before in late.items():
            self._forward(self._watermark_of(stream), before)

    def output(self, position: int, bucket: int, output: Output) -> None:
        """Results of a bucket up to a part, at a position of UP; one that it has is dropped."""
        self.position = position
        before = self._batches.get(bucket, -1)
        for number, found in output.parts():
            if number > before and self._may_deliver(found, CLOUD):
                self._deliver(found, CLOUD, f"c.{bucket}", number)
        self._batches[bucket] = max(before, output.batch)

    def skip(self, position: int, what: str) -> None:
        """A message at a position of UP that cannot be read: it is counted, and nothing else."""
        self.position = position
        self.counts[f"{what} that cannot be read"] += 1

    # ------------------------------------------------------------ what follows

    @property
    def position(self) -> int:
        """Of UP: all up to it has been folded."""
        return self._mail.position

    @position.setter
    def position(self, position: int) -> None:
        self._mail.position = position

    @property
    def covered(self) -> Mapping[str, Covered]:
        """What each subject has."""
        return self._mail.covered

    @property
    def pending(self) -> bool:
        """Whether there is something to flush."""
        return self._mail.waiting

    def flush(self) -> list[Message]:
        """All that is pending, one frame per subject."""
        return self._mail.flush(self._acknowledged)

    def _acknowledged(self, subject: str) -> tuple[int, int]:
        """The newest frame of a device that has come, and its checksum."""
        device = self._devices.get(subject[2:]) if subject.startswith("m.") else None
        if device is None or device.generation < self.generation:
            return -1, 0
        device.unacked = 0
        return device.next - 1, device.check

    def replays(self) -> list[tuple[str, int]]:
        """Devices that said hello since the last call: what to push again, from which number on."""
        found, self._hellos = [(device, seen + 1) for device, seen in self._hellos.items()], {}
        return found

    def reports(self) -> list[tuple[str, dict[str, Any]]]:
        """What devices said of themselves since the last call."""
        found, self._reports = self._reports, []
        return found

    @property
    def left(self) -> dict[str, bool]:
        """Devices that have left and are not back; whether that is sure, since a recovery."""
        return {n: of.is_caught_up(self.generation) for n, of in self._devices.items() if of.left}

    def stop(self, device: str, seen: int) -> None:
        """A device asks for what nobody keeps: whoever has seen no more than this went back."""
        self._mail.extra(device, stop=[self._devices[device].incarnation, FORGOTTEN, seen])

    def acknowledge(self, device: str) -> None:
        """Tell a device what has come, if there is nothing else to tell it."""
        self._mail.pend(f"m.{device}")

    def snapshot(self) -> bytes:
        """All that it knows; right after a `flush` whose messages are stored."""
        if self.pending:
            raise StateMismatch("a relay is written down right after a flush")
        devices = {name: listed(device) for name, device in self._devices.items()}
        covered = {subject: listed(found) for subject, found in self.covered.items()}
        told = {subject: list(known) for subject, known in self._mail.told.items()}
        head = [self.buckets, self.generation, self.position]
        form = [*head, self.book.to_form(), devices, covered, told]
        blob: bytes = msgpack.packb(
            [_VERSION, *form, self._batches, self._shapes, dict(self.counts)]
        )
        return blob

    @classmethod
    def restore(cls, blob: bytes, covered: Mapping[str, Covered] | None) -> RelayState:
        """The relay of a snapshot, to fold UP after its `position`; `covered` is read back.

        Without it nothing is: the relay as it was, of streams that may be lost.
        """
        version, *form = msgpack.unpackb(blob, strict_map_key=False)
        otherwise = "remove it to fold UP from its beginning"
        check_version("the state of a relay", version, _VERSION, otherwise)
        buckets, generation, position, book, devices, before, *rest = form
        told, batches, shapes, counts = rest
        known = {subject: Covered(*found) for subject, found in before.items()}
        relay = cls(buckets, known if covered is None else covered, generation)
        for subject, found in known.items():
            if relay._mail.newest(subject).number < found.number:
                raise StateMismatch(
                    f"subject {subject!r} went back behind number {found.number}: the broker has "
                    f"lost messages; {RECOVER}"
                )
        relay.position, relay.book = position, Book.from_form(book)
        relay._devices = {name: KnownDevice(*of) for name, of in devices.items()}
        relay._mail.told = {subject: set(known) for subject, known in told.items()}
        relay._batches, relay._shapes, relay.counts = batches, shapes, Counter(counts)
        return relay

    def succeed(self, former: RelayState | None, begun: Mapping[str, int]) -> None:
        """Begin a generation: who the devices are is known, and everybody is told what holds."""
        if former is not None:
            self._devices, self._shapes = former._devices, former._shapes
        for device, incarnation in begun.items():
            known = self._devices.setdefault(device, KnownDevice())
            if incarnation > known.incarnation:
                known.begin(incarnation)
        for known in self._devices.values():
            known.forget()
        self._direct(range(len(self.book.views)))
        for bucket in range(self.buckets):  # which sends again what it has sent to devices
            self._mail.pend(f"in.{bucket}")

    # ------------------------------------------------------------ one device

    def _begin(self, device: str, known: KnownDevice, incarnation: int) -> None:
        """A device has lost what it had: tell the new incarnation all there is to know."""
        known.begin(incarnation)
        self._introduce(device, known)

    def _introduce(self, device: str, known: KnownDevice) -> None:
        """Tell an incarnation that it is known, and where its mailbox begins."""
        incarnation, known.introduced = known.incarnation, self.generation
        if known.former < 0:  # its mailbox holds all there is to know, from the beginning
            self._mail.extra(device, begin=[incarnation, 0])
            return
        subject = f"m.{device}"
        self._mail.told.pop(subject, None)
        if pending := self._mail.pend(subject):
            pending.steps.clear()
            pending.results.clear()
            pending.extras.update(begin=[incarnation, None])
        directive = self.book.directive(device, range(len(self.book.views)), True)
        self._mail.tell(subject, directive)
        if pending := self._mail.pend(subject):
            streams = {stream for hosted in directive.hosted for stream in hosted.view.inputs}
            pending.steps += [self._watermark_of(stream) for stream in sorted(streams)]

    def _ask_again(self, device: str, known: KnownDevice, up: Up) -> None:
        """A device has not begun in this generation: it must send again all that it keeps."""
        if up.number < 0:
            self._hellos[device] = up.seen
            # Its introduction may be lost; a second one would leave out what waits by then.
            if up.extras.get("fresh") is True and known.introduced < self.generation:
                self._introduce(device, known)
        elif known.asked == known.next:
            return
        known.asked = known.next
        self._mail.extra(device, again=[self.generation, known.next, known.check])

    def _hello(self, device: str, known: KnownDevice, up: Up, at: int | None) -> None:
        self._hellos[device] = up.seen
        said = up.extras.get("at")
        clock = {"clock": [said, at]} if type(said) is int and at is not None else {}
        self._mail.extra(device, rewind=known.next, **clock)
        following = up.extras.get("hello")
        if up.seen < 0 and type(following) is int and following < known.next:
            self.stop(device, -1)

    def _take(self, device: str, known: KnownDevice, up: Up) -> None:
        # All of it is looked at before anything changes.
        whose = device, up.incarnation, self.book, self._shapes
        sections = [one for one in up.sections if self._passes(section_problem(one, *whose))]
        results = [one for one in up.results if self._may_deliver(one, device)]
        adopted = up.extras.get("adopted", ())
        adopted = [(epoch, newest) for epoch, newest in adopted if 0 <= epoch <= self.book.epoch]
        known.next, known.asked, known.unacked = known.next + 1, -1, known.unacked + 1
        known.check = up.check
        before = {section.stream: self.book.watermark(section.stream) for section in sections}
        for section in sections:
            section = self._punctual(section, before[section.stream])
            if len(section.t):
                known.latest = max(known.latest, int(section.t[-1]))
            self._forward(section, before[section.stream])
            self.book.promised(section.stream, section.watermark)
        for found in results:
            self._deliver(found, device, device, up.incarnation << 32 | up.number)
        for epoch, newest in adopted:
            retired = self.book.adopted(device, epoch, max(newest, known.newest))
            self._routes.clear()
            self._direct(retired)
            for stream in {s for view in retired for s in self.book.views[view].inputs}:
                self._forward(self._watermark_of(stream), EARLIEST)
        known.hears(up.extras.get("bye"))
        if up.extras:
            self.counts.update(reported(device, up.extras, self.book.streams, known.losses))
            self._reports.append((device, {**up.extras, "late": ()}))  # it says itself what is
        if known.unacked >= _UNACKED:
            self.acknowledge(device)

    def _may_deliver(self, found: Results, origin: str) -> bool:
        return self._passes(results_problem(found, origin, self.book))

    def _passes(self, problem: str | None) -> bool:
        """Whether there is no problem; one is counted."""
        if problem is not None:
            self.counts[problem] += 1
        return problem is None

    def _punctual(self, section: Section, promised: int) -> Section:
        """The section without rows that nobody waits for any more; they are counted.

        So are those of which it is not known, since a recovery, whether somebody waited.
        """
        doubtful = max(promised, self.book.doubtful.get(section.stream, EARLIEST))
        late, counted = np.searchsorted(section.t, [promised, doubtful], side="right").tolist()
        if counted:
            stream = self.book.streams[section.stream]
            self.counts[LATE_ROWS + stream.name] += counted
            rows = [[section.stream, n] for n in section.n[:counted].tolist()]
            self._reports.append((stream.home, {"late": rows}))
        return section.later(late) if late else section

    # ------------------------------------------------------------ where to

    def _forward(self, section: Section, before: int) -> None:
        """Send a section wherever its rows may meet others; `before` it the watermark was this.

        Who asks for a part of the rows gets that part: a link carries what the planner charges.
        """
        wanted: dict[str, float] = {}
        last = set()  # who needs no row after this section, and must learn that
        for subject, share, until in self._route(section.stream, section.stamp):
            if before < until:
                wanted[subject] = max(share, wanted.get(subject, 0.0))
                if section.watermark >= until:
                    last.add(subject)
        parts: dict[float, Section | None] = {}
        tick = self.book.streams[section.stream].tick
        for subject, share in wanted.items():
            if share not in parts:
                parts[share] = thinned(section, share, tick)
            part = parts[share]
            if part is None and subject in last:
                part = self._watermark_of(section.stream, section.watermark)
            if part is not None and (pending := self._mail.pend(subject)):
                pending.steps.append(part)
                self.passed += len(part.n) if subject.startswith("m.") else 0

    def _route(self, stream: int, stamp: int) -> list[tuple[str, float, int]]:
        """Who may need rows of a stream with a stamp: subject, share and last time."""
        found = self._routes.get((stream, stamp))
        if found is None:
            most: dict[tuple[str, int], float] = {}
            for view, place, until in self.book.takers(stream, stamp):
                key = self._subject(place, view), until
                most[key] = max(self.book.share(view, stream), most.get(key, 0.0))
            found = [(subject, share, until) for (subject, until), share in most.items()]
            self._routes[stream, stamp] = found
        return found

    def _subject(self, place: str, view: int) -> str:
        return f"in.{view % self.buckets}" if place == CLOUD else f"m.{place}"

    def _watermark_of(self, stream: int, watermark: int | None = None) -> Section:
        """A section without rows, for all places that a stream is sent to by now."""
        heard = self.book.watermark(stream) if watermark is None else watermark
        return Section(stream, self.book.epoch, NOTHING, NOTHING, (), heard)

    def _deliver(self, found: Results, place: str, origin: str, number: int) -> None:
        """Send results to whoever asked for them besides their place, and say of which frame."""
        for other in sorted(self.book.receivers(found.view) - {place}):
            if pending := self._mail.pend(self._subject(other, found.view)):
                pending.found(found, origin, number)

    def _direct(self, views: Iterable[int]) -> None:
        """Tell all places and sources of some views what has changed for them."""
        concerned: dict[tuple[str, str], list[int]] = {}
        for view in views:
            places = {bound.place for bound in self.book.bounds[view]} - {NOWHERE}
            for place in sorted(self.book.homes(view) | places):
                concerned.setdefault((self._subject(place, view), place), []).append(view)
        for (subject, place), mine in concerned.items():
            device = place != CLOUD
            self._mail.tell(subject, self.book.directive(place, mine, False, device))
