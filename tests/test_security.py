"""What SECURITY.md says of files and texts that others may write."""

from __future__ import annotations

import ast
import json
import math
import re
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import anabranch as ab
from anabranch.calls.conditions import evaluate, harmless
from anabranch.errors import StateMismatch
from anabranch.flow.container import pack, unpack
from anabranch.flow.numbered import UNREADABLE
from anabranch.plans.log import PlanReader, User
from anabranch.plans.plan import plan_from_dict
from tests.test_layout import MODULES, imports, tree

UNSAFE_MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "yaml", "runpy"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "loads_pickle", "read_pickle"}
# `check_plan` copies plans by pickle as Spark does, in memory; `evaluate` reads its text first; the
# weights of an installed package are read by an unpickler that makes tensors and nothing else; a
# worker travels inside the pickle of the processor that Spark itself sends and reads.
KNOWN = {
    ("testing.plans", "pickle"),
    ("calls.conditions", "eval"),
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
    # Spark puts variables in before it parses: what they hold is read, or makes a forbidden word.
    "status = '${env:HOME}'",
    "id = ${system:user.home}",
    "'${spark.app.name}' = 'x' -- late",
    f"java_${{env:NOT_SET_ANYWHERE}}method{JAVA}",
    # A DTD is fetched from wherever the text says, and comes back as the answer.
    *(
        f"""{name}('<!DOCTYPE a SYSTEM "file:///x"><a>&x;</a>', 'a') is null"""
        for name in ("xpath", "XPath_String", "`xpath_int`", "builtin.xpath_boolean")
    ),
    *(
        f"{name}(text, 'b string', map('rowValidationXSDPath', '/x')) is null"
        for name in ("from_xml", "schema_of_xml", "to_xml")
    ),
    *(
        f"{name}(data, 'Message', '/x.desc') is null"
        for name in ("from_protobuf", "to_protobuf", "from_avro", "to_avro", "schema_of_avro")
    ),
    *(
        f"{name}('a', 'b') = 'x'"
        for name in ("secret", "try_secret", "http_request", "ai_query /* a */ ")
    ),
]


@pytest.mark.parametrize("attack", SQL_ATTACKS)
def test_a_condition_for_spark_reads_nothing_but_its_row(attack: str) -> None:
    with pytest.raises(ValueError, match=r"^complete: .*no variable, call no Java and open no"):
        harmless(attack, "complete")


OPENING = re.compile(r"\.xml\.|Xml|Reflect|Avro|Protobuf")  # in names of Spark's classes


