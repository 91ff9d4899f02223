"""Text that was made to break something: refused or stored as it is, never an error of ours, and never taken for a part of a statement."""

import asyncio
from collections.abc import Iterator
from itertools import product
from urllib.parse import quote
from uuid import UUID

import httpx

from services.gateway.openapi import DocumentedApp
from services.gateway.routes import ROUTERS
from shared.ids import new_id
from tests.support.api import (
    Json,
    RunningGateway,
    create_agent,
    create_knowledge_base,
    create_session,
    created,
    post_message,
    problem_of,
    read_all,
    upload,
)

# What UTF-8 can hold and PostgreSQL can store: it comes back as it was sent.
STRANGE = [
    "\u202eexe.txt\u202c \u2066x\u2069",  # bidirectional controls
    "\ufeffx\ufffe\uffff",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034da\u036b\u0357\u0334\u0362",
    "\x01\x1b[31mred\x1b[0m\x7f\x85",
    'line\r\n{"level":"error"}\u2028\u2029',
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U000e0001 \U0010ffff",
]
# What no text can hold.
UNREADABLE = [
    b'{"%s": "a\\u0000b"}',
    b'{"%s": "\\ud800"}',
    b'{"%s": "\\udc00\\ud800"}',
    b'{"%s": "\xff\xfe"}',
    b'{"%s": "\xed\xa0\x80"}',  # a surrogate as if it were UTF-8
    b'{"%s": "\xc0\xaf"}',  # an overlong /
    b'{"%s": "\xf5\x80\x80\x80"}',
]
SQL = [
    "' OR '1'='1",
    "'; DROP TABLE agent; --",
    '" OR 1=1 --',
    "1) UNION SELECT key_hash FROM api_key --",
    "\\'; SELECT pg_sleep(30); --",
    "$1",
    "%' AND 1=1 --",
    "_%\\",
    "{{7*7}}${7*7}",
    "asc; DROP TABLE run",
    "jsonb'{}'::text",
    "a:*|!(b",
]
JSON_HEADERS = {"Content-Type": "application/json"}


async def texts_of(client: httpx.AsyncClient) -> list[tuple[str, str, str, Json]]:
    """For every text in a body: method, path, field, and what else the body needs."""
    agent, base = await create_agent(client), await create_knowledge_base(client)
    session = await create_session(client, agent["id"])
    return [
        *(("POST", "/api/agents", field, {} if field == "name" else {"name": "a"}) for field in ("name", "description", "system_prompt")),
        *(("PATCH", f"/api/agents/{agent['id']}", field, {}) for field in ("name", "description", "system_prompt")),
        ("POST", "/api/sessions", "title", {"agent_id": agent["id"]}),
        ("PATCH", f"/api/sessions/{session['id']}", "title", {}),
        *(("POST", "/api/knowledge-bases", field, {} if field == "name" else {"name": "a"}) for field in ("name", "description")),
        *(("PATCH", f"/api/knowledge-bases/{base['id']}", field, {}) for field in ("name", "description")),
    ]  # fmt: skip


async def test_strange_text_comes_back_as_it_was_sent(client: httpx.AsyncClient) -> None:
    for (method, path, field, others), text in product(await texts_of(client), STRANGE + SQL):
        body = await created(client.request(method, path, json={**others, field: text}))
        assert body[field] == text, f"{method} {path}"
    session = await create_session(client)
    for text in STRANGE + SQL:
        assert (await post_message(client, session["id"], text))["message"]["content"] == text
    messages = await read_all(client, f"/api/sessions/{session['id']}/messages")
    assert [message["content"] for message in messages] == STRANGE + SQL


async def test_what_is_no_text_is_invalid_everywhere(client: httpx.AsyncClient) -> None:
    session = await create_session(client)
    base = await create_knowledge_base(client)
    fields = await texts_of(client)
    fields.append(("POST", f"/api/sessions/{session['id']}/messages", "content", {}))
    fields.append(("POST", f"/api/knowledge-bases/{base['id']}/search", "query", {}))
    for (method, path, field, others), body in product(fields, UNREADABLE):
        text = body.replace(b"%s", field.encode())
        for name, value in others.items():
            text = text[:-1] + f', "{name}": "{value}"}}'.encode()
        answer = await client.request(method, path, content=text, headers=JSON_HEADERS)
        problem_of(answer, 422, "invalid_request")
    for (method, path, field, others), encoding in product(fields, ("utf-16", "utf-32", "utf-8-sig")):
        whole = str({**others, field: "x"}).replace("'", '"').encode(encoding)
        problem_of(await client.request(method, path, content=whole, headers=JSON_HEADERS), 422, "invalid_request")


