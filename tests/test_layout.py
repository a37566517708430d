"""The house keeps its order: imports point one way, pyspark stays in its room, rooms are small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from inspect import isfunction, ismodule, unwrap
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parent.parent / "anabranch"
VERBS = {"correlation", "neighbours", "assembly", "placement"}
SYSTEMS = {"edge", "video"}
BASE = {"flow", "calls", "errors"}

# What each entry of the package may import from the others.
ALLOWED = {
    "errors": set(),
    "calls": {"errors"},
    "flow": {"calls", "errors"},
    "plans": BASE,
    "predicates": BASE | {"plans"},
    **{verb: BASE | {"plans", "predicates"} for verb in VERBS},
    "placement": BASE | {"plans", "predicates", "edge"},  # views that are placed also run
    "edge": BASE | {"predicates"},  # nothing that a device cannot carry
    "video": BASE | {"correlation"},  # topics are groups of pairs
    "testing": BASE | VERBS | SYSTEMS | {"plans", "predicates"},
    "spark": BASE | VERBS | SYSTEMS | {"plans", "predicates"},
    "cli": BASE | VERBS | SYSTEMS | {"plans", "predicates", "spark", "testing", "__init__"},
    "__init__": set(),  # loads public names from one table, when they are asked for
}

# Namespaces that find their own names in the one table, and so may reach any room: nothing else
# does so through the package.
NAMESPACES = {"assembly", "video"}
# Who compares with a class of pyspark that its caller has imported, and imports none itself.
ASKS_FOR_PYSPARK = {"predicates.columns"}

# ---------------------------------------------------------------- reading the sources


def name_of(path: Path) -> str:
    """The dotted name of a module without the package's: ``flow.blocks``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


def named(node: ast.AST) -> Iterator[str]:
    """The dotted names that a node imports, by statement or by string."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports say the whole name"
        if node.module != "anabranch":  # which every import of a part of it loads
            yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
        "import_module",
        "__import__",
    ):
        given = node.args[0]
        yield given.value if isinstance(given, ast.Constant) else "anabranch.?"


@cache
def imports(name: str) -> frozenset[str]:
    """All that a module imports, wherever in it that is written."""
    return frozenset(text for node in ast.walk(tree(name)) for text in named(node))


@cache
def own_imports(name: str) -> frozenset[str]:
    """The modules of the package that a module imports; the package itself is ``__init__``."""
    found = set()
    for text in imports(name):
        package, _, inside = text.partition(".")
        if package == "anabranch":
            found.add(inside if inside in MODULES else inside.rpartition(".")[0] or "__init__")
            assert "?" not in inside, f"{name} imports what cannot be read from it"
    without = {name, "__init__"} if name in NAMESPACES else {name}
    return frozenset(found & MODULES.keys() - without)


def room(name: str) -> str:
    return name.split(".")[0]


PLAIN = [name for name in MODULES if name != "__init__"]


# ---------------------------------------------------------------- which way imports point


def test_imports_point_one_way() -> None:
    wrong = {
        (name, other)
        for name in PLAIN
        for other in own_imports(name)
        if room(other) != room(name) and room(other) not in ALLOWED[room(name)]
    }
    assert wrong == set()


@cache
def reach(name: str) -> frozenset[str]:
    """The modules of the package that a module imports, also through others."""
    found: set[str] = set()
    ahead = set(own_imports(name))
    while ahead:
        found |= ahead
        # What the package reaches by its table is reached by no import.
        known = ahead - {"__init__"}
        ahead = {other for one in known for other in own_imports(one)} - found
    return frozenset(found)


def test_no_module_imports_itself_through_others() -> None:
    assert {name for name in PLAIN if name in reach(name)} == set()


@cache
def users_of_pyspark() -> frozenset[str]:
    return frozenset(
        name for name in MODULES if any(room(text) == "pyspark" for text in imports(name))
    )


def test_pyspark_is_imported_only_in_the_spark_folder() -> None:
    assert len(users_of_pyspark()) > 10
    assert {name for name in users_of_pyspark() if room(name) != "spark"} == set()


def test_nobody_else_asks_for_pyspark_by_its_name() -> None:
    def asks(name: str) -> bool:
        constants = (node for node in ast.walk(tree(name)) if isinstance(node, ast.Constant))
        return any(re.fullmatch(r"pyspark(\.\w+)*", str(node.value)) for node in constants)

    assert {name for name in MODULES if room(name) != "spark" and asks(name)} == ASKS_FOR_PYSPARK


def test_two_namespaces_alone_reach_rooms_through_the_package() -> None:
    through = {name for name in PLAIN if {"anabranch", "anabranch.?"} & imports(name)}
    assert through == NAMESPACES
    for text in ("import anabranch", "import anabranch as ab"):
        assert [*named(ast.parse(text).body[0])] == ["anabranch"]


# Rooms of the folder that have modules which need no pyspark, and why these stay.
READ_TOGETHER = {
    "spark.dashboard": "the page and what feeds it: only who listens and samples needs a session",
    "spark.demo": "what is sent, shown and judged: the rows are made without a session",
}


def test_what_needs_no_pyspark_lies_in_another_room() -> None:
    def pure(name: str) -> bool:
        return not {name, *reach(name)} & users_of_pyspark()

    inside = [name for name in PLAIN if room(name) == "spark" and not is_table(name)]
    alone = {name for name in inside if pure(name)}
    assert {name for name in alone if name.rpartition(".")[0] not in READ_TOGETHER} == set()
    for folder in READ_TOGETHER:  # one whose modules are all alike needs no reason
        members = {name for name in inside if name.rpartition(".")[0] == folder}
        assert members & alone and members - alone


def is_table(name: str) -> bool:
    """Whether a module is a folder's own, and imports nothing."""
    return MODULES[name].name == "__init__.py" and not imports(name)


