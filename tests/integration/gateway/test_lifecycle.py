"""A gateway without its broker, without its database, and the command that manages keys."""

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.gateway.admin import main
from tests.integration.gateway.served import ServedGateways, admin, issue_key
from tests.support.api import RunningGateway, create_session, created, post_message, problem_of, read_all
from tests.support.stack import Stack


async def test_without_a_broker_it_serves_and_says_so(database_url: str) -> None:
    gateway = RunningGateway(database_url, "amqp://127.0.0.1:1/", search_seconds=2)
    await gateway.start()
    client = await gateway.client()
    ready = await created(client.get("/readyz"))
    assert ready == {"ready": True, "checks": {"database": True, "broker": False}}
    session = await create_session(client)
    started = time.monotonic()
    answer = await post_message(client, session["id"])
    assert time.monotonic() - started < 1
    assert (await created(client.post(f"/api/runs/{answer['run']['id']}/cancel")))["reason"] == "cancelled"
    base = await created(client.post("/api/knowledge-bases", json={"name": "b"}))
    refused = await client.post(f"/api/knowledge-bases/{base['id']}/search", json={"query": "x"})
    assert problem_of(refused, 503, "retrieval_unavailable")["cause"] == "question_undeliverable"
    await gateway.stop()


async def test_while_the_database_is_away_answers_are_503_and_then_all_is_well(stack: Stack) -> None:
    gateways = ServedGateways(stack)
    async with gateways.client() as client:
        session = await create_session(client)
        stack.postgres.stop()
        for method, path in (("GET", "/api/agents"), ("POST", f"/api/sessions/{session['id']}/messages")):
            answer = await client.request(method, path, json={"content": "x"} if method == "POST" else None)
            problem_of(answer, 503, "unavailable")
            assert int(answer.headers["retry-after"]) > 0
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["database"]) == (503, False)
        assert (await client.get("/healthz")).json() == {"alive": True}
        stack.postgres.start()
        async with asyncio.timeout(20):
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - polls a process
                await asyncio.sleep(0.1)
        await post_message(client, session["id"])
        assert len(await read_all(client, f"/api/sessions/{session['id']}/messages")) == 1
    assert gateways.processes[0].terminate() == 0
    assert '"event":"run.accepted"' in gateways.processes[0].log_tail()


async def test_it_waits_for_the_database_at_start(stack: Stack) -> None:
    environment = {"DATABASE_URL": stack.create_database(migrated=False), "RABBITMQ_URL": "amqp://127.0.0.1:1/"}
    gateway = stack.start_service("services.gateway.main", environment)
    async with asyncio.timeout(20):
        while "database.waiting" not in gateway.log_tail():  # noqa: ASYNC110 - polls a process
            await asyncio.sleep(0.1)
    assert gateway.process.poll() is None
    gateway.kill()


def test_keys_are_issued_checked_and_revoked_from_the_command_line(database_url: str) -> None:
    environment = {"DATABASE_URL": database_url}
    issued = admin(environment, "issue-key", "--tenant", "default", "--name", "local")
    key = issued.stdout.strip()
    assert re.fullmatch(r"cm_[A-Za-z0-9_-]{43}", key)
    assert admin(environment, "check-key", stdin=f"{key}\n").returncode == 0
    assert admin(environment, "revoke-key", stdin=key).returncode == 0
    assert admin(environment, "check-key", stdin=key).returncode == 1


def test_a_key_may_end_by_itself(database_url: str) -> None:
    environment = {"DATABASE_URL": database_url}
    issue = ("issue-key", "--tenant", "default", "--name", "local", "--expires-in-days")
    key = admin(environment, *issue, "0.5").stdout.strip()
    assert admin(environment, "check-key", stdin=key).returncode == 0
    shortest = admin(environment, *issue, "0.00000000001").stdout.strip()  # within a microsecond
    assert admin(environment, "check-key", stdin=shortest).returncode == 1
    for wrong in ("0", "-1", "nan", "1e9", "soon"):
        with pytest.raises(SystemExit):
            main([*issue, wrong])


def test_the_command_says_what_is_wrong(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    file = tmp_path / "key"
    file.write_text(issue_key({"DATABASE_URL": database_url}) + "\n")
    assert _admin_exit_code("check-key", "--file", str(file)) == 0
    assert _admin_exit_code("revoke-key", "--file", str(file)) == 0
    assert _admin_exit_code("revoke-key", "--file", str(file)) == 1
    assert _admin_exit_code("check-key", "--file", str(tmp_path / "none")) == 2
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
    assert _admin_exit_code("check-key", "--file", str(file)) == 2
    monkeypatch.delenv("DATABASE_URL")
    assert _admin_exit_code("check-key", "--file", str(file)) == 2
    with pytest.raises(SystemExit):
        main(["issue-key", "--tenant", " ", "--name", "x"])


def _admin_exit_code(*arguments: str) -> int:
    with ThreadPoolExecutor(1) as thread:  # it runs an event loop of its own
        return thread.submit(main, list(arguments)).result()


async def test_the_database_and_the_logs_hold_no_key(stack: Stack) -> None:
    gateways = ServedGateways(stack)
    async with gateways.client() as client:
        await create_session(client)
        problem_of(await client.get("/api/agents", headers={"Authorization": "Bearer cm_wrong"}), 401, "unauthorized")
    log = gateways.processes[0].log_file.read_text()
    secrets = [
        gateways.key,
        "cm_wrong",
        *(gateways.environment[name].split("@")[0] for name in ("DATABASE_URL", "RABBITMQ_URL")),
    ]
    for secret in secrets:
        assert secret not in log
    gateways.stop()


async def test_a_wrong_setting_ends_the_process_with_its_name(stack: Stack) -> None:
    gateway = stack.start_service(
        "services.gateway.main", {"DATABASE_URL": "mysql://secret@host/", "RABBITMQ_URL": "x"}
    )
    assert await asyncio.to_thread(gateway.process.wait, 30) == 2
    assert "DATABASE_URL" in gateway.log_tail()
    assert "secret" not in gateway.log_tail()


async def test_a_revoked_key_stops_working_within_the_cache_time(gateway: RunningGateway) -> None:
    key = await gateway.issue_key("someone")
    client = gateway.client_with(key)
    assert (await client.get("/api/agents")).status_code == 200
    await gateway.parts.pool.execute("UPDATE api_key SET revoked_at = now()")
    assert gateway.parts.settings.key_cache_seconds <= 5
    async with asyncio.timeout(6):
        while (await client.get("/api/agents")).status_code == 200:  # noqa: ASYNC110 - polls the gateway
            await asyncio.sleep(0.2)
