"""Rules about files and about how modules hang together."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.house.sources import Source

# Modules of shared that nobody imports twice, and why they are there all the same.
NOT_IMPORTED_TWICE = {
    "shared.db.migrate": "a program: `python -m shared.db.migrate`",
    "shared.db.migrations.env": "loaded by Alembic",
    "shared.db.accounts": "the part of the migrating program that says who may do what",
}

# Written so that this file doesn't break the rule itself.
_PLACES = re.compile(r"(?<![\w.])(/wor[k]|/tm[p]/\w|/roo[t]|/hom[e]/\w+)/")
# The name of a setting may stand here (a Dockerfile hands it through); the address may not.
_REGISTRIES = re.compile(
    r"--trusted-hos[t]|artifactor[y]|nexu[s]\.|index[-_]ur[l]\W{1,4}https?://|_INDE[X]\W{1,4}https?://", re.IGNORECASE
)


def no_machine_paths(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        if found := _PLACES.search(line):
            yield f"{source.path}:{number}: {found[0]!r} is a place on somebody's machine"


def no_registries(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        if found := _REGISTRIES.search(line):
            yield f"{source.path}:{number}: {found[0]!r}: which registry packages come from is the machine's setting"


def migrations_are_pairs(versions: Path) -> Iterator[str]:
    """Every NNNN_name.py runs the NNNN_name.sql beside it; numbers are contiguous from 0001."""
    modules = {path.stem for path in versions.glob("[0-9]*.py")}
    statements = {path.stem for path in versions.glob("*.sql")}
    for name in sorted(modules - statements):
        yield f"{versions.name}/{name}.py has no {name}.sql"
    for name in sorted(statements - modules):
        yield f"{versions.name}/{name}.sql is run by no {name}.py"
    numbers = sorted(name.split("_")[0] for name in modules)
    if numbers != [f"{number:04}" for number in range(1, len(numbers) + 1)]:
        yield f"{versions.name}: migrations are numbered {', '.join(numbers)}"


def required_files_exist(root: Path) -> Iterator[str]:
    if not (root / "CHANGELOG.md").is_file():
        yield "CHANGELOG.md is missing"
    if not any((root / "docs" / "decisions").glob("*.md")):
        yield "docs/decisions holds no decision"


def shared_is_shared(sources: Iterable[Source]) -> Iterator[str]:
    """Every module of shared has two importers: services (each counts once), deploy, or other modules of shared."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    modules: set[str] = set()
    for source in sources:
        module = source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if module.startswith("shared.") and not source.path.endswith("__init__.py"):
            modules.add(module)
        party = module if module.startswith("shared.") else ".".join(module.split(".")[:2])
        for imported in _imports(source):
            importers[imported].add(party)
    for module in sorted(modules - NOT_IMPORTED_TWICE.keys()):
        if module.startswith("shared.db.migrations.versions."):
            continue
        if len(importers[module] - {module}) < 2:
            known = ", ".join(sorted(importers[module])) or "nobody"
            yield f"{module} is imported by {known} only; what one service needs belongs into that service"
    for module in sorted(NOT_IMPORTED_TWICE.keys() - modules):
        if modules:
            yield f"{module} is gone: take it out of the exceptions"


def _imports(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)
