"""Worlds in a box come out as the twin says; what would be wrong does not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.book import Book
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import decode_down, decode_output, decode_up, encode_up
from anabranch.edge.held import Held
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.known import KnownDevice
from anabranch.edge.mail import fresh_results
from anabranch.edge.ownership import EARLIEST, LATEST
from anabranch.edge.presence import Presence
from anabranch.edge.relay_state import RelayState
from anabranch.edge.sections import Results
from anabranch.errors import AnabranchError, StateMismatch
from tests.edge.world import World, Wrong, read_down, read_output, read_up
from tests.examples import PROFILE

WORLDS = 100  # in the gate
# In `make laws` 10,000 more, in parts that can be run alone.
MANY = [range(first, first + 1000) for first in range(1_000_000, 1_010_000, 1000)]


def lived(seeds: range) -> tuple[int, int, int]:
    """Worlds come out as the twin says: results, moves, and devices that had to stop."""
    found = moves = stops = 0
    for seed in seeds:
        world = World(seed).run()
        found += world.found
        moves += sum(len(entry.moves) for entry in world.log)
        stops += len(world.stops)
    return found, moves, stops


@pytest.mark.worlds
@pytest.mark.parametrize("seeds", [range(WORLDS), *(MANY if PROFILE == "laws" else [])], ids=str)
def test_worlds_are_as_the_twin_says(seeds: range) -> None:
    found, moves, stops = lived(seeds)
    assert found > 20 * len(seeds) and moves > len(seeds) and stops > len(seeds) // 50


def test_views_that_end_and_devices_that_leave_come_back() -> None:
    """In worlds of `test_worlds_are_as_the_twin_says`, a view's lives have no result in common."""
    worlds = [World(seed).run() for seed in range(20)]
    assert sum(world.again for world in worlds) > 10 and sum(world.byes for world in worlds) > 10


def test_views_end_while_they_move_and_though_a_device_is_lost_for_good() -> None:
    worlds = [World(seed).run() for seed in range(40)]
    assert sum(bool(world.gone) for world in worlds) > 4  # for good
    assert sum(world.loses_at < world.steps for world in worlds) > 10  # or for long
    assert sum(world.cut_short for world in worlds) > 4


def test_a_world_is_not_at_rest_while_a_device_has_results_to_send() -> None:
    world = World(0, steps=50).run()
    assert world._is_quiet()
    agent = world._agent(world._everybody()[0])
    agent._outgoing.append(Results(0, (), (), np.empty(0), np.empty(0)))
    assert not world._is_quiet()


def test_nobody_changes_what_was_read() -> None:
    """Frames are read once, however often they arrive, and say at the end what they say anew."""
    looked = 0
    for seed in range(6):
        world = World(seed).run()
        downs = [content for held in world.stored.values() for content in held]
        ups = [content for subject, content in world.up if subject[0] == "u"]
        outputs = [content for subject, content in world.up if subject[0] == "c"]
        for content in downs:
            assert repr(read_down(content)) == repr(decode_down(content))
        for content in ups:
            assert repr(read_up(content)) == repr(decode_up(content))
        for content in outputs:
            assert repr(read_output(content)) == repr(decode_output(content))
        looked += len(downs) + len(set(ups)) + len(outputs)
    assert looked > 500
    rows = next(up.sections[0] for up in map(read_up, ups) if up.sections)
    with pytest.raises(ValueError, match="read-only"):
        rows.n[:] = 0


# ---------------------------------------------------------------- mutations


def retire_early(patch: pytest.MonkeyPatch) -> None:
    """Retire a boundary when the first source has adopted the next."""
    newest = Book._newest

    def early(self: Book, device: str, epoch: int) -> int | None:
        found = newest(self, device, epoch)
        return EARLIEST if found is None else found

    patch.setattr(Book, "_newest", early)
    patch.setattr(Evaluator, "_check", lambda *_: None)


def restamp(patch: pytest.MonkeyPatch) -> None:
    """Send rows again with the stamp of the day; nobody looks at checksums."""
    trust_numbers(patch)
    connect = AgentState.connect

    def again(self: AgentState) -> Effects:
        frames = self._sending.kept
        for number, content in frames.items():
            up = decode_up(content)
            sections = tuple(replace(section, stamp=self.epoch) for section in up.sections)
            frames[number] = encode_up(replace(up, sections=sections))
        return connect(self)

    patch.setattr(AgentState, "connect", again)


def free_unopened(patch: pytest.MonkeyPatch) -> None:
    """Free rows though nothing is known of a partner's stream."""
    take = Held.take

    def opened(self: Held, *given: Any) -> None:
        take(self, *given)
        if self.watermark == EARLIEST:
            self.watermark = int(self.t.max(initial=0))

    patch.setattr(Held, "take", opened)
    free = Evaluator._free

    def freely(self: Evaluator) -> None:
        known = {stream: held.watermark for stream, held in self._held.items()}
        for held in self._held.values():
            held.watermark = LATEST if held.watermark == EARLIEST else held.watermark
        free(self)
        for stream, watermark in known.items():
            self._held[stream].watermark = watermark

    patch.setattr(Evaluator, "_free", freely)


