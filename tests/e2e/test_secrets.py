"""Case 65: what was answered leaves no secret in the database or in a log. Case 75: what others say can't forge a log line."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.e2e.system import MODEL_KEY, System, ask, assert_clean, make_session, session_events, stored_messages
from tests.support.scripted_model import ScriptedModel

# What each field carries: a second log line, a terminal's escape, the end of a JSON string, and a mark to find it by.
FORGED = '\r\n{"event":"forged.line","level":"error"}\r\n\x1b[2J\x1b[31m","event":"forged.field","x":"'


def dump_database(url: str) -> Iterator[tuple[str, str]]:
    """Every row of every table as text, with its table."""
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            # Bytes are searched as text too: what a document or a hash column holds is shown as it is.
            connection.execute("SET bytea_output = 'escape'")
            for (row,) in connection.execute(
                sql.SQL("SELECT whole::text FROM {} AS whole").format(sql.Identifier(table))
            ):
                yield table, row


def logs_of(system: System) -> dict[str, str]:
    """The logs of services and servers, and what else stands below the stack's folder for services to read, by name."""
    services = Path(system.stack.directory / "services").glob("*.log")
    servers = (system.stack.postgres.log_file, system.stack.rabbitmq.log_file)
    return {file.name: file.read_text(errors="replace") for file in (*services, *servers)}


def passwords_of(system: System) -> set[str]:
    return {file.read_text() for file in system.stack.directory.glob("*.password")}


async def answer_a_question(system: System, knowledge_base_id: str, model: ScriptedModel) -> None:
    here, there = system.clients
    session_id = await make_session(here, knowledge_base_id, "scripted")
    model.add(tool_calls=[{"name": "KnowledgeTool", "arguments": {"query": "descaling"}}])
    model.add(text="Every 60 days [1].")
    await ask(here, session_id, "How often?")
    assert_clean(
        await session_events(there, session_id), await stored_messages(here, session_id), reasons=["completed"]
    )


async def test_no_secret_is_stored_or_logged(system: System, knowledge_base_id: str, model: ScriptedModel) -> None:
    await answer_a_question(system, knowledge_base_id, model)
    refused = await system.clients[0].get("/api/agents", headers={"Authorization": "Bearer cm_wrong-key-of-a-caller"})
    assert refused.status_code == 401
    api_key = str(system.clients[0].headers["Authorization"]).removeprefix("Bearer ")
    passwords = passwords_of(system)
    assert len(passwords) == 10, "two owners and four services at two servers"
    secrets = {api_key, MODEL_KEY, "wrong-key-of-a-caller", *passwords}
    assert model.requests[-1]["headers"]["authorization"] == f"Bearer {MODEL_KEY}", "the key was really in use"

    rows = list(dump_database(system.environment["DATABASE_URL"]))
    logs = logs_of(system)

    assert {"chat_message", "api_key", "chunk", "run_step"} <= {table for table, _ in rows}
    assert sum(len(text) for text in logs.values()) > 1000
    found = [table for table, row in rows if any(secret in row for secret in secrets)]
    found += [name for name, text in logs.items() if any(secret in text for secret in secrets)]
    assert found == []


async def test_nobody_can_forge_a_log_line(system: System, knowledge_base_id: str, model: ScriptedModel) -> None:
    mark = uuid.uuid4().hex
    here, there = system.clients
    text = mark + FORGED
    # A header can't hold line ends; the rest of it, the client's library lets through.
    await here.get("/api/agents", headers={"X-Request-ID": mark + FORGED.replace("\r\n", " ").replace("\x1b", "?")})
    await here.get("/api/agents/" + "%0d%0a" + mark + "%1b%5b2J")
    filename = (mark + FORGED).replace('"', "'")
    files = [("files", (filename, b"%PDF-nonsense", "application/pdf"))]
    await here.post(f"/api/knowledge-bases/{knowledge_base_id}/documents", files=files)
    session_id = await make_session(here, knowledge_base_id, "scripted")
    model.add(tool_calls=[{"name": text, "arguments": {"query": text}}])
    model.add(status=400, body=json.dumps({"error": {"message": text, "code": text}}))
    await ask(here, session_id, text)
    events = await session_events(there, session_id)
    assert events[-1].type == "run.finished"

    services = (
        *system.gateways,
        *system.runners,
        *system.others,
    )  # other tests' processes fail in plain words on purpose
    lines = [line for service in services for line in service.log_file.read_bytes().splitlines()]
    entries = [json.loads(line) for line in lines]
    assert {entry["service"] for entry in entries} >= {"gateway", "agent-runner", "ingestion", "retrieval"}
    assert not [entry for entry in entries if str(entry["event"]).startswith("forged")]
    assert not [line for line in lines if b"\x1b" in line or b"\r" in line]
    tools = [entry for entry in entries if mark in str(entry.get("tool", ""))]
    assert tools, "the model's words were logged, as one field"
    assert tools[0]["tool"].startswith(mark)


@pytest.mark.parametrize("text", ["a b", '","event":"forged', "\u2028", "\x85", "x" * 65])
async def test_a_request_id_is_taken_as_it_is_only_when_it_is_harmless(system: System, text: str) -> None:
    answer = await system.clients[0].get("/api/agents", headers=[(b"X-Request-ID", text.encode())])
    assert answer.status_code == 200
    assert uuid.UUID(answer.headers["X-Request-ID"])


async def test_a_control_character_in_a_header_is_no_request(system: System) -> None:
    answer = await system.clients[0].get("/api/agents", headers=[(b"X-Request-ID", b"\x1b[2J")])
    assert answer.status_code == 400
