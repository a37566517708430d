"""Bytes and balls find the same pairs as the float32 product, whatever the processor offers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from llvmlite import binding, ir

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.filters import choosing, dots, quantised, tiles
from anabranch.correlation.filters.balls import _meeting, ball_search, likely_share
from anabranch.correlation.filters.choosing import Habits
from anabranch.correlation.filters.dots import Avx2, Neon, Vnni256, Vnni512, available
from anabranch.correlation.filters.quantised import byte_candidates, rounded, work_of
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from anabranch.flow.goals import operand_of
from anabranch.testing import rehearsal

# Those that differ in more than the size of a register: each takes seconds to compile.
TRIED = [by for by in available() if not isinstance(by, Vnni256)]
WINDOW = (40_000_000, 20_000_000)


def matcher(where: Any) -> Matcher:
    schema = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    spec, problems = plan_correlation(schema, schema, where=where, window="1 minute")
    assert spec is not None, problems
    return Matcher(spec)


def world(rows: tuple[int, int], d: int, seed: int, spread: float = 0.0) -> Pair:
    """Two blocks in which some rows of one are near some of the other, two plans being live."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((20, d))
    blocks = []
    for n in rows:
        noise = random.standard_normal((n, d)) * random.uniform(0.02, 1.0, (n, 1))
        vectors = centres[random.integers(0, 20, n)] + noise
        vectors *= np.exp2(random.uniform(-spread, spread, (n, 1)))
        t = np.sort(random.integers(0, 100_000_000, n))
        epoch = (np.arange(n) >= n // 3).astype(np.int64)
        mask = np.where(random.random(n) < 0.7, 0b11, 1 << epoch)
        columns = {"id": np.arange(n), "s0": vectors.astype("f4")}
        blocks.append(Block(t, epoch, mask, columns))
    return Pair(*blocks, WINDOW)


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are made for the smallest blocks, too."""
    monkeypatch.setattr(choosing, "may_pay", lambda *call: True)


def matches(found: Any) -> dict[tuple[int, int], float]:
    return {
        (int(i), int(j)): float(score) for part in found for i, j, score in zip(*part, strict=True)
    }


MEASURES = {
    "cosine": (ab.cosine("v"), (0.2, 0.9)),
    "dot": (ab.dot("v"), (-3.0, 40.0)),
    "euclidean": (ab.euclidean("v"), (1.0, 9.0)),
}


@pytest.mark.parametrize("kind", MEASURES)
@pytest.mark.parametrize("upward", [True, False])
def test_bytes_and_the_product_find_the_same_pairs(
    kind: str, upward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch)
    monkeypatch.setattr(choosing, "most_proposed", lambda width, pairs, by: pairs)
    measure, thresholds = MEASURES[kind]
    shapes = [((1, 1), 1), ((33, 70), 5), ((300, 257), 64), ((150, 90), 130)]
    for seed, ((rows, d), threshold) in enumerate((s, t) for s in shapes for t in thresholds):
        pair = world(rows, d, seed, spread=3.0 * (seed % 2))
        where = measure >= threshold if upward else measure <= threshold
        monkeypatch.setattr(choosing, "available", tuple)
        expected = matches(matcher(where).matches(pair))
        for by in TRIED:
            monkeypatch.setattr(choosing, "available", lambda by=by: (by,))
            assert matches(matcher(where).matches(pair)) == expected


@pytest.mark.parametrize(("together", "most", "shift"), [(8, 127, 0), (8, -127, 0), (32, 63, 64)])
@pytest.mark.parametrize(("rows", "d"), [(1, 1), (9, 3), (70, 64), (33, 130)])
def test_rounded_rows_lie_where_they_belong_and_lose_no_more_than_is_said(
    rows: int, d: int, together: int, most: int, shift: int
) -> None:
    vectors = np.random.default_rng(rows).standard_normal((rows, d)).astype("f4")
    found = rounded(operand_of(vectors), together, most, weight=3, shift=shift)
    groups = -(-rows // together)
    laid_out = found.packed.reshape(groups, -(-d // 4), together, 4).transpose(0, 2, 1, 3)
    places = laid_out.reshape(groups * together, -1)
    everything = (places - np.uint8(shift)).view(np.int8).astype(int)
    assert not everything[rows:].any() and not everything[:, d:].any()
    whole = everything[:rows, :d] * np.sign(most)
    assert np.abs(whole).max() == abs(most)
    apart = vectors - whole * found.unit
    assert np.abs(apart).max() <= found.unit * 0.500001
    lost = np.sqrt(np.square(apart).sum(axis=1))
    assert (lost <= found.lost).all() and (found.lost <= lost * 1.00001 + found.unit * 1e-6).all()
    assert (found.moved == 3 * everything[:rows].sum(axis=1)).all()


def test_few_pairs_are_proposed_that_do_not_match() -> None:
    pair = world((400, 500), 64, seed=5)
    for by in TRIED:
        work = work_of(pair, "s0", "cosine", True, 0.9, by)
        assert work is not None
        proposed = sum(len(found.left) for found in byte_candidates(pair, work) or ())
        found = sum(len(part.left) for part in matcher(ab.cosine("v") >= 0.9).matches(pair))
        assert found <= proposed <= 1.3 * found + 20


def test_where_nearly_all_is_proposed_the_product_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    product = choosing.product_candidates
    always(monkeypatch)
    monkeypatch.setattr(
        choosing, "product_candidates", lambda *call: (asked.append(call[1]), product(*call))[1]
    )
    pair, dense = world((200, 200), 8, seed=1), matcher(ab.cosine("v") >= -0.99)
    sparse = matcher(ab.cosine("v") >= 1.0)
    assert sum(len(part.left) for part in dense.matches(pair)) > 1000
    assert asked == ["s0"]
    assert matches(sparse.matches(pair)) == {} and len(asked) == 2 - bool(available())


def in_small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of few panels of right rows, each a stretch by itself."""
    always(monkeypatch)
    for name, value in {"_PANEL_BYTES": 1 << 12, "_STRETCH": 1}.items():
        monkeypatch.setattr(quantised, name, value)


def test_spans_that_lie_about_the_threshold_are_left_to_the_product_and_only_they(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not available():
        pytest.skip("this processor has no instructions for bytes")
    in_small_spans(monkeypatch)
    asked: list[tuple[int, int]] = []
    product = choosing.product_candidates

    def noted(*call: Any) -> Any:
        asked.append(call[5] if len(call) > 5 else (0, 0))
        return product(*call)

    monkeypatch.setattr(choosing, "product_candidates", noted)
    random = np.random.default_rng(3)
    near = random.standard_normal((1, 32))
    left = near + 0.1 * random.standard_normal((400, 32))
    right = random.standard_normal((1200, 32))
    right[400:700] = near + 0.1 * random.standard_normal((300, 32))
    blocks = [
        Block.of(np.zeros(len(v)), {"id": np.arange(len(v)), "s0": v.astype("f4")})
        for v in (left, right)
    ]
    pair = Pair(*blocks, (1, 1))
    habits, call = Habits(), (pair, "s0", "cosine", True, 0.98)
    found = proposed(choosing.vector_candidates(*call, habits))
    assert asked and (0, 0) not in asked
    touched = {row for first, last in asked for row in range(first, last)}
    assert set(range(400, 700)) <= touched < set(range(1200))
    assert found >= proposed(product(*call)) != set()
    assert habits.bytes.tries()  # some spans have paid


@pytest.mark.parametrize("kind", MEASURES)
def test_small_spans_find_what_the_product_finds_whichever_looks_at_them(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, thresholds = MEASURES[kind]
    for seed, (rows, d) in enumerate([((300, 257), 64), ((20, 900), 16)]):
        pair = world(rows, d, seed)
        for threshold in thresholds:
            where = measure >= threshold
            monkeypatch.setattr(choosing, "available", tuple)
            expected = matches(matcher(where).matches(pair))
            in_small_spans(monkeypatch)
            for by in TRIED:
                monkeypatch.setattr(choosing, "available", lambda by=by: (by,))
                for most in (-1, 0, 3, 40):
                    monkeypatch.setattr(choosing, "most_proposed", lambda *call, m=most: m)
                    assert matches(matcher(where).matches(pair)) == expected


def test_sums_that_32_bits_cannot_hold_are_left_to_the_product() -> None:
    far = Block.of([0], {"s0": np.full((1, 4), 1e9, "f4")})
    near = Block.of([0], {"s0": np.full((1, 4), 1.0, "f4")})
    for by in available():
        assert work_of(Pair(near, far, (0, 0)), "s0", "euclidean", False, 1.0, by) is None


def test_a_processor_named_by_hand_gets_no_instructions_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba import config

    monkeypatch.setattr(config, "CPU_NAME", "generic", raising=False)
    assert available.__wrapped__() == ()


ASKED = {
    ("cosine", True): (ab.cosine("v") >= 0.93, 0.93),
    ("cosine", False): (ab.cosine("v") <= -0.2, -0.2),
    ("euclidean", False): (ab.euclidean("v") <= 3.0, 3.0),
    ("euclidean", True): (ab.euclidean("v") >= 4.0, 4.0),
    ("dot", True): (ab.dot("v") >= 5.0, 5.0),
    ("dot", False): (ab.dot("v") <= -3.0, -3.0),
}


@pytest.mark.parametrize(("kind", "upward"), ASKED)
@pytest.mark.parametrize("rows", [(90, 700), (700, 90), (2, 2), (300, 301)])
def test_balls_leave_every_pair_that_matches(
    kind: str, upward: bool, rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, threshold = ASKED[kind, upward]
    monkeypatch.setattr(choosing, "available", tuple)
    for seed, d in enumerate((3, 17, 64)):
        pair = world(rows, d, seed, spread=3.0 * (seed % 2))
        expected = set(matches(matcher(where).matches(pair)))
        for by in TRIED:
            search = ball_search(pair, "s0", kind, upward, threshold, by)
            assert search is not None
            assert expected <= proposed(search.candidates(pair))


def test_a_sample_tells_data_without_clusters_before_balls_are_made() -> None:
    by, random = TRIED[0], np.random.default_rng(5)
    centres = random.standard_normal((12, 32))

    def guessed_and_left(spread: float) -> tuple[float, float]:
        vectors = [
            centres[random.integers(0, 12, n)] + spread * random.standard_normal((n, 32))
            for n in (300, 4000)
        ]
        pair = Pair(*[Block.of(np.zeros(len(v)), {"s0": v.astype("f4")}) for v in vectors], (0, 0))
        call = (pair, "s0", "cosine", True, 0.9, by)
        guessed, search = likely_share(*call), ball_search(*call)
        assert search is not None and likely_share(*call) == 0
        return guessed, search.share()

    guessed, left = guessed_and_left(0.05)
    assert guessed < 0.3 and left < 0.2
    guessed, left = guessed_and_left(50.0)
    assert guessed > 0.4 and left > 0.8


@pytest.mark.parametrize(("kind", "upward"), ASKED)
def test_balls_rule_out_most_pairs_of_rows_in_clusters(kind: str, upward: bool) -> None:
    """Rows of twelve scenes; asked for are pairs that no two scenes, or only few, make."""
    thresholds = {"cosine": 0.95, "dot": 40.0, "euclidean": 2.0 if not upward else 10.5}
    random = np.random.default_rng(8)
    centres = random.standard_normal((12, 32))
    blocks = []
    for n, sign in ((300, 1), (2000, -1 if not upward and kind != "euclidean" else 1)):
        vectors = sign * centres[random.integers(0, 12, n)] + 0.02 * random.standard_normal((n, 32))
        blocks.append(Block.of(np.zeros(n), {"id": np.arange(n), "s0": vectors.astype("f4")}))
    pair = Pair(*blocks, (0, 0))
    threshold = thresholds[kind] * (-1 if not upward and kind != "euclidean" else 1)
    where = MEASURES[kind][0] >= threshold if upward else MEASURES[kind][0] <= threshold
    for by in TRIED:
        search = ball_search(pair, "s0", kind, upward, threshold, by)
        assert search is not None and search.share() < 0.25
        found = proposed(search.candidates(pair))
        wanted = set(matches(matcher(where).matches(pair)))
        assert wanted <= found and 0 < len(wanted) <= len(found) < 0.25 * 300 * 2000


@pytest.mark.parametrize("rows", [(90, 700), (700, 90)])
def test_balls_do_not_look_at_stamps_where_all_rows_may_meet_and_only_there(
    rows: tuple[int, int],
) -> None:
    drawn, by = world(rows, 17, seed=4), TRIED[0]
    blocks = [Block.of(block.t, block.columns) for block in (drawn.left, drawn.right)]
    search = ball_search(Pair(*blocks, WINDOW), "s0", "euclidean", False, 3.0, by)
    assert search is not None
    whole, some = Pair(*blocks, (10**9, 10**9)), Pair(*blocks, WINDOW)
    t, u = (block.t for block in blocks)
    everything = proposed(search.candidates(whole))
    kept = {(i, j) for i, j in everything if -WINDOW[1] <= u[j] - t[i] <= WINDOW[0]}
    assert proposed(search.candidates(some)) == kept != everything
    foreign = replace(blocks[0], mask=np.zeros_like(blocks[0].mask))
    assert proposed(search.candidates(Pair(foreign, blocks[1], (10**9, 10**9)))) == set()


def test_more_balls_meet_than_there_is_room_for_at_first() -> None:
    pair, by = world((1000, 2000), 4, seed=6), TRIED[0]
    search = ball_search(pair, "s0", "cosine", True, -1.0, by)
    assert search is not None
    begin, rows = _meeting(search, 0, -(-1000 // by.rows))
    assert len(rows) == begin[-1] == 1000 * len(search.far) > 64 * by.rows * by.cols
    assert (rows.reshape(-1, 1000) == np.arange(1000)).all()
    begin, rows = _meeting(search, 3, 5)
    assert (rows.reshape(-1, 2 * by.rows) == np.arange(3 * by.rows, 5 * by.rows)).all()


def test_balls_go_on_where_there_is_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, room = world((60, 500), 4, seed=3), 2048
    small = tiles.Candidates(np.empty(room, np.int32), np.empty(room, np.int32))
    for by in TRIED[:1]:
        search = ball_search(pair, "s0", "cosine", True, -1.0, by)
        assert search is not None
        monkeypatch.setattr("anabranch.correlation.filters.balls.scratch", lambda: (None, small))
        parts = list(search.candidates(pair))
        assert len(parts) > 3
        everything = set(matches(matcher(ab.cosine("v") >= -1.0).matches(pair)))
        assert proposed(parts) == everything
        assert sum(len(part.left) for part in parts) == len(everything)


def proposed(parts: Any) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for part in parts for i, j in zip(*part, strict=True)}


def test_rows_that_are_all_alike_are_one_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    same = np.tile(np.array([[1.0, 2.0, 3.0]], "f4"), (200, 1))
    block = Block.of(np.zeros(200), {"id": np.arange(200), "s0": same})
    for by in TRIED:
        search = ball_search(Pair(block, block, (0, 0)), "s0", "cosine", True, 1.0, by)
        assert search is not None
        assert len(proposed(search.candidates(Pair(block, block, (0, 0))))) == 200 * 200


def test_balls_are_made_for_blocks_that_are_met_often_and_only_where_they_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    search = ball_search

    def noted(*call: Any) -> Any:
        found = search(*call)
        asked.append(found.share())
        return found

    always(monkeypatch)
    for name, value in {"_ENOUGH_ROWS": 500, "_SEEN_FIRST": 200}.items():
        monkeypatch.setattr(choosing, name, value)
    monkeypatch.setattr(choosing, "ball_search", noted)
    if not available():
        pytest.skip("this processor has no instructions for bytes")
    random, habits = np.random.default_rng(0), Habits()
    for rows, spread in ((random.normal(size=(12, 256)), 0.02), (np.zeros((12, 256)), 1.0)):
        asked.clear()
        stored, fresh = (
            Block.of(
                np.zeros(n),
                {
                    "s0": (rows[np.arange(n) % 12] + spread * random.normal(size=(n, 256))).astype(
                        "f4"
                    )
                },
            )
            for n in (600, 80)
        )
        for _ in range(5):
            list(
                choosing.vector_candidates(
                    Pair(fresh, stored, (0, 0)), "s0", "cosine", True, 0.9, habits
                )
            )
        if spread < 1:
            assert len(asked) == 3 and max(asked) < 0.3
        else:  # a sample has told before any are made
            assert asked == [] and not habits.balls.tries()


def test_a_rehearsal_compiles_what_bytes_and_balls_need(monkeypatch: pytest.MonkeyPatch) -> None:
    if not available():
        pytest.skip("this processor has no instructions for bytes")
    looked: list[str] = []
    for name in ("byte_candidates", "ball_search", "likely_share"):
        real = getattr(rehearsal, name)
        monkeypatch.setattr(
            rehearsal, name, lambda *call, n=name, real=real: (looked.append(n), real(*call))[1]
        )
    rehearsal._by_bytes(pa.float32(), "cosine")
    assert looked == ["byte_candidates", "likely_share", "ball_search"]


@pytest.mark.parametrize(
    ("kind", "triple", "features", "instruction"),
    [
        (Vnni512, "x86_64-unknown-linux-gnu", "+avx512f,+avx512bw,+avx512vnni", "vpdpbusd\t"),
        (Vnni256, "x86_64-unknown-linux-gnu", "+avx2,+avxvnni", "vpdpbusd\t"),
        (Avx2, "x86_64-unknown-linux-gnu", "+avx2", "vpmaddubsw\t"),
        (Neon, "aarch64-unknown-linux-gnu", "+neon,+dotprod", "sdot\t"),
    ],
)
def test_every_processor_gets_its_own_instruction(
    kind: Any, triple: str, features: str, instruction: str
) -> None:
    """Compiled for processors that this one may not be."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        target = binding.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this llvmlite knows no {triple.split('-')[0]}")
    module = ir.Module()
    module.triple = triple
    word = ir.IntType(32).as_pointer()
    outline = ir.FunctionType(ir.IntType(1), [word] * 5 + [ir.IntType(64)])
    function = ir.Function(module, outline, "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    *places, steps = function.args
    builder.ret(dots._Tile(builder, kind, *places).run(steps))
    machine = target.create_target_machine(features=features, opt=3)
    text = machine.emit_assembly(binding.parse_assembly(str(module)))
    sums = kind().rows * kind().cols // dots._LANES[kind]
    assert text.count(instruction) == sums
