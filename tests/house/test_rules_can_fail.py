"""Each rule on a snippet that breaks it, and on its nearest neighbour that doesn't."""

from pathlib import Path

import pytest

from tests.house import code_rules, repository_rules
from tests.house.sources import Rule, Source, read_source

LOOP = code_rules.LOOP

BREACHES: list[tuple[Rule, str, str]] = [
    (code_rules.file_is_short, "services/a.py", "x = 1\n" * 301),
    (code_rules.file_is_short, LOOP, "x = 1\n" * 151),
    (code_rules.functions_are_short, "services/a.py", "def f():\n" + "    x = 1\n" * 50),
    (code_rules.functions_are_short, "services/a.py", "class A:\n    async def f(self):\n" + "        x = 1\n" * 50),
    (code_rules.name_says_something, "services/gateway/utils.py", ""),
    (code_rules.name_says_something, "services/gateway/common/paging.py", ""),
    (code_rules.name_says_something, "services/ingestion/base.py", ""),
    (code_rules.name_says_something, "services/ingestion/lease_manager.py", ""),
    (code_rules.types_are_not_ignored, "shared/a.py", "x: int = ''  # type: ignore[assignment]"),
    (code_rules.exceptions_have_reasons, "shared/a.py", "import os  # noqa"),
    (code_rules.exceptions_have_reasons, "shared/a.py", "import os  # noqa: F401"),
    (code_rules.exceptions_have_reasons, "shared/a.py", "import os  # noqa: F401, E402 -"),
    (code_rules.sql_is_not_built, "shared/a.py", "f'SELECT 1 FROM {table}'"),
    (code_rules.sql_is_not_built, "shared/a.py", "f'{SQL[name]} LIMIT 5'"),
    (code_rules.sql_is_not_built, "shared/a.py", "SQL['list'] + ' LIMIT 5'"),
    (code_rules.sql_is_not_built, "shared/a.py", "'DELETE FROM run WHERE id = ' + run_id"),
    (code_rules.sql_is_not_built, "shared/a.py", "'UPDATE run SET step = %s' % step"),
    (code_rules.sql_is_not_built, "shared/a.py", "'WITH a AS (SELECT {})'.format(x)"),
    (code_rules.sql_is_not_built, "shared/a.py", "SQL['list'].replace('id', column)"),
    (code_rules.sql_is_in_query_files, "shared/a.py", "pool.fetch('SELECT id FROM run WHERE id = $1', 1)"),
    (code_rules.sql_is_in_query_files, "shared/a.py", "QUERY = '''\n    INSERT INTO run VALUES ($1)'''"),
    (code_rules.nothing_is_printed, "shared/a.py", "print('here')"),
    (code_rules.log_events_are_words, "shared/a.py", "log.info('Run started')"),
    (code_rules.log_events_are_words, "shared/a.py", "log.info('started')"),
    (code_rules.log_events_are_words, "shared/a.py", "log.warning(f'run.{state}')"),
    (code_rules.log_events_are_words, "shared/a.py", "log.exception(event)"),
    (code_rules.log_events_are_words, "shared/a.py", "event = name()\nlog.exception(event)"),
    (code_rules.log_events_are_words, "shared/a.py", "log.info('a.b' if x else name)"),
    (code_rules.log_events_are_words, "shared/a.py", "log.error()"),
    (code_rules.tests_wait_for_conditions, "tests/a.py", "time.sleep(0.01)"),
    (code_rules.tests_wait_for_conditions, "tests/a.py", "await_ = asyncio.sleep(1)"),
    (code_rules.tests_wait_for_conditions, "tests/a.py", "asyncio.sleep(seconds)"),
    (code_rules.contracts_know_only_pydantic, "shared/contracts/a.py", "import orjson"),
    (code_rules.contracts_know_only_pydantic, "shared/contracts/a.py", "from shared.errors import CodedError"),
    (code_rules.contracts_know_only_pydantic, "shared/contracts/a.py", "def f():\n    from services import gateway"),
    (repository_rules.no_machine_paths, "README.md", "cd " + "/wor" + "k/main"),
    (repository_rules.no_machine_paths, "Makefile", "x = " + "/hom" + "e/somebody/x"),
    (repository_rules.no_registries, "Dockerfile", "RUN pip install --index" + "-url https://host/simple x"),
]