def acknowledge_unstored(patch: pytest.MonkeyPatch) -> None:
    """Take what was sent for what has come."""
    done = AgentState._done

    def trusting(self: AgentState, effects: Effects) -> Effects:
        done(self, effects)
        effects.freed = max(self._sending.acked, self._sending.sent)
        self._sending.acknowledge(effects.freed)
        effects.state = self._dump()
        return effects

    patch.setattr(AgentState, "_done", trusting)


def overtake(patch: pytest.MonkeyPatch) -> None:
    """Take directives of a frame before rows that were sent before them."""
    take = Evaluator.take

    def early(self: Evaluator, steps: Any) -> Any:
        return take(self, sorted(steps, key=lambda step: hasattr(step, "n")))

    patch.setattr(Evaluator, "take", early)


def trust_numbers(patch: pytest.MonkeyPatch) -> None:
    """Take a frame for the one that is expected since it has its number, though it is another."""
    patch.setattr("anabranch.edge.agent_state.contradiction", lambda *_: "")
    patch.setattr("anabranch.edge.sending.checksum", lambda _: 0)
    take = RelayState._take

    def unchecked(self: RelayState, device: str, known: Any, up: Any) -> None:
        take(self, device, known, up)
        known.check = 0

    patch.setattr(RelayState, "_take", unchecked)


def trust_the_former(patch: pytest.MonkeyPatch) -> None:
    """After a recovery take frames from where the former relay was, as if all it sent was there."""

    def resumes(self: KnownDevice, up: Any, generation: int) -> bool:
        self.generation = generation
        return True

    patch.setattr(KnownDevice, "resumes", resumes)


def take_results_again(patch: pytest.MonkeyPatch) -> None:
    """Take results that devices send again after a recovery for new ones."""
    for where in ("anabranch.edge.agent_state", "tests.edge.world"):
        patch.setattr(f"{where}.fresh_results", lambda down, _: fresh_results(down, {}))


def forget_to_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """Take a view that has ended for one that is there."""
    there = KeeperState._there

    def all_there(self: KeeperState, ahead: Any) -> Any:
        ended = {view.name: (k, view) for k, view in enumerate(self._book.views)}
        return ended | there(self, ahead)

    patch.setattr(KeeperState, "_there", all_there)


def take_who_left_for_gone(patch: pytest.MonkeyPatch) -> None:
    """Do not hear that a device is back."""
    patch.setattr(Presence, "load", lambda *_: None)


def take_byes_again(patch: pytest.MonkeyPatch) -> None:
    """Take a bye that is sent again after a recovery for a new one."""

    def hears(self: KnownDevice, bye: Any) -> None:
        self.left = bye if type(bye) is bool else self.left

    patch.setattr(KnownDevice, "hears", hears)
    patch.setattr(KnownDevice, "is_caught_up", lambda *_: True)


def end_early(patch: pytest.MonkeyPatch) -> None:
    """Let go of a view that ended as soon as one of its sources knows."""

    def over(self: Book, view: int, epoch: int, _: int) -> bool:
        return any(self._newest(home, epoch) is not None for home in self.homes(view))

    patch.setattr(Book, "_is_over", over)


def wait_for_all(patch: pytest.MonkeyPatch) -> None:
    """Let go of a view that ended only when all of its sources know, also one that is lost."""

    def over(self: Book, view: int, epoch: int, _: int) -> bool:
        return all(self._newest(home, epoch) is not None for home in self.homes(view))

    patch.setattr(Book, "_is_over", over)


def end_at_rest_only(patch: pytest.MonkeyPatch) -> None:
    """End no view while it moves."""
    remove = KeeperState.remove

    def once_moved(self: KeeperState, view: int) -> bool:
        return self._book.has_moved(view) and remove(self, view)

    patch.setattr(KeeperState, "remove", once_moved)


@pytest.mark.parametrize(
    ("mutation", "seeds"),
    [
        (retire_early, range(10)),
        (restamp, range(20)),
        (free_unopened, range(10)),
        (acknowledge_unstored, range(10)),
        (overtake, range(184, 187)),
        (trust_numbers, range(22, 23)),
        (trust_numbers, range(28, 30)),
        (trust_the_former, range(32, 38)),
        (take_results_again, range(81, 82)),
        (forget_to_begin_anew, range(10)),
        (take_who_left_for_gone, range(10)),
        (take_byes_again, range(172, 173)),
        (end_early, range(10)),
        (wait_for_all, range(10, 20)),
        (end_at_rest_only, range(30, 40)),
    ],
)
def test_a_wrong_system_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((Wrong, AnabranchError)):
        for seed in seeds:
            World(seed).run()


def test_an_early_retirement_is_an_error_where_it_harms(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the evaluator's check, which `retire_early` takes away."""
    check = Evaluator._check
    retire_early(monkeypatch)
    monkeypatch.setattr(Evaluator, "_check", check)
    with pytest.raises(StateMismatch, match="was retired too early at"):
        for seed in range(5, 15):
            World(seed).run()
