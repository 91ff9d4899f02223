"""The rules of CONTRIBUTING.md that no other tool checks, applied to this repository."""

import ast
from collections.abc import Iterable, Sequence

import pytest

from tests.house import code_rules, repository_rules
from tests.house.sources import REPOSITORY, Rule, kept_sources, python_sources

PROGRAM = ("services", "shared", "deploy")

RULES: Sequence[tuple[Rule, tuple[str, ...]]] = [
    (code_rules.file_is_short, PROGRAM),
    (code_rules.functions_are_short, PROGRAM),
    (code_rules.name_says_something, (*PROGRAM, "tests")),
    (code_rules.types_are_not_ignored, PROGRAM),
    (code_rules.exceptions_have_reasons, (*PROGRAM, "tests")),
    (code_rules.sql_is_not_built, PROGRAM),
    (code_rules.sql_is_in_query_files, ("services", "shared")),
    (code_rules.nothing_is_printed, ("services", "shared")),
    (code_rules.log_events_are_words, PROGRAM),
]


def check(breaches: Iterable[str]) -> None:
    found = list(breaches)
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(("rule", "packages"), RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_code_keeps_the_rule(rule: Rule, packages: tuple[str, ...]) -> None:
    check(breach for source in python_sources(*packages) for breach in rule(source))


def test_tests_wait_for_conditions() -> None:
    sources = [source for source in python_sources("tests") if not source.path.startswith("tests/support/")]
    check(breach for source in sources for breach in code_rules.tests_wait_for_conditions(source))


def test_contracts_know_only_pydantic() -> None:
    sources = [source for source in python_sources("shared") if source.path.startswith("shared/contracts/")]
    assert sources
    check(breach for source in sources for breach in code_rules.contracts_know_only_pydantic(source))


def test_nothing_tells_where_it_was_written() -> None:
    sources = kept_sources()
    assert sources
    check(
        breach
        for source in sources
        for rule in (repository_rules.no_machine_paths, repository_rules.no_registries)
        for breach in rule(source)
    )


def test_every_migration_is_a_program_and_its_statements() -> None:
    check(repository_rules.migrations_are_pairs(REPOSITORY / "shared/db/migrations/versions"))


def test_required_files_exist() -> None:
    check(repository_rules.required_files_exist(REPOSITORY))


def test_everything_in_shared_has_two_importers() -> None:
    check(repository_rules.shared_is_shared(python_sources(*PROGRAM)))


def test_the_list_of_sql_in_python_is_current() -> None:
    sources = {source.path: source for source in python_sources("shared", "services")}
    for path in code_rules.SQL_IN_PYTHON:
        statements = [node for node in ast.walk(sources[path].tree) if code_rules._is_sql(node)]
        assert len(statements) == 1, f"{path} has {len(statements)} statements: the list allows exactly one"