def string_parameters() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, place and name of every parameter that takes a string, from the OpenAPI document."""
    app = DocumentedApp()
    for router in ROUTERS:
        app.include_router(router)
    for path, item in app.openapi()["paths"].items():
        for method, operation in item.items():
            for parameter in operation.get("parameters", []):
                if '"string"' in str(parameter["schema"]).replace("'", '"'):
                    yield method.upper(), path, parameter["in"], parameter["name"]


PARAMETERS = sorted(string_parameters())


def test_there_are_parameters() -> None:
    assert {(place, name) for _, _, place, name in PARAMETERS} >= {
        ("path", "session_id"),
        ("query", "cursor"),
        ("query", "agent_id"),
        ("query", "order"),
        ("query", "after"),
        ("header", "idempotency-key"),
        ("header", "last-event-id"),
    }


async def test_statements_in_a_parameter_are_like_any_unknown_string(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    ids = await ids_of(client)
    before = await rows_of(gateway)
    for method, path, place, name in PARAMETERS:
        if (place, name) in {("header", "idempotency-key"), ("query", "tag")}:
            continue  # any text of visible characters is a key, and any a tag: below
        request = BODIES.get((method, path), {})
        expected = await client.request(method, **sent(path, ids, place, name, "unknown string"), **request)
        assert 400 <= expected.status_code < 500
        for text in SQL:
            answer = await client.request(method, **sent(path, ids, place, name, text), **request)
            where = f"{method} {path} {name}={text}"
            assert (answer.status_code, answer.json()["code"]) == (expected.status_code, expected.json()["code"]), where
    assert await rows_of(gateway) == before


async def test_statements_as_tags_are_tags_that_no_document_has(client: httpx.AsyncClient) -> None:
    ids = await ids_of(client)
    for text in SQL:
        path = f"/api/knowledge-bases/{ids['knowledge_base_id']}/documents"
        answer = await client.get(path, params={"tag": text})
        assert (answer.status_code, answer.json()["items"]) == (200, []), text


async def test_statements_as_idempotency_keys_are_keys(client: httpx.AsyncClient) -> None:
    for number, text in enumerate(SQL):
        headers = {"Idempotency-Key": text}
        answers = [await client.post("/api/agents", json={"name": f"{number}"}, headers=headers) for _ in range(2)]
        if " " in text:
            problem_of(answers[0], 422, "invalid_request")
        else:
            assert (answers[0].status_code, answers[1].content) == (201, answers[0].content)


def sent(path: str, ids: dict[str, str], place: str, name: str, text: str) -> Json:
    """A request with this text in one parameter."""
    if place == "path":
        return {"url": path.format(**{**ids, name: quote(text, safe="")})}
    return {"url": path.format(**ids), "params" if place == "query" else "headers": {name: text}}


async def rows_of(gateway: RunningGateway) -> list[int]:
    tables = ("agent", "chat_session", "chat_message", "run", "knowledge_base", "document", "api_key")
    return [await gateway.parts.pool.fetchval(f"SELECT count(*) FROM {table}") for table in tables]


BODIES: dict[tuple[str, str], Json] = {
    ("POST", "/api/agents"): {"json": {"name": "a"}},
    ("POST", "/api/knowledge-bases"): {"json": {"name": "a"}},
    ("PATCH", "/api/agents/{agent_id}"): {"json": {"name": "a"}},
    ("PATCH", "/api/sessions/{session_id}"): {"json": {"title": "a"}},
    ("PATCH", "/api/knowledge-bases/{knowledge_base_id}"): {"json": {"name": "a"}},
    ("POST", "/api/sessions/{session_id}/messages"): {"json": {"content": "a"}},
    ("POST", "/api/knowledge-bases/{knowledge_base_id}/search"): {"json": {"query": "a"}},
    ("POST", "/api/knowledge-bases/{knowledge_base_id}/documents"): {"files": {"files": ("a.md", b"a")}},
    ("PUT", "/api/documents/{document_id}/content"): {"files": {"file": ("a.md", b"a")}},
}


async def ids_of(client: httpx.AsyncClient) -> dict[str, str]:
    base = await create_knowledge_base(client)
    session = await create_session(client)
    return {
        "agent_id": session["agent_id"],
        "session_id": session["id"],
        "run_id": str(new_id()),
        "knowledge_base_id": base["id"],
        "document_id": (await upload(client, base["id"]))["id"],
        "n": "1",
    }


async def test_statements_in_references_are_unknown_names(client: httpx.AsyncClient) -> None:
    session = await create_session(client)
    for text in SQL:
        for body, code in (
            ({"name": "a", "model": text}, "unknown_model"),
            ({"name": "a", "tools": [text]}, "unknown_tool"),
            ({"name": "a", "knowledge_base_ids": [text]}, "invalid_request"),
        ):
            problem_of(await client.post("/api/agents", json=body), 422, code)
        wrong = {"name": "a", "embedding_model": text}
        problem_of(await client.post("/api/knowledge-bases", json=wrong), 422, "unknown_model")
        problem_of(await client.post("/api/sessions", json={"agent_id": text}), 422, "invalid_request")
        answer = await client.post(f"/api/sessions/{session['id']}/messages", json={"content": "x", "when_busy": text})
        problem_of(answer, 422, "invalid_request")


NAMES = [
    b"../../etc/passwd.md",
    b"..\\..\\windows\\win.ini.md",
    b"/etc/cron.d/x.md",
    b"C:\\x.md",
    b"CON.md",
    b"nul.txt",
    b"a" * 4096 + b".md",
    "长".encode() * 2000 + b".md",
    b"%2e%2e%2fx.md",
    b".md",
    b"..md",
    b"-rf.md",
    b"a\x00b.md",
    b"a\xff\xfe.md",
    b"\xed\xa0\x80.md",
    "\u202ecod.md".encode(),
    b"<script>alert(1)</script>.md",
    b"a'; DROP TABLE document; --.md",
    b"a\tb\x1b[31m.md",
    b"~/.ssh/id.md",
    b"....//....//x.md",
    b"x.md/.",
    b"x.md\\..",
]


async def test_odd_file_names_are_a_label_and_nothing_else(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    outcomes = [await upload_named(client, gateway, name) for name in NAMES]
    assert outcomes.count(202) >= len(NAMES) - 6, "most of them are names of a kind that is taken"


async def upload_named(client: httpx.AsyncClient, gateway: RunningGateway, name: bytes) -> int:
    """Uploads a file under a name, looks at what became of it, and returns the answer's status."""
    base = await create_knowledge_base(client)
    path = f"/api/knowledge-bases/{base['id']}/documents"
    quoted = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    body = (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="'
        + quoted
        + b'"\r\n\r\ntext of it\r\n--b--\r\n'
    )
    answer = await client.post(path, content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert answer.status_code in (202, 400, 415, 422), answer.text
    if answer.status_code != 202:
        problem_of(answer, answer.status_code, answer.json()["code"])
        assert await read_all(client, path) == []
        return answer.status_code
    [document] = answer.json()["items"]
    shown = document["filename"]
    assert 0 < len(shown) <= 255
    assert not set(shown) & set("/\\\0\x1b\t\r\n")
    assert shown not in (".", "..")
    assert await read_all(client, path) == [document] == [await created(client.get(f"/api/documents/{document['id']}"))]
    stored = await gateway.parts.pool.fetchval(
        "SELECT data FROM document_blob WHERE document_id = $1", UUID(document["id"])
    )
    assert stored == b"text of it"
    return answer.status_code


CONTENTS = [
    b"a\x00b",
    b"\xff\xfe\xfd",
    "text".encode("utf-16"),
    "text".encode("utf-32"),
    b"\xed\xa0\x80\xed\xb0\x80",
    "\u202eabc".encode(),
    b"\xef\xbb\xbf# x",
]


async def test_bytes_of_files_are_taken_as_they_are(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    base = await create_knowledge_base(client)
    documents = await asyncio.gather(
        *(upload(client, base["id"], content, f"{n}.md") for n, content in enumerate(CONTENTS))
    )
    for document, content in zip(documents, CONTENTS, strict=True):
        stored = await gateway.parts.pool.fetchval(
            "SELECT data FROM document_blob WHERE document_id = $1", UUID(document["id"])
        )
        assert stored == content
