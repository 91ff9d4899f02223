"""Sessions whose runs crash and are cancelled at any commit: every request of the real loop is one that a strict endpoint takes, and no
call that must not be made twice is made twice."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent_runner import rows
from services.agent_runner.loop import Loop
from services.agent_runner.models.errors import ModelBadResponseError, ModelError
from services.agent_runner.models.types import ModelReply, ToolCall
from services.agent_runner.models.wire import request_body
from services.agent_runner.progress import RunProgress
from services.agent_runner.settings import MemorySettings
from services.agent_runner.steps import StoredMessage, ToolResult
from shared.conversation import Advance, outcome_unknown
from shared.errors import LeaseLost
from shared.ids import new_id
from shared.model_registry import ChatModel
from tests.support.chat_history import history_problems
from tests.unit.agent_runner.fakes import FakeDeltas, FakeModel, FakeTools, make_agent, says

MODEL = ChatModel(name="m", base_url="http://127.0.0.1:9/v1", model="m")
End = Literal["cancel", "crash"]


@dataclass
class Session:
    """What the database would hold of a session."""

    messages: list[StoredMessage] = field(default_factory=list)
    started: dict[UUID, dict[int, dict[str, Any]]] = field(default_factory=dict)
    ended: set[UUID] = field(default_factory=set)

    def write(self, run_id: UUID, advance: Advance) -> None:
        journal = advance.journal
        if journal is not None and journal["state"] == "started":
            self.started.setdefault(run_id, {})[journal["n"]] = journal
        elif journal is not None:
            self.started.get(run_id, {}).pop(journal["n"], None)
        if advance.message is not None:
            self._add(run_id, advance.message)
        if advance.ending is not None:
            self.ended.add(run_id)

    def cancel(self, run_id: UUID, cut_off: str) -> None:
        """Ends a run from outside: as shared.conversation does with begun steps, and the worker with the text so far."""
        for journal in self.started.pop(run_id, {}).values():
            self._add(run_id, {"role": "tool", "content": "{}", "tool_call_id": journal["tool_call_id"]})
        if cut_off:
            self._add(run_id, rows.interrupted_message(new_id(), cut_off))
        self.ended.add(run_id)

    def _add(self, run_id: UUID, row: dict[str, Any]) -> None:
        calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in row.get("tool_calls", ()))
        message = StoredMessage(
            run_id, row["role"], row["content"], calls, row.get("tool_call_id"), row.get("metadata", {})
        )
        self.messages.append(message)


class CutCommit:
    """Commits into the session until it is cut."""

    def __init__(self, session: Session, run_id: UUID, cut_at: int) -> None:
        self._session = session
        self._run_id = run_id
        self._left = cut_at

    async def __call__(self, advance: Advance) -> None:
        if self._left == 0:
            raise LeaseLost("cut")
        self._left -= 1
        self._session.write(self._run_id, advance)


def calls(count: int) -> ModelReply:
    """Ids that every reply begins anew, as some models number theirs."""
    tool_calls = tuple(ToolCall(f"call_{n}", "KnowledgeTool", "{}") for n in range(count))
    return ModelReply("", tool_calls, "tool_calls", "scripted")


REPLIES = st.sampled_from([says("An answer."), says(""), calls(1), calls(2), calls(3)])
CUTS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["cancel", "crash", "crash"])), max_size=4)


@dataclass
class Play:
    """Plays a session; `made` counts how often each call was made."""

    effect: Literal["read", "keyed", "once"]
    uncertain: bool
    session: Session = field(default_factory=Session)
    made: Counter[str] = field(default_factory=Counter)

    async def run(self, replies: list[ModelReply], cuts: list[tuple[int, End]], max_steps: int) -> None:
        """A run from its message to its end, with these cuts on the way."""
        run_id = new_id()
        self.session.messages.append(StoredMessage(run_id, "user", "question"))
        # A reply that was cut before its commit is asked for again, at most once a cut.
        last: list[ModelReply | ModelError] = [says("The last answer."), *([ModelBadResponseError("no")] * len(cuts))]
        model = FakeModel(*replies, *last)
        for cut_at, kind in [*cuts, (1000, "crash")]:
            await self._attempt(run_id, model, cut_at, max_steps)
            for request in model.requests:
                sent = orjson.loads(request_body(MODEL, request))["messages"]
                assert history_problems(sent) == [], sent
            if run_id in self.session.ended:
                return
            if kind == "cancel":
                self.session.cancel(run_id, "An ans" if cut_at % 2 else "")
                return

    async def _attempt(self, run_id: UUID, model: FakeModel, cut_at: int, max_steps: int) -> None:
        started = {n: journal["message_id"] for n, journal in self.session.started.get(run_id, {}).items()}
        progress = RunProgress(
            new_id(), new_id(), run_id, make_agent(max_steps), list(self.session.messages), {}, started=started
        )
        unknown = ToolResult("{}", error=outcome_unknown("no answer"), uncertain=True)
        tools = FakeTools(lambda _: unknown if self.uncertain else ToolResult("r"), self.effect)
        try:
            await Loop(model, tools, MemorySettings()).run(
                progress, CutCommit(self.session, run_id, cut_at), FakeDeltas()
            )
        except LeaseLost:
            pass
        finally:
            self.made.update(context.idempotency_key for context in tools.contexts)


@given(
    runs=st.lists(st.tuples(st.lists(REPLIES, max_size=4), CUTS, st.integers(1, 4)), min_size=1, max_size=4),
    effect=st.sampled_from(["read", "keyed", "once"]),
    uncertain=st.booleans(),
)
@settings(max_examples=60)
def test_every_request_is_strict_and_once_is_once(
    runs: list[tuple[list[ModelReply], list[tuple[int, End]], int]],
    effect: Literal["read", "keyed", "once"],
    uncertain: bool,
) -> None:
    play = Play(effect, uncertain)

    async def whole_session() -> None:
        for replies, cuts, max_steps in runs:
            await play.run(replies, cuts, max_steps)

    asyncio.run(whole_session())
    if effect == "once":
        assert max(play.made.values(), default=1) == 1
    ended_with_steps_begun = {run_id: steps for run_id, steps in play.session.started.items() if steps}
    assert ended_with_steps_begun == {}
