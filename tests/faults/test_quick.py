"""The quick part of the fault suite, one trial a case, and the suite's own parts."""

from collections.abc import AsyncIterator
from random import Random

import pytest

import tests.faults.cases  # noqa: F401 - registers them
from tests.faults.bed import Bed, running_bed
from tests.faults.catalogue import CASES, Case
from tests.faults.running import run_case
from tests.support.stack import start_stack

SEED = 20_260
"""Fixed: a failure here is repeated by `make faults CASE=... SEED=20260 TRIALS=1`."""
HEALING_SECONDS = 180

QUICK = [case for _, case in sorted(CASES.items()) if case.quick]


@pytest.fixture(scope="module")
async def bed() -> AsyncIterator[Bed]:
    """A bed of its own, on servers of its own: they are killed here."""
    stack = start_stack(durable=True)
    try:
        async with running_bed(stack, Random(SEED)) as bed:
            yield bed
    finally:
        stack.stop()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case.number}", marks=pytest.mark.timeout(case.seconds + HEALING_SECONDS))
        for case in QUICK
    ],
)
async def test_case_holds(bed: Bed, case: Case) -> None:
    row = await run_case(bed, case, SEED, trials=1)
    if row["value"] is None:
        pytest.skip(row["skipped"])
    assert row["value"] == 1, "\n".join([case.title, *row["problems"]])
