"""Tools that act on the world, called by a real runner that dies or gets no answer: what is done once, and what is said of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest

from shared.conversation import Decision, resolve_step
from shared.db.pool import Pool
from tests.integration.agent_runner.conftest import StartRunner
from tests.support.scripted_model import ScriptedModel
from tests.support.seed import SeededSession, post, seed_session
from tests.support.stack import ServiceProcess
from tests.support.tool_server import ToolServer
from tests.support.waiting import eventually

TOOLS = """
[http.{effect}_tool]
description = "Books an amount."
url = "{url}/{path}"
effect = "{effect}"
timeout = {timeout}
parameters = '{{"type": "object", "properties": {{"amount": {{"type": "integer"}}}}, "required": ["amount"]}}'
"""


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    async with ToolServer() as server:
        yield server


class Bench:
    """A session whose agent has the tools of all three effects, and runners that have them."""

    def __init__(self, pool: Pool, start_runner: StartRunner, server: ToolServer, directory: Path) -> None:
        self._pool = pool
        self._start_runner = start_runner
        self._server = server
        self._file = directory / "tools.toml"
        self.session: SeededSession

    async def prepare(self, path: str = "ok", timeout: float = 20) -> None:
        entries = [
            TOOLS.format(effect=effect, url=self._server.url, path=path, timeout=timeout)
            for effect in ("read", "keyed", "once")
        ]
        self._file.write_text("".join(entries))
        self.session = await seed_session(self._pool)
        await self._pool.execute(
            "UPDATE agent SET tools = '{read_tool,keyed_tool,once_tool}' WHERE id = $1", self.session.agent_id
        )

    def runner(self, **extra: str) -> ServiceProcess:
        return self._start_runner(CHATMIND_TOOLS_FILE=str(self._file), **extra)

    async def post(self, text: str = "book it") -> UUID:
        return await post(self._pool, self.session, text)

    async def finished(self, run_id: UUID) -> asyncpg.Record:
        async def probe() -> asyncpg.Record | None:
            return await self._pool.fetchrow("SELECT * FROM run WHERE id = $1 AND status = 'finished'", run_id)

        row = await eventually(probe, within=45)
        assert row is not None
        return row

    async def steps(self, run_id: UUID) -> list[tuple[int, str, str]]:
        rows = await self._pool.fetch("SELECT * FROM run_step WHERE run_id = $1 ORDER BY n", run_id)
        return [(row["n"], row["kind"], row["state"]) for row in rows]

    async def events(self) -> list[tuple[int, str, dict[str, Any]]]:
        rows = await self._pool.fetch(
            "SELECT * FROM session_event WHERE session_id = $1 ORDER BY seq", self.session.session_id
        )
        return [(row["seq"], row["type"], orjson.loads(row["payload"])) for row in rows]

    async def messages(self) -> list[asyncpg.Record]:
        return await self._pool.fetch(
            "SELECT * FROM chat_message WHERE session_id = $1 ORDER BY run_seq, seq", self.session.session_id
        )


@pytest.fixture
def bench(pool: Pool, start_runner: StartRunner, server: ToolServer, tmp_path: Path) -> Bench:
    return Bench(pool, start_runner, server, tmp_path)


def call(effect: str, amount: int = 5) -> dict[str, Any]:
    return {"name": f"{effect}_tool", "arguments": {"amount": amount}}


def tool_results(model: ScriptedModel, request: int = -1) -> list[Any]:
    sent = model.requests[request]["body"]["messages"]
    return [message["content"] for message in sent if message["role"] == "tool"]


def assert_strict(model: ScriptedModel) -> None:
    assert [request["invalid_history"] for request in model.requests] == [[]] * len(model.requests)


async def test_the_model_calls_an_operators_tool(bench: Bench, model: ScriptedModel, server: ToolServer) -> None:
    await bench.prepare()
    bench.runner()
    model.add(tool_calls=[call("read"), call("keyed"), call("once")])
    model.add(text="Booked.")
    run_id = await bench.post()
    assert (await bench.finished(run_id))["reason"] == "completed"
    offered = {tool["function"]["name"]: tool["function"] for tool in model.requests[0]["body"]["tools"]}
    assert offered["once_tool"]["parameters"]["required"] == ["amount"]
    assert sorted(received.headers.get("idempotency-key", "") for received in server.calls) == [
        "", f"{run_id}:1:2", f"{run_id}:1:3",
    ]  # fmt: skip
    assert {received.headers["chatmind-run-id"] for received in server.calls} == {str(run_id)}
    assert await bench.steps(run_id) == [
        (1, "think", "done"), (2, "execute", "done"), (3, "execute", "done"), (4, "execute", "done"), (5, "think", "done"),
    ]  # fmt: skip
    assert_strict(model)


@pytest.mark.parametrize(("effect", "calls"), [("read", 2), ("keyed", 2), ("once", 1)])
async def test_a_runner_is_killed_when_its_tool_has_returned(
    bench: Bench, model: ScriptedModel, server: ToolServer, effect: str, calls: int
) -> None:
    await bench.prepare()
    first = bench.runner(CHATMIND_FAILPOINT="after_tool_before_commit=kill")
    model.add(tool_calls=[call(effect)])
    model.add(text="Said after it.")
    run_id = await bench.post()
    await eventually(lambda: _died(first))
    bench.runner()
    assert (await bench.finished(run_id))["reason"] == "completed"

    assert len(server.calls) == calls
    keys = {received.headers.get("idempotency-key") for received in server.calls}
    assert keys == ({None} if effect == "read" else {f"{run_id}:1:1"})
    assert len({received.headers["chatmind-attempt"] for received in server.calls}) == calls
    state = "unknown" if effect == "once" else "done"
    assert await bench.steps(run_id) == [(1, "think", "done"), (2, "execute", state), (3, "think", "done")]
    assert ("outcome_unknown" in tool_results(model)[0]) == (effect == "once")
    log = await bench.events()
    assert [seq for seq, _, _ in log] == list(range(1, len(log) + 1))
    kinds = [kind for _, kind, _ in log]
    assert (kinds.count("step.started"), kinds.count("step.unknown")) == ((1, 1) if effect == "once" else (0, 0))
    assert_strict(model)


async def test_a_runner_is_killed_before_a_call_that_must_not_be_made_twice(
    bench: Bench, model: ScriptedModel, server: ToolServer
) -> None:
    """Nobody can know that the call was never sent: it is not made."""
    await bench.prepare()
    first = bench.runner(CHATMIND_FAILPOINT="after_start_before_tool=kill")
    model.add(tool_calls=[call("once"), call("read")])
    model.add(text="Said after it.")
    run_id = await bench.post()
    await eventually(lambda: _died(first))
    bench.runner()
    assert (await bench.finished(run_id))["reason"] == "completed"
    assert [received.path for received in server.calls] == ["ok"]  # read_tool
    assert (await bench.steps(run_id))[1:3] == [(2, "execute", "unknown"), (3, "execute", "done")]
    assert_strict(model)


@pytest.mark.parametrize("path", ["gate", "cut"])
async def test_no_answer_of_a_call_that_must_not_be_made_twice_is_an_unknown_outcome(
    bench: Bench, model: ScriptedModel, server: ToolServer, path: str
) -> None:
    await bench.prepare(path, timeout=0.5)
    bench.runner()
    model.add(tool_calls=[call("once"), call("keyed")])
    model.add(text="Said after it.")
    run_id = await bench.post()
    assert (await bench.finished(run_id))["reason"] == "completed"
    assert (await bench.steps(run_id))[1:3] == [(2, "execute", "unknown"), (3, "execute", "failed")]
    assert len(server.calls) == 2


async def test_what_the_user_says_of_an_unknown_outcome_reaches_the_model_in_later_turns(
    bench: Bench, model: ScriptedModel, pool: Pool
) -> None:
    await bench.prepare("cut")
    bench.runner()
    model.add(tool_calls=[call("once")])
    model.add(text="I can't tell.")
    model.add(text="It is booked.")
    run_id = await bench.post()
    await bench.finished(run_id)
    async with pool.acquire() as connection, connection.transaction():
        await resolve_step(
            connection, tenant_id=bench.session.tenant_id, session_id=bench.session.session_id, run_id=run_id, n=2,
            decision=Decision("done", "No. 17"), key_hash=b"",
        )  # fmt: skip
    await bench.finished(await bench.post("and now?"))
    assert [orjson.loads(content) for content in tool_results(model)] == [
        {"outcome": "done", "result": "No. 17", "said_by": "user"}
    ]
    assert_strict(model)


async def test_a_tool_that_outlasts_its_lease_is_called_once(
    bench: Bench, model: ScriptedModel, server: ToolServer, pool: Pool
) -> None:
    await bench.prepare("gate")
    leases = {
        "CHATMIND_LEASE__LEASE": "1.5",
        "CHATMIND_LEASE__RENEW_EVERY": "0.3",
        "CHATMIND_LEASE__SWEEP_EVERY": "0.3",
    }
    bench.runner(**leases)
    bench.runner(**leases)
    model.add(tool_calls=[call("once")])
    model.add(text="Booked.")
    run_id = await bench.post()

    async def lease_of_a_later_time() -> bool:
        query = "SELECT lease_until > started_at + interval '5 seconds' FROM run WHERE id = $1"
        return bool(await pool.fetchval(query, run_id))

    await eventually(lease_of_a_later_time)
    server.gate.set()
    assert (await bench.finished(run_id))["reason"] == "completed"
    assert len(server.calls) == 1
    assert await pool.fetchval("SELECT lease_epoch FROM run WHERE id = $1", run_id) == 1


async def test_a_wrong_tools_file_ends_the_start(start_runner: StartRunner, tmp_path: Path) -> None:
    (tmp_path / "tools.toml").write_text('[http.x]\nurl = "nowhere"\n')
    with pytest.raises(pytest.fail.Exception, match=r"exit code 2\)[^\[]*\[http.x\] description: Field required"):
        start_runner(CHATMIND_TOOLS_FILE=str(tmp_path / "tools.toml"))


async def _died(process: ServiceProcess) -> bool:
    await asyncio.sleep(0)
    return process.process.poll() is not None
