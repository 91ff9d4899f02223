"""Texts that are an attack or no text at all: cases 72, 74, 75 and 78."""

import json
from random import Random
from typing import Any

import orjson

from shared.ids import new_id
from tests.faults.bed import Bed
from tests.faults.cases.security import routes_of
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.conversation import conversation, new_wish
from tests.faults.documents import Library
from tests.faults.tally import Tally
from tests.support.scripted_replies import ScriptedCall, stream_event

BIDI = "\u202etxt.exe\u2066 \u202d\u2069"
ODD_BYTES = {
    "NUL": b"# A\0B\n\nText with \0 in it.",
    "invalid UTF-8": b"# A \xff\xfe\xc3\x28\n\nText \x80 goes on.",
    "UTF-16": "# Größe\n\nText in two bytes.".encode("utf-16"),
    "surrogates": b"# A \xed\xa0\x80 B\n\nText \xed\xbf\xbf.",
    "bidi": f"# {BIDI}\n\nText {BIDI} text.".encode(),
    "controls": bytes(range(1, 32)) + b"\n\n# Title\n\nText",
}
ODD_NAMES = (
    "../../../etc/passwd.md",
    "..\\..\\windows\\system.ini.md", "C:\\boot.md", "/abs/olute.md", "a\0b.md", "CON.md", "nul.txt", ".md",
    "...md", "%2e%2e%2fx.md", f"{'x' * 4096}.md", f"{BIDI}.md",
    "a\tb.md", " .md", "<img src=x onerror=alert(1)>.md", "'; DROP TABLE document;--.md",
)  # fmt: skip
INJECTIONS = (
    "'", "' OR '1'='1", "'; DROP TABLE run; --", '" OR 1=1', "\\'; SELECT pg_sleep(9); --",
    "1) UNION SELECT key_hash FROM api_key --", "%' --",
    "_%", "$1", "{x}", "a & | ! ( :*", "foo:*&<->", "\\", "%%s", "/* */",
)  # fmt: skip
QUICK_SECONDS = 5.0


async def _send(client: TenantClient, tally: Tally, method: str, path: str, **request: Any) -> Any:
    """A request that must be accepted or refused, and be so soon."""
    answer = await client.any_gateway().request(method, path, **request)
    client.inspect(answer.status_code, answer.text)
    tally.require(answer.status_code < 500, f"{method} {path[:80]}: {answer.status_code} {answer.text[:200]}")
    took = answer.elapsed.total_seconds()
    tally.require(took < QUICK_SECONDS, f"{method} {path[:80]} took {took:.1f} s")
    return answer


@case(72, "NUL, invalid UTF-8, UTF-16, lone surrogates, bidi controls in texts, files, names and replies", quick=True)
async def odd_text(bed: Bed, rng: Random, trials: int) -> Tally:
    """Nothing is a 500; what is accepted can be read again; a document is ready or has failed with a code."""
    tally = Tally()
    for _ in range(trials):
        client = rng.choice(bed.clients)
        library = await Library.found(client, ())
        documents = {
            name: await _upload(client, tally, library, f"{name}.md", text) for name, text in ODD_BYTES.items()
        }
        for name, document_id in documents.items():
            if document_id is not None:
                document = await library.settled(document_id)
                is_told = document["state"] == "ready" or document["error"]["code"]
                tally.require(is_told, f"{name}: {document}")
                tally.note(**{f"{name} is": document["state"]})
        async with conversation(client, tally) as talk:
            path, json_type = f"/api/sessions/{talk.session_id}/messages", {"Content-Type": "application/json"}
            for content in (
                b'{"content": "a\\u0000b"}',
                b'{"content": "\\ud800"}',
                b'{"content": "\xff"}',
                '{"content": "x"}'.encode("utf-16"),
            ):
                answer = await _send(client, tally, "POST", path, content=content, headers=json_type)
                tally.require(answer.status_code in (400, 422), f"{content!r}: {answer.status_code}")
            wish = new_wish(client, text=f"{client.canary} {BIDI} \u0007\u200b\ufffe")
            await talk.expect(await talk.say(wish), wish)
            body = stream_event({"content": "x"}).replace(b'"x"', rb'"A\ud800B\u0000C\ud83d\ude42"') + stream_event(
                {}, "stop"
            )
            odd = new_wish(client, fault={"body": body.decode(), "headers": {"Content-Type": "text/event-stream"}})
            odd.text = "A\ufffdBC\U0001f642"
            await talk.expect(await talk.say(odd), odd)
    return tally


async def _upload(client: TenantClient, tally: Tally, library: Library, name: str, text: bytes) -> str | None:
    """One file, whatever its name is; the id of its document, None when it was refused."""
    mark = new_id().hex
    head = f'--{mark}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\nContent-Type: text/markdown\r\n\r\n'
    content = head.encode("utf-8", "surrogatepass") + text + f"\r\n--{mark}--\r\n".encode()
    path, headers = (
        f"/api/knowledge-bases/{library.base_id}/documents",
        {"Content-Type": f"multipart/form-data; boundary={mark}"},
    )
    answer = await _send(client, tally, "POST", path, content=content, headers=headers)
    return str(answer.json()["items"][0]["id"]) if answer.status_code == 202 else None