def test_every_kernel_takes_the_compiler_that_keeps_its_code() -> None:
    users = {name for name in MODULES if imports(name) & {"numba", "numba.njit"}}
    assert users == {"flow.process"}


def test_what_is_written_in_strings_and_functions_counts() -> None:
    for text in ('import_module("anabranch.x")', "def f():\n    import anabranch.x"):
        assert {found for node in ast.walk(ast.parse(text)) for found in named(node)} == {
            "anabranch.x"
        }


# ---------------------------------------------------------------- what an import brings along

LIGHT = ["calls", "errors", "predicates", "plans.plan"]


@pytest.mark.parametrize("name", LIGHT)
def test_a_pure_module_brings_no_compiler_along(name: str) -> None:
    heavy = "{'numba', 'scipy', 'pyarrow', 'pandas', 'pyspark', 'ot', 'rich', 'typer'}"
    code = f"import sys, anabranch.{name}; print(*({heavy} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_device_carries_no_more_than_it_must() -> None:
    names = ", ".join(f"anabranch.{name}" for name in MODULES if room(name) == "edge")
    heavy = "{'numba', 'scipy', 'pyarrow', 'pandas', 'pyspark'}"
    code = f"""import sys, {names}
with open("/proc/self/status") as status:
    resident = next(line for line in status if line.startswith("VmRSS"))
print(int(resident.split()[1]) // 1024, *({heavy} & sys.modules.keys()))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    megabytes, *found = run.stdout.split()
    assert found == [] and int(megabytes) <= 45


def test_importing_anabranch_does_not_import_spark() -> None:
    code = "import sys, anabranch.testing, anabranch.cli.main; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists() -> None:
    import anabranch as ab

    assert [name for name in ab.__all__ if not hasattr(ab, name)] == []


# ---------------------------------------------------------------- sizes


def test_the_top_level_is_seen_at_a_glance() -> None:
    entries = {path.name for path in PACKAGE.iterdir()} - {"__pycache__", "py.typed"}
    assert len(entries) <= 15
    assert {room(name) for name in MODULES} == ALLOWED.keys()


def test_files_are_short() -> None:
    long = {name for name, path in MODULES.items() if len(path.read_text().splitlines()) > 400}
    assert long == set()


Function = ast.FunctionDef | ast.AsyncFunctionDef


def inside(node: ast.AST, path: str) -> Iterator[tuple[str, Function]]:
    """The functions in a node, by their whole names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            name = f"{path}.{child.name}"
            if isinstance(child, Function):
                yield name, child
            yield from inside(child, name)
        else:
            yield from inside(child, path)


