"""Conditions given as text, which whoever evaluates them would obey too far.

pandas evaluates such text with Python's own means, and would call what it is told to call. So it is
read here first: columns, constants, comparisons and arithmetic may be in it, and nothing else.
Spark's SQL calls methods of Java classes, reads tables and files in sub-queries, opens files that
functions name, and puts settings and variables of the environment in place of ``${...}``; a text
that could do so is refused before Spark parses it.
"""

from __future__ import annotations

import ast
import re
from typing import Any

__all__ = ["evaluate", "harmless"]

_ALLOWED = (
    ast.Expression,
    ast.Compare,
    ast.cmpop,
    ast.BoolOp,
    ast.boolop,
    ast.BinOp,
    ast.operator,
    ast.UnaryOp,
    ast.unaryop,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
)


# Words and signs of SQL that Python spells otherwise; texts and quoted names are left as they are.
_SQL = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`|<>|(?<![<>=!])=(?!=)|\b(?:and|or|not|in|true|false)\b""", re.I
)
_PYTHON = {"<>": "!=", "=": "==", "TRUE": "True", "FALSE": "False"} | {
    word.upper(): word for word in ("and", "or", "not", "in")
}


# Words are refused wherever they stand, within quotes and comments too: so no way to quote or to
# escape hides one. IDENTIFIER(...) makes a name of any text, USING names a program to run, and a
# sub-query is a bracket followed by one of five words. "${" begins a variable, which Spark puts in
# before it parses, be it the half of a word. Functions of XML fetch the DTD or the schema that
# their texts or options name, those of Avro and Protobuf a schema; the last ones are of Databricks.
# Case is ignored as Spark's lexer ignores it, which takes the long s and the dotless i for S and I.
_REACHES_OUT = re.compile(
    r"\$\{"
    r"|(?<!\w)(?:java_method|reflect|try_reflect|identifier|using"
    r"|xpath(?:_\w+)?|(?:from|to|schema_of)_(?:xml|avro|protobuf)"
    r"|secret|try_secret|http_request|ai_query)(?!\w)"
    r"|\(\s*(?:--|/\*|(?:select|with|table|values|from)(?!\w))",
    re.I,
)


def evaluate(frame: Any, text: str) -> Any:
    """What a condition says of each row of a pandas table.

    It may be written as in SQL or as in Python: ``status = 'done' AND n <> 3``.

    Raises
    ------
    ValueError
        If it holds more than columns, constants, comparisons and arithmetic.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"count": [1, 3], "the end": [True, False]})
    >>> evaluate(frame, "count >= 3 or `the end`").tolist()
    [True, True]
    >>> evaluate(frame, "count <> 3 AND NOT (count = 5)").tolist()
    [True, False]
    >>> evaluate(frame, "count.to_csv('x')")
    Traceback (most recent call last):
        ...
    ValueError: it may hold columns, constants, comparisons and arithmetic only; for more, pass a \
function
    """
    text = _SQL.sub(lambda found: _PYTHON.get(found[0].upper(), found[0]), text)
    quoted = "`" in text
    # A name in backticks and a text in quotes could each hide the other's end.
    mixed = quoted and ("'" in text or '"' in text)
    plain = re.sub(r"`[^`]*`", "column", text)
    try:
        nodes = list(ast.walk(ast.parse(plain.strip(), mode="eval")))
    except SyntaxError as error:
        raise ValueError(f"it is no condition ({error.msg})") from None
    strange = [node for node in nodes if not isinstance(node, _ALLOWED)]
    if mixed or strange or any(isinstance(node, ast.MatMult) for node in nodes):
        raise ValueError(
            "it may hold columns, constants, comparisons and arithmetic only; for more, pass a "
            "function"
        )
    return frame.eval(text, local_dict={}, global_dict={})


def harmless(text: str, name: str) -> str:
    """A condition for Spark that reads the row and what is registered, and nothing beyond.

    It holds no sub-query and no variable, calls no method of a Java class, and opens no file.

    Raises
    ------
    ValueError
        If it could; it names the word at fault.

    Examples
    --------
    >>> harmless("exists(items, x -> x.last) AND count >= 3", "complete")
    'exists(items, x -> x.last) AND count >= 3'
    >>> harmless("id IN (SELECT 1)", "complete")
    Traceback (most recent call last):
        ...
    ValueError: complete: 'id IN (SELECT 1)' holds '(SELECT': text may hold no sub-query and no \
variable, call no Java and open no file; for more, pass a Column or a function of the DataFrame
    >>> harmless("status = '${env:TOKEN}'", "complete")
    Traceback (most recent call last):
        ...
    ValueError: complete: "status = '${env:TOKEN}'" holds '${': text may hold no sub-query and no \
variable, call no Java and open no file; for more, pass a Column or a function of the DataFrame
    """
    found = _REACHES_OUT.search(text)
    if found is None:
        return text
    raise ValueError(
        f"{name}: {text!r} holds {found[0]!r}: text may hold no sub-query and no variable, call no "
        "Java and open no file; for more, pass a Column or a function of the DataFrame"
    )
