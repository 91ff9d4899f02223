"""How work on something that was claimed ends, whatever comes of it: a document's as well as a generation's."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import structlog

from shared.errors import CodedError, ErrorInfo, LeaseLost

log = structlog.get_logger()

JobT_contra = TypeVar("JobT_contra", contravariant=True)


class Endings(Protocol[JobT_contra]):
    """What ends a lease. All raise LeaseLost when it is gone, and a retryable CodedError while the database is away."""

    async def fail(self, job: JobT_contra, error: ErrorInfo, /) -> None: ...
    async def delay(self, job: JobT_contra, error: ErrorInfo, /) -> None: ...
    async def hand_back(self, job: JobT_contra, /) -> None: ...


async def see_through(work: Awaitable[None], job: JobT_contra, endings: Endings[JobT_contra], *, crash: str) -> None:
    """Waits for the work, and ends the lease where the work has not. `crash` says to its owner what an error of ours means for it.

    Raises nothing but CancelledError, after handing the job back.
    """
    try:
        await work
    except asyncio.CancelledError:
        # Cancelled twice (a lost lease is noticed again, say), it still hands back.
        await asyncio.shield(_conclude(endings.hand_back(job)))
        raise
    except LeaseLost:
        log.warning("job.lost")
    except CodedError as error:
        end = endings.delay if error.retryable else endings.fail
        await _conclude(end(job, error.info))
    except Exception:
        log.exception("job.crashed")
        await _conclude(endings.delay(job, ErrorInfo(code="internal_error", message=crash)))


async def _conclude(ending: Awaitable[None]) -> None:
    try:
        await ending
    except LeaseLost:
        log.warning("job.lost")
    except CodedError as error:
        log.warning("job.abandoned", code=error.code)  # the lease runs out, and somebody finds the job
