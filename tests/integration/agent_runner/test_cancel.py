"""A cancel at any point, through a real gateway and a real runner: one end, and what was streamed is what is stored."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.db.pool import Pool
from tests.integration.agent_runner.conftest import StartRunner
from tests.integration.agent_runner.watched import conversation, gate
from tests.support.scripted_model import ScriptedModel
from tests.support.stack import ServiceProcess
from tests.support.tool_server import ToolServer
from tests.support.waiting import eventually

TOOLS = """
[http.slow]
description = "Takes its time."
url = "{url}/gate"
effect = "once"
parameters = '{{"type": "object"}}'
"""
LONG = "One two three four five six seven eight nine ten."


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    async with ToolServer() as server:
        yield server


@pytest.fixture
def tools_file(server: ToolServer, tmp_path: Path) -> str:
    path = tmp_path / "tools.toml"
    path.write_text(TOOLS.format(url=server.url))
    return str(path)


@pytest.mark.parametrize(
    ("after", "streamed"), [(0, ""), (1, "One two three fo"), (3, "One two three four five six seven eight nine ten")]
)
async def test_a_cancel_while_the_model_speaks(
    pool: Pool, gateway: ServiceProcess, start_runner: StartRunner, model: ScriptedModel, after: int, streamed: str
) -> None:
    start_runner()
    model.add(text=LONG, gate="middle", after=after)
    model.add(text="The next answer.")
    async with conversation(pool, gateway) as talk:
        run_id = await talk.post("hello")
        await eventually(gate(model, "middle"))
        began = time.monotonic()
        run = await talk.cancel(run_id)
        assert time.monotonic() - began < 2
        assert (run["state"], run["reason"]) == ("FINISHED", "cancelled")
        await talk.sees("run.finished")

        async def upstream_is_closed() -> bool:
            return bool(model.requests[0]["disconnected"])

        await eventually(upstream_is_closed, within=2)
        cut_off = [m for m in await talk.stored() if m["role"] == "assistant"]
        assert [(m["content"], m["metadata"]) for m in cut_off] == (
            [(streamed[: after * 16], {"interrupted": True})] if streamed else []
        )
        await talk.assert_shown_is_stored()

        await talk.cancel(run_id)
        await talk.post("and now?")
        await talk.sees("run.finished", 2)
        await talk.assert_shown_is_stored()
        assert talk.watcher.count("run.finished") == 2
        seqs = [event.id for event in talk.watcher.events]
        assert seqs == list(range(1, len(seqs) + 1))
    assert [request["invalid_history"] for request in model.requests] == [[], []]


async def test_an_interrupt_keeps_what_was_streamed_and_nothing_that_waited_begins(
    pool: Pool, gateway: ServiceProcess, start_runner: StartRunner, model: ScriptedModel
) -> None:
    start_runner()
    model.add(text=LONG, gate="middle", after=1)
    model.add(text="The next answer.")
    async with conversation(pool, gateway) as talk:
        speaking = await talk.post("hello")
        await eventually(gate(model, "middle"))
        waiting = [await talk.post(f"and {number}") for number in range(3)]
        last = await talk.post("stop, listen", when_busy="interrupt")
        await talk.sees("run.finished", 5)
        await talk.assert_shown_is_stored()
        answers = [m for m in await talk.stored() if m["role"] == "assistant"]
        assert [(m["content"], m["metadata"].get("interrupted")) for m in answers] == [
            ("One two three fo", True),
            ("The next answer.", None),
        ]
        log = [(event.type, event.data) for event in talk.watcher.events]
        begun = [data["run_id"] for kind, data in log if kind == "run.state" and data["state"] == "PLANNING"]
        assert begun == [speaking, last]
        ends = {data["run_id"]: data["reason"] for kind, data in log if kind == "run.finished"}
        assert ends == dict.fromkeys((speaking, *waiting), "cancelled") | {last: "completed"}
        places = [data["position"] for kind, data in log if kind == "run.queued" and data["run_id"] in waiting]
        assert places == [1, 2, 3], "none was told a place that it lost at once"
    assert [request["invalid_history"] for request in model.requests] == [[], []]


async def test_a_cancel_while_a_tool_is_at_work_and_between_steps(
    pool: Pool,
    gateway: ServiceProcess,
    start_runner: StartRunner,
    model: ScriptedModel,
    server: ToolServer,
    tools_file: str,
) -> None:
    start_runner(CHATMIND_TOOLS_FILE=tools_file)
    model.add(text="I'll do it. ", tool_calls=[{"name": "slow"}])
    model.add(text="I'll do it again. ", tool_calls=[{"name": "slow"}])
    model.add(text="never said", gate="after the tool", after=0)
    model.add(text="The last answer.")
    async with conversation(pool, gateway) as talk:
        first = await talk.post("do it")
        await talk.sees("step.started")

        async def was_called() -> bool:
            return len(server.calls) == 1

        await eventually(was_called)
        began = time.monotonic()
        run = await talk.cancel(first)
        assert time.monotonic() - began < 2
        assert run["reason"] == "cancelled"
        await talk.sees("run.finished")
        assert talk.watcher.count("step.unknown") == 1

        server.gate.set()
        second = await talk.post("do it again")
        await eventually(gate(model, "after the tool"))
        assert (await talk.cancel(second))["reason"] == "cancelled"
        await talk.post("and now?")
        await talk.sees("run.finished", 3)
        await talk.assert_shown_is_stored()
        seen = [m for m in model.requests[-1]["body"]["messages"] if m["role"] == "tool"]
        assert "outcome_unknown" in seen[0]["content"]
        assert seen[1]["content"].startswith("done")
    assert [request["invalid_history"] for request in model.requests] == [[]] * len(model.requests)


async def test_a_cancel_of_a_queued_run_and_one_after_the_end(
    pool: Pool, gateway: ServiceProcess, start_runner: StartRunner, model: ScriptedModel
) -> None:
    async with conversation(pool, gateway) as talk:
        queued = await talk.post("never answered")
        assert (await talk.cancel(queued))["reason"] == "cancelled"
        start_runner()
        model.add(text="The answer.")
        run_id = await talk.post("hello")
        await talk.sees("run.finished", 2)
        assert (await talk.cancel(run_id))["reason"] == "completed"
        await talk.assert_shown_is_stored()
        assert talk.watcher.count("run.finished") == 2
    assert [request["invalid_history"] for request in model.requests] == [[]]


async def test_where_the_runner_is_gone_the_text_is_void(
    pool: Pool, gateway: ServiceProcess, start_runner: StartRunner, model: ScriptedModel
) -> None:
    runner = start_runner()
    model.add(text=LONG, gate="middle", after=1)
    async with conversation(pool, gateway) as talk:
        run_id = await talk.post("hello")
        await eventually(gate(model, "middle"))

        async def text_is_shown() -> bool:
            return bool(talk.watcher.shown)

        await eventually(text_is_shown)
        runner.kill()
        began = time.monotonic()
        run = await talk.cancel(run_id)
        assert time.monotonic() - began < 2
        assert run["reason"] == "cancelled"
        await talk.sees("run.finished")
        assert (talk.watcher.shown, talk.watcher.void) == ({}, ["One two three fo"])
        assert [m["role"] for m in await talk.stored()] == ["user"]


async def test_a_client_of_a_run_that_goes_on_elsewhere_shows_its_text_once(
    pool: Pool, gateway: ServiceProcess, start_runner: StartRunner, model: ScriptedModel
) -> None:
    runner = start_runner()
    model.add(text=LONG, gate="middle", after=1)
    model.add(text="The whole answer.")
    async with conversation(pool, gateway) as talk:
        await talk.post("hello")
        await eventually(gate(model, "middle"))

        async def text_is_shown() -> bool:
            return bool(talk.watcher.shown)

        await eventually(text_is_shown)
        runner.kill()
        start_runner()
        await talk.sees("run.finished")
        assert talk.watcher.void == ["One two three fo"]
        assert list(talk.watcher.shown.values()) == ["The whole answer."]
        claims = [event.data for event in talk.watcher.events if event.data.get("state") == "PLANNING"]
        assert [claim["attempt"] for claim in claims] == [1, 2]