def test_every_function_of_spark_that_opens_files_or_calls_java_is_refused(spark: Any) -> None:
    """By the classes that Spark itself names, those of a newer one too."""
    names = [row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    classes = {}
    for name in filter(str.isidentifier, names):
        told = [row[0] for row in spark.sql(f"DESCRIBE FUNCTION `{name}`").collect()]
        classes[name] = next((line for line in told if line.startswith("Class: ")), "")
    opening = [name for name, of in classes.items() if OPENING.search(of)]
    assert {"java_method", "xpath_string", "from_xml", "from_protobuf"} <= set(opening)
    for name in opening:
        with pytest.raises(ValueError, match="may hold no"):
            harmless(f"{name}(a) is null", "complete")


def test_a_variable_in_a_condition_is_refused_before_spark_puts_it_in(spark: Any) -> None:
    from anabranch.spark.frames import condition

    rows = spark.range(1)
    with pytest.raises(ValueError, match="no variable"):
        condition(rows, "'${spark.app.name}' != ''")
    own = condition(rows, lambda frame: frame["id"] == 0)
    assert rows.filter(own).count() == 1


def test_conditions_for_spark_that_people_write_still_work() -> None:
    for text in (
        "exists(items, x -> x.last) and (count >= 3 or status in ('with', 'select'))",
        "extract(hour from ts) > 3 and reduce(xs, 0, (a, b) -> a + b) > 1 -- late",
        "reflected = 1 and reflectance > 0 and user_identifier is distinct from 'x'",
        "size(map_values(m)) > 0 and (values_of > 1) and (selected)",
        "price > '$5' and secrets = 0 and my_xpath = 1 and from_json(text, 'a int').a > 1",
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
    "deep": lambda entry: "[" * 100_000,
    "a negative number": lambda entry: json.dumps({**entry, "first": -1}),
    "a huge number": lambda entry: json.dumps({**entry, "epoch": 10**30, "live": [10**30]}),
    "live numbers that are none": lambda entry: json.dumps({**entry, "live": 0}),
    "an unknown live plan": lambda entry: json.dumps({**entry, "live": [0, 99]}),
    "a mark beyond all times": lambda entry: json.dumps({**entry, "marks": {"0": 2**63}}),
    "a cause as text": lambda entry: json.dumps({**entry, "cause": "by hand"}),
    "figures as text": lambda entry: json.dumps({**entry, "cause": {"figures": "many"}}),
    "a time as number": lambda entry: json.dumps({**entry, "written": 0}),
    "no time": lambda entry: json.dumps({**entry, "written": "soon"}),
    "a time without a zone": lambda entry: json.dumps({**entry, "written": "2026-03-01T10:00:00"}),
}
BAD_PLANS: list[tuple[ab.plans.Plan, dict[str, object]]] = [
    *((ab.broadcast(2), {"workers": workers}) for workers in (-1, 0, 10**9, 2.5, True, "2", None)),
    *((ab.broadcast(2), {"weights": wrong}) for wrong in ([math.nan, 1], [1], [0, 0], 5)),
    (ab.broadcast(2), {"side": "top"}),
    (ab.broadcast(2), {"_table": [0]}),
    (ab.keyed(2), {"workers": 10**9}),
    (ab.grid(2, 2), {"rows": 10**9}),
    (ab.grid(2, 2), {"weights": [[math.nan, 1], [1, 1]]}),
    *((ab.segments(2), {"length": length}) for length in (0, -1, 10**30, "5 s", None, True)),
    (ab.triangle(2), {"groups": 10**6}),
    *((ab.ranges(2), {"ranges": ranges}) for ranges in (0, 10**9)),
    *((ab.ranges(2), {"cuts": cuts}) for cuts in ([1, 2], [-1], [99], ["a"], 5)),
    *((ab.ranges(2), {"hot": hot}) for hot in ([[99, [0]]], [[0, [2]]], [[0, []]], [0])),
    *((ab.ranges(2), {name: math.nan}) for name in ("low", "high", "reach")),
    (ab.ranges(2), {"slot": 5}),
]
BAD_FILES = {
    "owner.json": ["[]", "{}", "5", '{"query": 5, "operator": ""}', "{"],
    "refused/00000000.json": ["[]", '{"asked": "x"}', "5", '{"asked": 1, "cause": ""}'],
}


@pytest.mark.parametrize("what", BAD_ENTRIES)
def test_a_wrong_entry_in_a_control_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """At once: files appear whole, so that there is nothing to wait for."""
    mine, sleep = threading.get_ident(), time.sleep

    def refuse(seconds: float) -> None:
        if threading.get_ident() == mine:  # other threads of this process may wait
            pytest.fail("waits for it to become right")
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", refuse)
    log = ab.plans.PlanLog(str(tmp_path))
    log.begin(ab.broadcast(2))
    (path,) = [p for p in tmp_path.rglob("00000000.json")]
    path.write_text(BAD_ENTRIES[what](json.loads(path.read_text())))
    with pytest.raises(StateMismatch, match="cannot be read"):
        PlanReader(str(tmp_path)).live_at(0, ab.broadcast(2))


@pytest.mark.parametrize(("plan", "wrong"), BAD_PLANS)
def test_a_plan_that_no_call_can_make_is_refused(
    plan: ab.plans.Plan, wrong: dict[str, object]
) -> None:
    assert plan_from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    with pytest.raises(UNREADABLE):
        plan_from_dict(json.loads(json.dumps({**plan.to_dict(), **wrong})))


@pytest.mark.parametrize(
    ("name", "content"), [(name, text) for name, texts in BAD_FILES.items() for text in texts]
)
def test_a_wrong_note_in_a_control_directory_is_refused(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    log = ab.plans.PlanLog(str(tmp_path))
    looks = [log.refused]
    if name == "owner.json":
        looks = [log.owner, lambda: log.check_owner(User("query"))]
    for look in looks:
        with pytest.raises(StateMismatch, match=f"{name} in .* cannot be read"):
            look()


@pytest.mark.parametrize("data", [b"", b"\x80\x04.", b"anabr\x00", pack({}, {"a": 1})[:-40]])
def test_bytes_that_are_no_state_are_refused(data: bytes) -> None:
    with pytest.raises((StateMismatch, ValueError)):
        unpack(data)