ALLOWED: list[tuple[Rule, str, str]] = [
    (code_rules.file_is_short, "services/a.py", "x = 1\n" * 300),
    (code_rules.file_is_short, LOOP, "x = 1\n" * 150),
    (code_rules.functions_are_short, "services/a.py", "def f():\n" + "    x = 1\n" * 49),
    (code_rules.name_says_something, "shared/contracts/base.py", ""),
    (code_rules.name_says_something, "services/gateway/knowledge_base.py", ""),
    (code_rules.exceptions_have_reasons, "shared/a.py", "import os  # noqa: F401 - re-exported"),
    (code_rules.sql_is_not_built, "shared/a.py", "f'{count} rows'; SQL['list']; 'Select a file: ' + name"),
    (code_rules.sql_is_in_query_files, "shared/a.py", '"""SELECT is what this module is about."""'),
    (code_rules.sql_is_in_query_files, "shared/service.py", "pool.fetchval('SELECT 1')"),
    (code_rules.nothing_is_printed, "shared/a.py", "console.print('here')"),
    (code_rules.log_events_are_words, "shared/a.py", "log.info('run.started', step=1)"),
    (code_rules.log_events_are_words, "shared/a.py", "event = 'a.b' if x else 'a.c'\nlog.info(event)"),
    (code_rules.tests_wait_for_conditions, "tests/a.py", "asyncio.sleep(0.05)"),
    (code_rules.contracts_know_only_pydantic, "shared/contracts/a.py", "from uuid import UUID\nimport pydantic"),
    (code_rules.contracts_know_only_pydantic, "shared/contracts/a.py", "from shared.contracts.base import Contract"),
    (repository_rules.no_machine_paths, "a.py", "services/a /api/wor" + "k/x /etc/x"),
]


def source(root: Path, path: str, text: str) -> Source:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return read_source(file, root)


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_a_breach_is_found_and_named(rule: Rule, path: str, text: str, tmp_path: Path) -> None:
    breaches = list(rule(source(tmp_path, path, text)))

    assert len(breaches) == 1
    assert breaches[0].startswith(path)


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_what_is_allowed_passes(rule: Rule, path: str, text: str, tmp_path: Path) -> None:
    assert not list(rule(source(tmp_path, path, text)))


def test_migrations_that_miss_their_other_half_or_a_number(tmp_path: Path) -> None:
    for name in ("0001_a.py", "0001_a.sql", "0003_b.py", "0003_b.sql"):
        (tmp_path / name).touch()
    assert "numbered 0001, 0003" in next(repository_rules.migrations_are_pairs(tmp_path))

    (tmp_path / "0002_c.py").touch()
    assert "0002_c.py has no 0002_c.sql" in next(repository_rules.migrations_are_pairs(tmp_path))

    (tmp_path / "0002_c.sql").touch()
    assert not list(repository_rules.migrations_are_pairs(tmp_path))

    (tmp_path / "0004_d.sql").touch()
    assert "run by no 0004_d.py" in next(repository_rules.migrations_are_pairs(tmp_path))


def test_missing_changelog_and_decisions(tmp_path: Path) -> None:
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    assert len(list(repository_rules.required_files_exist(tmp_path))) == 2

    (tmp_path / "CHANGELOG.md").touch()
    (tmp_path / "docs" / "decisions" / "0001-a.md").touch()
    assert not list(repository_rules.required_files_exist(tmp_path))


def test_a_module_of_shared_with_one_importer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository_rules, "NOT_IMPORTED_TWICE", {})
    lonely = Source("shared/a.py", "")
    importers = [
        Source("services/gateway/x.py", "from shared.a import f"),
        Source("services/gateway/y.py", "from shared import a"),
    ]
    assert "shared.a is imported by services.gateway only" in next(
        repository_rules.shared_is_shared([lonely, *importers])
    )

    second = Source("services/retrieval/x.py", "import shared.a")
    assert not list(repository_rules.shared_is_shared([lonely, *importers, second]))


def test_an_exception_of_the_two_importers_rule_that_is_gone() -> None:
    used = [Source("shared/a.py", "import shared.b"), Source("shared/b.py", "import shared.a")]
    breaches = list(repository_rules.shared_is_shared([*used, Source("deploy/x.py", "import shared.a, shared.b")]))
    assert any("shared.db.migrate is gone" in breach for breach in breaches)
