"""What three workers, two sessions and a clock may do in any order, and what must be true after each step."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.agent_runner.settings import MemorySettings
from services.agent_runner.store import RunStore
from shared.conversation import Advance, ClaimedRun, Ending
from shared.db.pool import Pool
from shared.errors import LeaseLost
from shared.ids import new_id
from shared.leases import PRESENCE_CLASS, LeaseSettings
from tests.integration.spine.clock import Clock
from tests.integration.spine.conversations import assistant, cancel, step
from tests.support.seed import SeededSession, post, seed_session

T = TypeVar("T")

WORKERS = 3
SESSIONS = 2
LEASES = LeaseSettings()
INDEX = st.integers(min_value=0, max_value=100)

LOCK = "SELECT pg_advisory_lock($1::integer, hashtext($2::uuid::text))"
UNLOCK = "SELECT pg_advisory_unlock($1::integer, hashtext($2::uuid::text))"
# Runs and events of some sessions, as the rows say.
ROWS = """
SELECT s.last_seq, s.state,
    (SELECT json_agg(json_build_array(r.id, r.status, r.lease_epoch, r.step, r.lease_owner) ORDER BY r.seq)
     FROM run r WHERE r.session_id = s.id)::text AS runs,
    (SELECT json_agg(json_build_array(e.seq, e.type, e.payload ->> 'run_id', e.payload ->> 'position') ORDER BY e.seq)
     FROM session_event e WHERE e.session_id = s.id)::text AS events
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, n) JOIN chat_session s ON s.id = wanted.id ORDER BY wanted.n
"""
# What one example leaves is nothing that the next could claim.
FORGET = """
UPDATE run SET status = 'finished', reason = 'cancelled', lease_owner = NULL, lease_until = NULL WHERE status <> 'finished'
"""


@dataclass
class Run:
    """What must be true of a run."""

    id: UUID
    due: datetime
    status: str = "queued"
    epoch: int = 0
    steps: int = 0
    owner: UUID | None = None
    until: datetime | None = None
    dropped: bool = False  # its owner lives and doesn't work on it: the answer to a claim, or a hand-back, was lost

    def goes_back(self, due: datetime) -> None:
        self.dropped = False
        self.status, self.owner, self.until, self.due = "queued", None, None, due

    def ends(self) -> None:
        self.dropped = False
        self.status, self.owner, self.until = "finished", None, None


@dataclass
class Session:
    """A session's runs in the order of acceptance, and how many events it must have, those that tell places in the queue apart."""

    seeded: SeededSession
    runs: list[Run] = field(default_factory=list)
    events: int = 0

    def first(self) -> Run | None:
        return next((run for run in self.runs if run.status != "finished"), None)


@dataclass(frozen=True)
class Handle:
    """A lease as its worker knows it, which may be long gone."""

    session: Session
    run: Run
    claimed: ClaimedRun
    store: RunStore

    def is_good(self) -> bool:
        return self.run.status == "running" and self.run.epoch == self.claimed.epoch


