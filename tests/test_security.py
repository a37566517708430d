"""What SECURITY.md says of files and texts that others may write."""

from __future__ import annotations

import ast
import json
import re
import time
from pathlib import Path

import pandas as pd
import pytest

import anabranch as ab
from anabranch.assembly.fitting.conditions import evaluate, harmless
from anabranch.errors import StateMismatch
from anabranch.flow.container import pack, unpack
from anabranch.plans.log import PlanReader
from tests.test_layout import MODULES, imports, tree

UNSAFE_MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "yaml", "runpy"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "loads_pickle", "read_pickle"}
# `check_plan` copies plans by pickle as Spark does, in memory; `evaluate` reads its text first; the
# weights of an installed package are read by an unpickler that makes tensors and nothing else; a
# worker travels inside the pickle of the processor that Spark itself sends and reads.
KNOWN = {
    ("testing.plans", "pickle"),
    ("assembly.fitting.conditions", "eval"),
    ("video.lite", "pickle"),
    ("spark.processor", "pickle"),
}


def test_no_module_reads_pickles_or_evaluates_text() -> None:
    found = {(name, top) for name in MODULES for top in imports(name) if top in UNSAFE_MODULES}
    for name in MODULES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).split(".")[-1]
                if called in UNSAFE_CALLS and not ast.unparse(node.func).startswith("re."):
                    found.add((name, called))
                if any(word.arg == "allow_pickle" for word in node.keywords):
                    found.add((name, "allow_pickle"))
    assert found == KNOWN


def test_the_page_lists_the_same_exceptions() -> None:
    page = (Path(__file__).parent.parent / "SECURITY.md").read_text()
    listed = re.findall(r"^\| `([\w.]+)` \| `(\w+)` \|", page, re.M)
    assert sorted(listed) == sorted(KNOWN)


ATTACKS = [
    "count.to_csv('{}')",
    "@pd.io.common.os.system('touch {}')",
    "__import__('os').system('touch {}')",
    "count.__class__.__mro__",
    "count @ count",
    "[x for x in count]",
    "`'` + __import__('os').system('touch {}') + `'`",
    "'`' == count.to_csv('{}') or '`'",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_condition_given_as_text_calls_nothing(tmp_path: Path, attack: str) -> None:
    frame = pd.DataFrame({"count": [1, 2], "'": [1, 2]})
    victim = tmp_path / "victim"
    with pytest.raises(ValueError, match=r"may hold columns|no condition"):
        evaluate(frame, attack.format(victim))
    assert not victim.exists()


def test_conditions_that_people_write_still_work() -> None:
    frame = pd.DataFrame({"count": [1, 3], "b c": [5, 6], "kind": ["x", "y"]})
    for text in ("count >= 3", "`b c` > 5 and count == 3", "kind == 'y'", "not count < 3"):
        assert evaluate(frame, text).tolist() == [False, True], text
    assert evaluate(frame, "kind in ['y', 'z'] and -count < 0").tolist() == [False, True]


JAVA = "('java.lang.System', 'setProperty', 'x', 'y') is not null"
# Spark reads these as they stand, the odd letters included.
SQL_ATTACKS = [
    *(f"{name}{JAVA}" for name in ("java_method", "reflect", "TRY_REFLECT", "`java_method`")),
    *(
        f"{name}{JAVA}"
        for name in ("java_method /* a */ ", "builtin.reflect", "system.builtin.reflect")
    ),
    *(f"{word}('java_' || 'method'){JAVA}" for word in ("IDENTIFIER", "\u0131dentifier")),
    *(
        f"id in ({word} 1)"
        for word in ("select", "VALUES", "\u017felect", "\xa0select", "\n select")
    ),
    "id in (table t)",
    "exists (select 1)",
    "((select 1)) = 1",
    "id in ('--', (select 1))",
    "(/* x */ select 1) = 1",
    "(-- x\nselect 1) = 1",
    "(with a as (select 1) select * from a) = 1",
    "(from range(3) |> aggregate max(id)) = 1",
    "(map id using 'cat' from range(3)) is null",
]


@pytest.mark.parametrize("attack", SQL_ATTACKS)
def test_a_condition_for_spark_calls_no_java_and_reads_no_other_table(attack: str) -> None:
    with pytest.raises(ValueError, match=r"^complete: .*may hold no sub-query and call no Java"):
        harmless(attack, "complete")


def test_conditions_for_spark_that_people_write_still_work() -> None:
    for text in (
        "exists(items, x -> x.last) and (count >= 3 or status in ('with', 'select'))",
        "extract(hour from ts) > 3 and reduce(xs, 0, (a, b) -> a + b) > 1 -- late",
        "reflected = 1 and reflectance > 0 and user_identifier is distinct from 'x'",
        "size(map_values(m)) > 0 and (values_of > 1) and (selected)",
    ):
        assert harmless(text, "complete") == text


BAD_ENTRIES = {
    "no JSON": lambda entry: "{",
    "a list": lambda entry: "[]",
    "another kind of plan": lambda entry: json.dumps(
        {**entry, "plan": {**entry["plan"], "plan": "os.system"}}
    ),
    "a number as text": lambda entry: json.dumps({**entry, "epoch": "zero"}),
    "no plan": lambda entry: json.dumps({k: v for k, v in entry.items() if k != "plan"}),
    "another number": lambda entry: json.dumps({**entry, "number": 7}),
}


@pytest.mark.parametrize("what", BAD_ENTRIES)
def test_a_wrong_entry_in_a_control_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """At once: files appear whole, so that there is nothing to wait for."""
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits for it to become right"))
    log = ab.plans.PlanLog(str(tmp_path))
    log.begin(ab.broadcast(2))
    (path,) = [p for p in tmp_path.rglob("00000000.json")]
    path.write_text(BAD_ENTRIES[what](json.loads(path.read_text())))
    with pytest.raises(StateMismatch, match="cannot be read"):
        PlanReader(str(tmp_path)).live_at(0, ab.broadcast(2))


@pytest.mark.parametrize("data", [b"", b"\x80\x04.", b"anabr\x00", pack({}, {"a": 1})[:-40]])
def test_bytes_that_are_no_state_are_refused(data: bytes) -> None:
    with pytest.raises((StateMismatch, ValueError)):
        unpack(data)
