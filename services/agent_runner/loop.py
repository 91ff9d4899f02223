"""The think/execute loop. It knows no database, no broker and no provider: it obeys typed decisions.

1. The run was claimed (PLANNING): read the agent, the session's history and what this run has committed already.
2. THINKING: assemble the context, ask the model, and commit its reply as a step, before anything follows from it.
3. The reply answers: the run is `completed`; answer, citations and end are one commit.
4. The reply calls tools (EXECUTING, see `execution`): they run side by side; each result is committed as a step, in the order of the calls.
5. Again from 2, at most `max_steps` times; then the run ends with `step_limit`.

Other ways out: a model that gives no reply ends the run with `error`; LeaseLost (somebody else continues, or the run was cancelled),
HandBack (this process is stopping, and a step is done) and everything unexpected are raised to the worker. After a crash the next runner
enters at 1 and finds the committed steps: a model is never asked again for a reply that is committed, and a tool never runs again when
its result is.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never
from uuid import UUID

import structlog

from services.agent_runner import rows
from services.agent_runner.citations import CitationReader
from services.agent_runner.context import build_request
from services.agent_runner.execution import Execution
from services.agent_runner.models.errors import ModelError
from services.agent_runner.models.types import ModelReply, TextDelta
from services.agent_runner.ports import Commit, Deltas, HandBack, Model, Tools
from services.agent_runner.progress import RunProgress
from services.agent_runner.settings import MemorySettings
from services.agent_runner.steps import Answer, CallTools, decide
from shared.conversation import Advance, Ending
from shared.errors import ErrorInfo
from shared.failpoints import failpoint
from shared.ids import new_id
from shared.logging import log_context

log = structlog.get_logger()


class Loop:
    """One run, from where its progress stands to its end."""

    def __init__(
        self, model: Model, tools: Tools, memory: MemorySettings, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._model = model
        self._tools = tools
        self._memory = memory
        self._stopping = stopping

    async def run(self, progress: RunProgress, commit: Commit, deltas: Deltas) -> None:
        """Goes on until the run has ended. Raises LeaseLost, HandBack and whatever `commit` raises."""
        while True:
            self._hand_back_if_stopping()
            await Execution(self._tools, progress, commit).run()
            if progress.step >= progress.agent.max_steps:
                await commit(Advance(ending=Ending("step_limit", progress.usage)))
                return
            self._hand_back_if_stopping()
            with log_context(step=progress.step + 1):
                try:
                    answered = await self._think(progress, commit, deltas)
                except ModelError as error:
                    log.warning("model.failed", code=error.code)
                    info = ErrorInfo(code=error.code, message=str(error))
                    await commit(Advance(ending=Ending("error", progress.usage, info)))
                    return
            if answered:
                return

    def _hand_back_if_stopping(self) -> None:
        if self._stopping():
            raise HandBack

    async def _think(self, progress: RunProgress, commit: Commit, deltas: Deltas) -> bool:
        """One model call and its commit; true when it answered, which ended the run."""
        started_at = datetime.now(UTC)
        step = progress.step + 1
        message_id = new_id()
        # The state is committed while the model is being asked: it says what is going on and decides nothing.
        announced = progress.announced_step == step
        announcement = None if announced else asyncio.ensure_future(commit(Advance("THINKING", step)))
        try:
            reply, citations = await self._ask(progress, message_id, deltas)
        finally:
            if announcement is not None:
                await announcement
        deltas.complete()
        progress.add_usage(reply.usage)
        message = rows.assistant_message(message_id, reply, citations)
        if citations.dropped:
            log.warning("citation.dropped", numbers=citations.dropped)
        journal = rows.think_entry(progress.next_n, step, message_id, reply, started_at)
        match decide(reply):
            case CallTools():
                await commit(Advance("EXECUTING", step, message, journal, progress.usage))
                failpoint("after_reply_before_tool")
                progress.add_reply(reply)
                return False
            case Answer():
                await commit(Advance(None, step, message, journal, ending=Ending("completed", progress.usage)))
                return True
            case other:
                assert_never(other)

    async def _ask(self, progress: RunProgress, message_id: UUID, deltas: Deltas) -> tuple[ModelReply, CitationReader]:
        """The model's reply, with the text that its citations leave: what is streamed is what is stored."""
        tools = self._tools.specs(progress.agent)
        request, citations = build_request(progress, tools, self._memory.history_tokens)
        reply: ModelReply | None = None
        async with aclosing(self._model.stream(request)) as stream:
            async for item in stream:
                match item:
                    case TextDelta(text):
                        _stream(deltas, message_id, citations.feed(text))
                    case ModelReply():
                        reply = item
                    case other:
                        assert_never(other)
        if reply is None:
            raise AssertionError("a model's stream ends with its reply or an error")
        _stream(deltas, message_id, citations.finish())
        return replace(reply, text=citations.text), citations


def _stream(deltas: Deltas, message_id: UUID, text: str) -> None:
    if text:
        deltas.add(message_id, text)