@case(74, "SQL in every string parameter")
async def sql_strings(bed: Bed, rng: Random, trials: int) -> Tally:
    """The answer that any other unknown string gets; nothing is slow, nothing is gone."""
    tally = Tally()
    for _ in range(trials):
        client = rng.choice(bed.clients)
        library = await Library.found(client, (1,))
        agents = len(await client.items("/api/agents"))
        for method, path in await routes_of(client):
            if "{" in path:
                place = path[: path.index("{")]
                usual = await _send(client, tally, method, f"{place}unknown")
                for text in rng.sample(INJECTIONS, 3):
                    answer = await _send(client, tally, method, f"{place}{_quoted(text)}")
                    tally.require(
                        answer.status_code in (usual.status_code, 404, 405),
                        f"{method} {place}{text}: {answer.status_code}",
                    )
            else:
                await _query(client, tally, method, path, rng)
        created = 0
        for text in INJECTIONS:
            answer = await _send(
                client, tally, "POST", "/api/agents", json={"name": text, "description": text, "system_prompt": text}
            )
            created += answer.status_code == 201
            tally.require(
                answer.status_code == 201 and answer.json()["name"] == text,
                f"an agent named {text}: {answer.text[:200]}",
            )
            found = await _send(
                client, tally, "POST", f"/api/knowledge-bases/{library.base_id}/search", json={"query": text}
            )
            tally.require(found.status_code == 200, f"a search for {text}: {found.status_code} {found.text[:200]}")
        kept = len(await client.items("/api/agents"))
        tally.require(kept == agents + created, f"{agents} agents and {created} more are {kept}")
    return tally


async def _query(client: TenantClient, tally: Tally, method: str, path: str, rng: Random) -> None:
    if method != "GET":
        return
    for name in ("cursor", "limit", "order", "agent_id", "after"):
        usual = await _send(client, tally, "GET", path, params={name: "unknown"})
        for text in rng.sample(INJECTIONS, 3):
            answer = await _send(client, tally, "GET", path, params={name: text})
            same = answer.status_code == usual.status_code
            tally.require(same, f"GET {path}?{name}={text}: {answer.status_code}, not {usual.status_code}")


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


@case(75, "Line ends, ANSI codes and JSON in what is logged")
async def log_lines(bed: Bed, rng: Random, trials: int) -> Tally:
    """One line an event, escaped; nobody writes an event or a field of his own into the log."""
    tally = Tally()
    ends = {name: service.log_file.stat().st_size for name, service in bed.services.items()}
    mark = new_id().hex
    forged = f'x\r\n{{"event":"forged-{mark}","level":"info"}}\r\n\x1b[31m","event":"forged-{mark}'
    for _ in range(trials):
        client = rng.choice(bed.clients)
        library = await Library.found(client, ())
        for header in ("X-Request-ID", "User-Agent", "Idempotency-Key", "Last-Event-ID", "Traceparent"):
            await _send(
                client,
                tally,
                "GET",
                "/api/agents",
                headers={header: forged.replace("\r", "").replace("\n", "").replace("\x1b", "")},
            )
        for path in (
            f"/api/agents/{_quoted(forged)}",
            f"/api/{_quoted(forged)}",
            f"/api/agents?cursor={_quoted(forged)}",
        ):
            await _send(client, tally, "GET", path)
        await _upload(client, tally, library, f"{json.dumps(forged)[1:-1]}.md", b"# A\n\nText")
        async with conversation(client, tally, name=forged[:200]) as talk:
            wish = new_wish(client, text=forged, calls=[[ScriptedCall(name=forged[:150], arguments={"note": forged})]])
            await talk.expect(await talk.say(wish), wish)
    lines = 0
    for name, service in bed.services.items():
        with service.log_file.open("rb") as log:
            log.seek(ends[name])
            for line in log.read().splitlines():
                lines += 1
                tally.require(_is_honest(line, mark), f"the log of {name}: {line[:200]!r}")
    tally.require(lines, "nothing was logged")
    tally.note(lines=lines)
    return tally


def _is_honest(line: bytes, mark: str) -> bool:
    try:
        entry = orjson.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and f"forged-{mark}" not in str(entry["event"]) and not any(c < 32 for c in line)


@case(78, "Odd file names")
async def odd_names(bed: Bed, rng: Random, trials: int) -> Tally:
    """Files are stored by id; a name is a label without a path, control characters and more than 255 characters."""
    tally = Tally()
    for _ in range(trials):
        client = rng.choice(bed.clients)
        library = await Library.found(client, ())
        for number, name in enumerate(ODD_NAMES):
            document_id = await _upload(client, tally, library, name, f"# Book {number}\n\nText {new_id()}".encode())
            tally.attempted += 1
            if document_id is None:
                continue
            tally.acknowledged += 1
            document = await library.settled(document_id)
            label = document["filename"]
            is_plain = not set("/\\\0\t\r\n") & set(label) and 0 < len(label) <= 255
            tally.require(
                is_plain and document["state"] == "ready", f"{name[:60]!r}: {label[:60]!r} {document['state']}"
            )
            tally.ok += 1
        tally.require(tally.acknowledged > len(ODD_NAMES) / 2, f"only {tally.acknowledged} names were accepted")
    return tally