@cache
def functions(compiled: bool = False) -> dict[str, Function]:
    return {
        name: node
        for module in MODULES
        for name, node in inside(tree(module), module)
        if compiled == any("njit" in ast.unparse(it) for it in node.decorator_list)
    }


def lines(node: Function) -> int:
    """Without the docstring, which may be as long as it must."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or 0) - first.lineno + 1


def count(node: Function) -> int:
    """Parameters."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    # What a kernel is compiled for is given by name, and is no parameter when it runs.
    fixed = {arg.arg for arg in given if ast.unparse(arg).endswith(": tl.constexpr")}
    return len([arg for arg in given if arg.arg not in {"self", "cls"} | fixed])


def test_functions_are_short() -> None:
    assert {name for name, node in functions().items() if lines(node) > 60} == set()


def test_compiled_functions_are_stages_over_tables() -> None:
    compiled = functions(compiled=True)
    assert len(compiled) > 100
    assert {name for name, node in compiled.items() if lines(node) > 100} == set()
    assert {name for name, node in compiled.items() if count(node) > 10} == set()


# Letters that need no legend: places, numbers of things, a time, a dimension, two coordinates.
PLAIN_LETTERS = set("ijkntdxy_")
# Compiled functions that have others without a legend.
UNEXPLAINED = {"correlation.emd.bounds.compact", "correlation.emd.bounds.mended"}


def explained(text: str) -> set[str]:
    """The letters that a text names, but for an article: that one is in backticks or in a list.

    >>> sorted(explained("Letters: a an axis, `q` a query"))
    ['a', 'q']
    """
    found = set(re.findall(r"(?<![\w'.])([A-Za-z])(?![\w'])", text)) - {"a", "A", "I"}
    found |= set(re.findall(r"`([aAI])`", text))
    return found | ({"a"} if re.search(r"\ba(?:, [b-z]\b| and b\b| an? )", text) else set())


def test_letters_of_long_compiled_functions_have_a_legend() -> None:
    """At the top of the module, in a paragraph that begins with "Letters", or in the function."""
    without = set()
    for name, node in functions(compiled=True).items():
        if lines(node) <= 20:
            continue
        used = {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}
        used |= {it.arg for it in ast.walk(node) if isinstance(it, ast.arg)}
        module = max((it for it in MODULES if name.startswith(f"{it}.")), key=len)
        top = (ast.get_docstring(tree(module)) or "").split("\n\n")
        legend = " ".join(part for part in top if part.startswith("Letters"))
        own = re.sub(r"(?<!`)\ba\b(?!`)", "", ast.get_docstring(node) or "")
        letters = {it for it in used if len(it) == 1} - PLAIN_LETTERS
        if letters - explained(legend) - explained(own):
            without.add(name)
    assert without == UNEXPLAINED


def whole_names(found: Iterable[Any]) -> set[str]:
    own = (unwrap(it) for it in found if isfunction(it))
    return {f"{it.__module__}.{it.__qualname__}".removeprefix("anabranch.") for it in own}


def commands() -> set[str]:
    """What the command line calls, with an option for each parameter."""
    from anabranch.cli.main import app

    groups = [app]
    for group in groups:
        groups += [it.typer_instance for it in group.registered_groups if it.typer_instance]
    return whole_names(it.callback for group in groups for it in group.registered_commands)


def public_functions() -> set[str]:
    """The verbs and what namespaces hold, whose options are their users' and given by name."""
    import anabranch as ab

    spaces = {name: getattr(ab, name) for name in ab.__all__ if ismodule(getattr(ab, name))}
    found = [getattr(ab, name) for name in ab.__all__ if name not in spaces]
    found += [getattr(space, name) for space in spaces.values() for name in space.__all__]
    return whole_names(found)


def test_functions_take_few_parameters() -> None:
    public = public_functions()
    assert {"spark.correlate.correlate", "assembly.close.learned"} <= public

    many = {name for name, node in functions().items() if count(node) > 8}
    assert many - public - commands() == set()
