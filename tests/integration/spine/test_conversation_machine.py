"""Any sequence of posts, claims, commits, ends, cancellations and expired leases, by two owners, on the real database."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shared.conversation import ClaimedRun
from shared.db.pool import Pool, PoolSettings, open_pool
from shared.errors import LeaseLost
from shared.ids import new_id
from tests.integration.spine.conversations import advance, cancel, claim, expire, finish, step
from tests.support.seed import post, seed_session

T = TypeVar("T")
OWNERS = [new_id(), new_id()]
INDEX = st.integers(min_value=0, max_value=100)


@dataclass
class Run:
    """What must be true of a run."""

    id: Any
    status: str = "queued"
    epoch: int = 0
    expired: bool = False
    steps: int = 0


class Conversation(RuleBasedStateMachine):
    """One session. `handles` holds every lease that was ever had, stale ones included."""

    runner: asyncio.Runner
    pool: Pool

    @initialize()
    def open_session(self) -> None:
        self.session = self.do(seed_session(self.pool))
        self.runs: list[Run] = []
        self.handles: list[tuple[Run, ClaimedRun]] = []

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def holds(self, run: Run, handle: ClaimedRun) -> bool:
        return run.status == "running" and run.epoch == handle.epoch

    @rule()
    def post(self) -> None:
        self.runs.append(Run(self.do(post(self.pool, self.session, "hello"))))

    @precondition(lambda self: self.runs)
    @rule(index=INDEX, owner=st.sampled_from(OWNERS))
    def claim(self, index: int, owner: Any) -> None:
        run = self.runs[index % len(self.runs)]
        is_first = all(earlier.status == "finished" for earlier in self.runs[: self.runs.index(run)])
        free = run.status == "queued" or (run.status == "running" and run.expired)

        handle = self.do(claim(self.pool, run.id, owner))

        assert (handle is not None) == (is_first and free)
        if handle is not None:
            run.status, run.epoch, run.expired = "running", run.epoch + 1, False
            assert handle.epoch == run.epoch
            assert handle.step == run.steps
            self.handles.append((run, handle))

    @precondition(lambda self: self.handles)
    @rule(index=INDEX)
    def commit(self, index: int) -> None:
        run, handle = self.handles[index % len(self.handles)]
        try:
            self.do(advance(self.pool, handle, step(run.steps + 1)))
        except LeaseLost:
            assert not self.holds(run, handle)
        else:
            assert self.holds(run, handle)
            run.steps += 1

    @precondition(lambda self: self.handles)
    @rule(index=INDEX)
    def finish(self, index: int) -> None:
        run, handle = self.handles[index % len(self.handles)]
        try:
            self.do(finish(self.pool, handle))
        except LeaseLost:
            assert not self.holds(run, handle)
        else:
            assert self.holds(run, handle)
            run.status = "finished"

    @precondition(lambda self: self.runs)
    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        run = self.runs[index % len(self.runs)]
        try:
            self.do(cancel(self.pool, run.id, self.session.session_id))
        except LeaseLost:
            assert run.status == "finished"
        else:
            assert run.status != "finished"
            run.status, run.epoch = "finished", run.epoch + 1

    @precondition(lambda self: any(run.status == "running" for run in self.runs))
    @rule()
    def let_the_lease_run_out(self) -> None:
        run = next(run for run in self.runs if run.status == "running")
        self.do(expire(self.pool, run.id))
        run.expired = True

    @invariant()
    def rows_agree(self) -> None:
        rows = self.do(
            self.pool.fetch(
                "SELECT id, status, lease_epoch, step FROM run WHERE session_id = $1 ORDER BY seq",
                self.session.session_id,
            )
        )
        assert [tuple(row) for row in rows] == [(run.id, run.status, run.epoch, run.steps) for run in self.runs]
        assert sum(run.status == "running" for run in self.runs) <= 1

    @invariant()
    def events_are_contiguous_and_end_each_run_once(self) -> None:
        session_id = self.session.session_id
        rows = self.do(
            self.pool.fetch(
                "SELECT seq, type, payload::jsonb ->> 'run_id' AS run FROM session_event WHERE session_id = $1 ORDER BY seq",
                session_id,
            )
        )
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        last = self.do(self.pool.fetchval("SELECT last_seq FROM chat_session WHERE id = $1", session_id))
        assert last == len(rows)
        ends = [row["run"] for row in rows if row["type"] == "run.finished"]
        assert sorted(ends) == sorted(str(run.id) for run in self.runs if run.status == "finished")


def test_conversations_keep_their_promises(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with asyncio.Runner() as runner:
        pool = runner.run(open_pool(database_url, "test", PoolSettings()))
        monkeypatch.setattr(Conversation, "runner", runner, raising=False)
        monkeypatch.setattr(Conversation, "pool", pool, raising=False)
        try:
            run_state_machine_as_test(
                Conversation,
                settings=settings(
                    max_examples=40,
                    stateful_step_count=25,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    database=None,
                ),
            )
        finally:
            runner.run(pool.close())
