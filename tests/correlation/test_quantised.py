"""Products of bytes: the same pairs as by the float32 product, whatever the processor offers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import binding, ir

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.filters import dots, quantised
from anabranch.correlation.filters.dots import Avx2, Neon, Vnni256, Vnni512, available
from anabranch.correlation.filters.quantised import Habit, byte_candidates, work_of
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block

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
    monkeypatch.setattr(quantised, "_FEWEST", 1)
    monkeypatch.setattr(quantised, "_TOO_MANY", 2.0)
    measure, thresholds = MEASURES[kind]
    shapes = [((1, 1), 1), ((33, 70), 5), ((300, 257), 64), ((150, 90), 130)]
    for seed, ((rows, d), threshold) in enumerate((s, t) for s in shapes for t in thresholds):
        pair = world(rows, d, seed, spread=3.0 * (seed % 2))
        where = measure >= threshold if upward else measure <= threshold
        monkeypatch.setattr(quantised, "available", tuple)
        expected = matches(matcher(where).matches(pair))
        for by in TRIED:
            monkeypatch.setattr(quantised, "available", lambda by=by: (by,))
            assert matches(matcher(where).matches(pair)) == expected


def test_few_pairs_are_proposed_that_do_not_match() -> None:
    pair = world((400, 500), 64, seed=5)
    for by in TRIED:
        work = work_of(pair, "s0", "cosine", True, 0.9, by)
        assert work is not None
        proposed = sum(len(found.left) for found in byte_candidates(pair, work))
        found = sum(len(part.left) for part in matcher(ab.cosine("v") >= 0.9).matches(pair))
        assert found <= proposed <= 1.3 * found + 20


def test_where_nearly_all_is_proposed_the_product_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    product = quantised.product_candidates
    monkeypatch.setattr(quantised, "_FEWEST", 1)
    monkeypatch.setattr(
        quantised, "product_candidates", lambda *call: (asked.append(call[1]), product(*call))[1]
    )
    pair, dense = world((200, 200), 8, seed=1), matcher(ab.cosine("v") >= -0.99)
    sparse = matcher(ab.cosine("v") >= 1.0)
    assert sum(len(part.left) for part in dense.matches(pair)) > 1000
    assert asked == ["s0"]
    assert matches(sparse.matches(pair)) == {} and len(asked) == 2 - bool(available())


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


def test_a_habit_tries_again() -> None:
    habit = Habit()
    assert habit.tries_bytes() and habit.note(1, 1000) and habit.tries_bytes()
    assert not habit.note(100, 1000)
    assert [habit.tries_bytes() for _ in range(33)].count(True) == 1


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
