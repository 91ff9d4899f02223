"""A cancel gives the runner a moment to end the run itself: only the runner knows what clients have seen of the reply in the making."""

import asyncio
import time
from uuid import UUID

from services.gateway.store.runs import is_thinking
from shared.contracts.hints import RunCancelled
from shared.db.pool import Pool
from shared.hints import HintSender

_LOOK_EVERY_SECONDS = 0.02
_PATIENCE_SECONDS = 1.0


async def let_runner_end(pool: Pool, hints: HintSender, run_id: UUID) -> None:
    """Asks the runner to end a run with the text that was streamed so far, and waits until it has, about a second at most.

    Returns at once when no text is being streamed. Whoever calls this ends the run afterwards by its own statement, which does nothing when
    the runner has done it.
    """
    if not await is_thinking(pool, run_id):
        return
    hints.send(RunCancelled(run_id=run_id))
    ends = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < ends:
        await asyncio.sleep(_LOOK_EVERY_SECONDS)
        if not await is_thinking(pool, run_id):
            return
