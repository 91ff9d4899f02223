"""Files of the world, where the data for developers is there: each expectation of them, met or not, as `make eval` reports it."""

import pytest

from tests.evaluation.files import FileResult, evaluate_files, evaluate_markdown
from tests.support.stack import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data"

pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason="the data for developers is not beside the repository"),
    pytest.mark.timeout(300),
]


def unmet(results: list[FileResult]) -> dict[str, str]:
    assert len(results) > 50
    return {result.name: result.reason for result in results if not result.met}


async def test_each_file_comes_out_as_expected() -> None:
    assert unmet(await evaluate_files(DATA / "files")) == {}


async def test_each_markdown_file_has_its_headings() -> None:
    assert unmet(await evaluate_markdown(DATA / "markdown")) == {}