class Conversations(RuleBasedStateMachine):
    """`handles` holds every lease that was ever had, those of processes that were killed included: they may come back to life."""

    runner: asyncio.Runner
    pool: Pool
    presence: "asyncpg.Connection[asyncpg.Record]"  # holds the locks of those who live
    clock: Clock
    steps_taken = 0

    @initialize()
    def open_sessions(self) -> None:
        self.sessions = [Session(self.do(seed_session(self.pool))) for _ in range(SESSIONS)]
        self.handles: list[Handle] = []
        self.living: set[UUID] = set()
        self.workers = [self._new_worker() for _ in range(WORKERS)]

    def teardown(self) -> None:
        self.do(self.presence.execute("SELECT pg_advisory_unlock_all()"))
        self.do(self.pool.execute(FORGET))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def _new_worker(self) -> tuple[UUID, RunStore]:
        owner = new_id()
        self.do(self.presence.execute(LOCK, PRESENCE_CLASS, owner))
        self.living.add(owner)
        return owner, RunStore(self.pool, owner, LEASES, MemorySettings())

    def _runs(self) -> list[Run]:
        return [run for session in self.sessions for run in session.runs]

    def _claimable(self) -> dict[UUID, tuple[Session, Run]]:
        firsts = [(session, session.first()) for session in self.sessions]
        now = self.clock.now
        return {
            run.id: (session, run)
            for session, run in firsts
            if run is not None and run.status == "queued" and run.due <= now
        }

    @rule(index=st.integers(0, SESSIONS - 1))
    def post(self, index: int) -> None:
        session = self.sessions[index]
        session.runs.append(Run(self.do(post(self.pool, session.seeded, "hello")), self.clock.now))
        session.events += 1

    @rule(index=st.integers(0, WORKERS - 1), limit=st.integers(1, 3))
    def claim(self, index: int, limit: int) -> None:
        owner, store = self.workers[index]
        claimable = self._claimable()

        claimed = self.do(store.claim(limit, []))

        assert len(claimed) == min(limit, len(claimable))
        for handle in claimed:
            session, run = claimable.pop(handle.run_id)
            run.status, run.owner, run.epoch = "running", owner, run.epoch + 1
            run.until = self.clock.now + LEASES.lease_interval
            session.events += 1
            assert (handle.epoch, handle.step) == (run.epoch, run.steps)
            self.handles.append(Handle(session, run, handle, store))

    @precondition(lambda self: self.handles)
    @rule(index=INDEX)
    def commit(self, index: int) -> None:
        handle = self.handles[index % len(self.handles)]
        if self._writes(handle, step(handle.run.steps + 1)):
            handle.run.steps += 1

    @precondition(lambda self: self.handles)
    @rule(index=INDEX)
    def finish(self, index: int) -> None:
        handle = self.handles[index % len(self.handles)]
        if self._writes(handle, Advance(message=assistant(), ending=Ending("completed"))):
            handle.run.ends()

    def _writes(self, handle: Handle, advance: Advance) -> bool:
        """Whether the commit was taken, which it must be exactly when the lease stands."""
        try:
            self.do(handle.store.advance(handle.claimed, advance))
        except LeaseLost:
            assert not handle.is_good()
            return False
        assert handle.is_good()
        handle.session.events += 2
        return True

    @precondition(lambda self: self.handles)
    @rule(index=INDEX, delay=st.sampled_from([0, 0, 7]))
    def hand_back(self, index: int, delay: int) -> None:
        """At the end of a process (at once, and no attempt of the run's), or after a failure."""
        handle = self.handles[index % len(self.handles)]
        self.do(handle.store.release(handle.claimed, timedelta(seconds=delay), counts=delay > 0))
        if handle.is_good():
            handle.run.goes_back(self.clock.now + timedelta(seconds=delay))

    @rule(index=st.integers(0, WORKERS - 1))
    def renew(self, index: int) -> None:
        owner, store = self.workers[index]
        kept = set(self.do(store.renew([handle.run.id for handle in self.handles])))

        # A lease that ran out and that nobody has taken is still the owner's.
        mine = [run for run in self._runs() if run.status == "running" and run.owner == owner]
        assert kept == {run.id for run in mine}
        for run in mine:
            run.until = self.clock.now + LEASES.lease_interval

    @precondition(lambda self: any(session.runs for session in self.sessions))
    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        pairs = [(session, run) for session in self.sessions for run in session.runs]
        session, run = pairs[index % len(pairs)]
        try:
            self.do(cancel(self.pool, run.id, session.seeded.session_id))
        except LeaseLost:
            assert run.status == "finished"
        else:
            assert run.status != "finished"
            run.ends()
            run.epoch += 1
            session.events += 1

    @rule(index=st.integers(0, WORKERS - 1))
    def sweep(self, index: int) -> None:
        owner, store = self.workers[index]
        held = [run.id for run in self._runs() if run.owner == owner and not run.dropped]
        found = set(self.do(store.requeue_abandoned(held)))

        abandoned = [run for run in self._runs() if self._is_abandoned(run, owner)]
        assert found == {run.id for run in abandoned}
        for run in abandoned:
            run.goes_back(self.do(self.pool.fetchval("SELECT not_before FROM run WHERE id = $1", run.id)))

    @precondition(lambda self: any(run.owner for run in self._runs()))
    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        owned = [run for run in self._runs() if run.owner]
        owned[index % len(owned)].dropped = True

    def _is_abandoned(self, run: Run, sweeper: UUID) -> bool:
        if run.status != "running" or run.until is None:
            return False
        now = self.clock.now
        nobodys = run.owner not in self.living or (run.owner == sweeper and run.dropped)
        return run.until < now or (nobodys and run.until < now + LEASES.orphaned_after)

    @rule(seconds=st.sampled_from([0.5, 1, 3, 8, 31, 400]))
    def let_time_pass(self, seconds: float) -> None:
        self.do(self.clock.move(seconds))

    @rule(index=st.integers(0, WORKERS - 1))
    def kill_and_start_again(self, index: int) -> None:
        """The process is gone, or so it seems: what it had claimed may still be written to by its ghost."""
        owner, _ = self.workers[index]
        self.do(self.presence.execute(UNLOCK, PRESENCE_CLASS, owner))
        self.living.remove(owner)
        self.workers[index] = self._new_worker()

    @invariant()
    def rows_agree(self) -> None:
        type(self).steps_taken += 1
        ids = [session.seeded.session_id for session in self.sessions]
        rows = self.do(self.pool.fetch(ROWS, ids))
        for session, row in zip(self.sessions, rows, strict=True):
            runs = orjson.loads(row["runs"] or "[]")
            assert runs == [
                [str(run.id), run.status, run.epoch, run.steps, str(run.owner) if run.owner else None]
                for run in session.runs
            ]
            assert_order(session)
            events = orjson.loads(row["events"] or "[]")
            assert row["last_seq"] == len(events)
            assert_events(session, events)
            if session.first() is None:
                assert row["state"] in ("IDLE", "FINISHED", "ERROR")


def assert_order(session: Session) -> None:
    """One at a time, and in the order of acceptance: what is behind the first unfinished run has not begun."""
    behind = [run for run in session.runs if run.status != "finished"][1:]
    assert all(run.status == "queued" for run in behind)


def assert_events(session: Session, events: list[tuple[int, str, str | None, str | None]]) -> None:
    """Contiguous, one end a run, nothing besides what happened, and the newest place in the queue that was told is the true one."""
    assert [seq for seq, *_ in events] == list(range(1, len(events) + 1))
    assert sum(kind != "run.queued" for _, kind, *_ in events) == session.events
    ends = [run_id for _, kind, run_id, _ in events if kind == "run.finished"]
    assert sorted(map(str, ends)) == sorted(str(run.id) for run in session.runs if run.status == "finished")
    told = {run_id: position for _, kind, run_id, position in events if kind == "run.queued"}
    unfinished = [run for run in session.runs if run.status != "finished"]
    waiting = {str(run.id): str(position) for position, run in enumerate(unfinished) if run.status == "queued"}
    assert {run_id: told[run_id] for run_id in waiting} == waiting
