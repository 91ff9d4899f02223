"""Codes are listed in one place, and nothing raises one that isn't."""

import re
from pathlib import Path

import services.gateway
from services.gateway.problems import PROBLEMS, refused
from services.gateway.refusals import Refusal

PACKAGE = Path(services.gateway.__file__).parent
RAISED = re.compile(r"""(?:Refusal|ProblemResponse)\(\s*"([a-z_]+)"|wrong_field\(\s*"[\w-]+",\s*"([a-z_]+)\"""")


def test_every_code_that_is_raised_has_a_status_and_every_status_is_one_of_an_error() -> None:
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    raised = {first or second for first, second in RAISED.findall(source)}
    assert len(raised) >= 15
    assert raised <= PROBLEMS.keys()
    assert all(400 <= status <= 599 for status, _title in PROBLEMS.values())


def test_every_code_that_is_listed_is_used() -> None:
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    unused = [code for code in PROBLEMS if source.count(f'"{code}"') < 2]
    assert unused == []


def test_a_refusal_says_how_long_to_wait() -> None:
    answer = refused(Refusal("too_many_runs", "Wait.", retry_after=7))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.media_type == "application/problem+json"
