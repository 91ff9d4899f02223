"""Any interleaving of three workers, cancellations, deaths and time, on the real database and with the production statements."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest
import uvloop
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from services.agent_runner.store import SQL as RUNNER
from shared.conversation import SQL as CONVERSATION
from shared.db.pool import PoolSettings, open_pool
from tests.integration.spine.clock import Clock, install_clock
from tests.integration.spine.conversation_machine import Conversations

STEPS = 40


@pytest.fixture
def machine(database_url: str) -> Iterator[type[Conversations]]:
    """The machine on a database whose time it moves."""
    install_clock(database_url)

    class Here(Conversations):
        pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        Here.runner = runner
        Here.pool = runner.run(open_pool(database_url, "test", PoolSettings(max_size=1)))
        Here.presence = runner.run(asyncpg.connect(database_url))
        Here.clock = Clock(Here.presence)
        runner.run(Here.clock.move())
        yield Here
        runner.run(Here.presence.close())
        runner.run(Here.pool.close())


def play(machine: type[Conversations], examples: int, *phases: Phase) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            report_multiple_bugs=False,
            phases=phases or (Phase.generate, Phase.shrink),
        ),
    )


@pytest.mark.timeout(300)
def test_conversations_keep_their_promises(machine: type[Conversations]) -> None:
    play(machine, 150)
    assert machine.steps_taken > 2_000


# A word of a production statement, and what stands there when it was forgotten.
FORGOTTEN = {
    "the fence of commits": (CONVERSATION, "advance_run", "AND lease_epoch = $2::bigint", ""),
    "the fence of hand-backs": (RUNNER, "release_run", "AND lease_epoch = $2", "AND $2::bigint IS NOT NULL"),
    "the owner of a renewal": (RUNNER, "renew_leases", "AND lease_owner = $2", "AND $2::uuid IS NOT NULL"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_forgotten_condition_is_found(
    machine: type[Conversations], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    statements, name, condition, forgotten = FORGOTTEN[what]
    assert statements[name].count(condition) == 1
    monkeypatch.setitem(statements, name, statements[name].replace(condition, forgotten))

    with pytest.raises(AssertionError):
        play(machine, 500, Phase.generate)
