"""One case from its seed to its row: scenario, healing, invariants."""

import asyncio
import time
import traceback
from random import Random

from tests.faults.bed import Bed
from tests.faults.catalogue import Case
from tests.faults.clock import lasts
from tests.faults.invariants import mark, violations
from tests.faults.load import background_load
from tests.faults.resources import usage_of
from tests.faults.tally import NotHere, Tally
from tests.support.reports import Row


async def run_case(bed: Bed, case: Case, seed: int, trials: int | None = None) -> Row:
    """The row of the report: `value` is 1 when the case holds, 0 when not, None when it can't be tried here."""
    trials = trials or case.trials
    if not bed.at_start:
        await _warm_up(bed)
    began = time.monotonic()
    begun = await mark(bed)
    try:
        tally = await _try(bed, case, Random(f"{seed}/{case.number}"), trials)
    except NotHere as reason:
        await bed.heal()
        return {
            "name": f"case/{case.number}",
            "value": None,
            "unit": "holds",
            "title": case.title,
            "skipped": str(reason),
        }
    try:
        await bed.heal()
        broken = await violations(bed, begun)
    except AssertionError as error:
        broken = [f"the system did not come back: {error}"]
    row = _row(case, seed, trials, tally, broken)
    return {**row, "seconds": round(time.monotonic() - began, 1)}


async def _warm_up(bed: Bed) -> None:
    """Every service does each thing once, so that what it holds then is what it needs."""
    async with background_load(bed, Random(0), Tally(), sessions=15):
        await lasts(3)
    bed.at_start = await asyncio.to_thread(usage_of, bed.services)


async def _try(bed: Bed, case: Case, rng: Random, trials: int) -> Tally:
    tally = Tally()
    try:
        async with asyncio.timeout(case.seconds):
            return await case.scenario(bed, rng, trials)
    except NotHere:
        raise
    except TimeoutError:
        tally.surprise(f"not done in {case.seconds:g} s: {traceback.format_exc(limit=-2)}")
    except Exception:  # whatever it is, the other cases are to be tried as well
        tally.surprise(traceback.format_exc())
    return tally


def _row(case: Case, seed: int, trials: int, tally: Tally, broken: list[str]) -> Row:
    return {
        "name": f"case/{case.number}",
        "value": int(not tally.failed and not broken),
        "unit": "holds",
        "title": case.title,
        "seed": seed,
        "trials": trials,
        "attempted": tally.attempted,
        "acknowledged": tally.acknowledged,
        "ok": tally.ok,
        "lost": tally.lost,
        "duplicated": tally.duplicated,
        "unexpected": tally.unexpected + len(broken),
        "recovered": tally.recovered,
        "resume_p50": tally.percentile(0.5),
        "resume_p95": tally.percentile(0.95),
        "problems": [*tally.surprises, *broken],
        "notes": tally.notes,
    }
