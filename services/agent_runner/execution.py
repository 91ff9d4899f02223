"""Executes the calls of a reply: side by side, each result committed as a step in the order of the calls.

What happens to a call that a crash left without a result depends on the tool's effect. `read` and `keyed` are called again, `keyed`
with the same idempotency key. A `once` call is committed as `started` before it is made: found like that, it is not made again, and its
result says that nobody knows what it did.
"""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import structlog

from services.agent_runner import rows
from services.agent_runner.context import tool_contexts
from services.agent_runner.models.types import Usage
from services.agent_runner.ports import Commit, Tools
from services.agent_runner.progress import RunProgress
from services.agent_runner.steps import OpenCall, ToolContext, ToolResult
from shared.conversation import Advance, outcome_unknown, step_event
from shared.failpoints import failpoint
from shared.ids import new_id
from shared.json_text import to_json

log = structlog.get_logger()


class Execution:
    """The execute steps of a run."""

    def __init__(self, tools: Tools, progress: RunProgress, commit: Commit) -> None:
        self._tools = tools
        self._progress = progress
        self._commit = commit

    async def run(self) -> None:
        """Executes the calls that have no result yet. Raises what `commit` raises."""
        calls = self._progress.open_calls
        if not calls:
            return
        started_at = datetime.now(UTC)
        message_ids = [call.started or new_id() for call in calls]
        for call, message_id in zip(calls, message_ids, strict=True):
            await self._begin(call, message_id, started_at)
        contexts = tool_contexts(self._progress, calls)
        tasks = [
            asyncio.ensure_future(self._call(call, context)) for call, context in zip(calls, contexts, strict=True)
        ]
        try:
            for call, message_id, context, task in zip(calls, message_ids, contexts, tasks, strict=True):
                result = await task
                failpoint("after_tool_before_commit")
                usage = Usage.total(context.usages)
                journal = rows.execute_entry(call, message_id, result, started_at, usage)
                self._progress.add_usage(usage)
                await self._end(call, result, journal, is_last=call is calls[-1])
        finally:
            for task in tasks:
                task.cancel()

    async def _begin(self, call: OpenCall, message_id: UUID, started_at: datetime) -> None:
        if call.started or self._tools.effect(self._progress.agent, call.call) != "once":
            return
        journal = rows.execute_entry(call, message_id, None, started_at)
        event = step_event("step.started", self._progress.run_id, journal)
        await self._commit(Advance("EXECUTING", call.step, None, journal, announce=False, events=(event,)))
        failpoint("after_start_before_tool")

    async def _call(self, call: OpenCall, context: ToolContext) -> ToolResult:
        if call.started:
            log.warning("tool.outcome_lost", tool=call.call.name, n=call.n)
            return lost_outcome()
        return await self._tools.call(self._progress.agent, call.call, context)

    async def _end(self, call: OpenCall, result: ToolResult, journal: rows.Row, *, is_last: bool) -> None:
        progress = self._progress
        message = rows.tool_message(call, journal["message_id"], result)
        events = (step_event("step.unknown", progress.run_id, journal),) if result.uncertain else ()
        more = is_last and progress.step < progress.agent.max_steps
        usage = progress.usage if journal["usage"] else None
        # The last result's commit announces the next think step as well.
        step = progress.step + 1 if more else progress.step
        await self._commit(
            Advance("THINKING" if more else "EXECUTING", step, message, journal, usage, announce=more, events=events)
        )
        progress.add_result(call.call, result, announced_step=step if more else None)


def lost_outcome() -> ToolResult:
    """The result of a call that was begun by a process that is gone."""
    error = outcome_unknown("the process that made this call ended before the result was stored")
    return ToolResult(to_json({"error": error.model_dump()}), error=error, uncertain=True)
