"""Rules about Python code. Each yields one line a breach: where, what, and what to do instead."""

import ast
import re
import sys
from collections.abc import Iterator

from tests.house.sources import Source

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_LOOP_LINES = 150
LOOP = "services/agent_runner/loop.py"

# Names that say nothing about what is inside, so that everything ends up inside.
VAGUE_WORDS = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
# What all messages, and all tools, have in common: there `base` says exactly what it is.
BASES = {"shared/contracts/base.py", "services/agent_runner/tools/base.py"}

# One statement each, without values of ours in its text, that belongs to no query file: locks and probes.
SQL_IN_PYTHON = {
    "shared/db/pool.py",  # is the database migrated?
    "shared/db/migrate.py",  # the migrators' lock
    "shared/leases.py",  # the owner's lock
    "shared/service.py",  # does the database answer?
}

_SQL = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE \w+|DELETE FROM|WITH \w+ AS)\b")
_NOQA = re.compile(r"#\s*noqa\b(?P<codes>:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?(?P<reason>.*)")
_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore")
_EVENT = re.compile(r"[a-z_]+(\.[a-z_]+)+")
_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
_LONGEST_SLEEP = 0.5  # seconds; a poll for a condition may pause for less


def file_is_short(source: Source) -> Iterator[str]:
    limit = MAX_LOOP_LINES if source.path == LOOP else MAX_FILE_LINES
    if len(source.lines) > limit:
        yield f"{source.path} has {len(source.lines)} lines, {limit} are allowed: move one of its jobs into a file of its own"


def functions_are_short(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{source.at(node)}: {node.name}() has {lines} lines, {MAX_FUNCTION_LINES} are allowed"


def name_says_something(source: Source) -> Iterator[str]:
    if source.path in BASES:
        return
    for part in source.path.removesuffix(".py").split("/"):
        if part == "base" or VAGUE_WORDS & set(part.lower().split("_")):
            yield f"{source.path}: {part!r} says nothing; name it after what it does"


def types_are_not_ignored(source: Source) -> Iterator[str]:
    for number, comment in source.comments():
        if _TYPE_IGNORE.search(comment):
            yield f"{source.path}:{number}: no `type: ignore` here; narrow the type, or give the library a stub"


def exceptions_have_reasons(source: Source) -> Iterator[str]:
    for number, comment in source.comments():
        noqa = _NOQA.search(comment)
        if noqa and noqa["codes"] is None:
            yield f"{source.path}:{number}: `noqa` without the rule that it switches off"
        elif noqa and not re.search(r"[a-z]{2}", noqa["reason"]):
            yield f"{source.path}:{number}: `noqa` without a reason behind it"


def sql_is_not_built(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.expr) and _builds_sql(node):
            yield f"{source.at(node)}: SQL put together from strings; write the statement into queries.sql and pass values as parameters"


def sql_is_in_query_files(source: Source) -> Iterator[str]:
    docstrings = {
        id(node.value)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(source.tree):
        if _is_sql(node) and id(node) not in docstrings and source.path not in SQL_IN_PYTHON:
            assert isinstance(node, ast.expr)
            yield f"{source.at(node)}: SQL in Python; write it into the queries.sql beside this file"


def _is_sql(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _SQL.match(node.value) is not None


def _is_statement(node: ast.AST) -> bool:
    """A literal statement, one of a query file, or what is built from one."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id == "SQL"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_statement(node.func.value)
    return _is_sql(node)


def _builds_sql(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr(values=[first, _, *_]):
            return _is_statement(first.value if isinstance(first, ast.FormattedValue) else first)
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod()):
            return _is_statement(left)
        case ast.Call(func=ast.Attribute(value=value, attr="format" | "format_map" | "replace" | "join")):
            return _is_statement(value)
        case _:
            return False


def nothing_is_printed(source: Source) -> Iterator[str]:
    for call in source.calls():
        if isinstance(call.func, ast.Name) and call.func.id == "print":
            yield f"{source.at(call)}: print(); log an event instead"


def log_events_are_words(source: Source) -> Iterator[str]:
    for call in source.calls():
        match call.func:
            case ast.Attribute(value=ast.Name(id="log" | "logger"), attr=method) if method in _LOG_METHODS:
                if not call.args or not _is_event(call.args[0], source):
                    yield f"{source.at(call)}: an event is a literal like 'run.started', so that it can be searched for"


def _is_event(node: ast.expr, source: Source) -> bool:
    """A literal, a choice between literals, or a variable that is only ever one of these."""
    match node:
        case ast.Constant(value=str(text)):
            return _EVENT.fullmatch(text) is not None
        case ast.IfExp(body=body, orelse=orelse):
            return _is_event(body, source) and _is_event(orelse, source)
        case ast.Name(id=name):
            values = _assigned(name, source)
            return bool(values) and all(
                not isinstance(value, ast.Name) and _is_event(value, source) for value in values
            )
        case _:
            return False


def _assigned(name: str, source: Source) -> list[ast.expr]:
    return [
        node.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]


def tests_wait_for_conditions(source: Source) -> Iterator[str]:
    for call in source.calls():
        match call.func:
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield f"{source.at(call)}: time.sleep(); wait for a condition with tests.support.waiting"
            case ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep") if not _is_short(call):
                yield f"{source.at(call)}: asyncio.sleep(); wait for a condition with tests.support.waiting"


def _is_short(call: ast.Call) -> bool:
    match call.args:
        case [ast.Constant(value=int() | float() as seconds)]:
            return seconds < _LONGEST_SLEEP
        case _:
            return False


def contracts_know_only_pydantic(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module=module, level=level):
                modules = ["." * level + (module or "")]
            case _:
                continue
        for module in modules:
            if not module.startswith("shared.contracts.") and module.split(".")[0] not in {
                "pydantic",
                *sys.stdlib_module_names,
            }:
                yield f"{source.path}:{node.lineno}: contracts know pydantic and each other, not {module!r}"
