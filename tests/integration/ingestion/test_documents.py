"""Documents on their way to chunks, by a real service process: what is stored, what is announced, and what goes wrong properly."""

import random

import aio_pika
import pytest

from shared.contracts.hints import HINT, EventFrame, StreamAdvanced
from shared.topology import DEAD_LETTERS, DOCUMENTS, HINTS
from tests.integration.ingestion.conftest import BATCH, Home
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.support.embedding_server import Answer, EmbeddingServer, vector_of

HANDBOOK = """# Shop handbook

Everything about the shop.

## 1. Orders

An order has a number and a date.

### 1.1 Returns

Goods come back within 30 days.

## 2. 支付

支付方式有三种。
"""


async def test_markdown_becomes_chunks_with_vectors_and_keywords(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    document_id = await library.upload(HANDBOOK)
    document = await library.until(document_id, "ready")
    chunks = await library.chunks(document_id)

    assert [(chunk["title"], chunk["heading_path"]) for chunk in chunks] == [
        ("Shop handbook", ["Shop handbook"]),
        ("Orders", ["Shop handbook", "1. Orders"]),
        ("Returns", ["Shop handbook", "1. Orders", "1.1 Returns"]),
        ("支付", ["Shop handbook", "2. 支付"]),
    ]
    assert all(HANDBOOK[chunk["char_start"] : chunk["char_end"]] == chunk["content"] for chunk in chunks)
    assert (document["current_version"], document["chunk_count"], document["error"]) == (1, 4, None)
    assert (document["progress_done"], document["progress_total"], document["attempts"]) == (4, 4, 0)
    assert (document["lease_owner"], document["lease_until"]) == (None, None)
    found = await shared_home.pool.fetchval(
        "SELECT array_agg(ordinal) FROM chunk WHERE document_id = $1 AND keywords @@ '支付'::tsquery", document_id
    )
    assert found == [3]


async def test_vectors_are_those_of_the_texts_of_each_field(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    document_id = await library.upload(HANDBOOK)
    await library.until(document_id, "ready")
    vectors = await library.vectors(document_id)
    assert set(vectors) == {(ordinal, field) for ordinal in range(4) for field in ("title", "body")}
    title = vector_of("passage: Shop handbook > 1. Orders > Returns", 8)
    assert vectors[2, "title"] == pytest.approx(title, abs=1e-6)
    assert vectors[2, "body"] == pytest.approx(vector_of("passage: Goods come back within 30 days.", 8), abs=1e-6)


async def test_a_text_file_is_found_by_its_body_whatever_the_mode(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool, embed="title")
    document_id = await library.upload("One line.\n\nAnother line.\n", "notes.txt")
    await library.until(document_id, "ready")
    (chunk,) = await library.chunks(document_id)
    assert (chunk["title"], chunk["heading_path"], chunk["content"]) == ("", [], "One line.\n\nAnother line.")
    assert set(await library.vectors(document_id)) == {(0, "body")}


async def test_every_state_and_the_last_progress_are_events_in_order(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    document_id = await library.upload(chapters("step", 3 * BATCH))
    await library.until(document_id, "ready")
    events = await library.events(document_id)
    states = [event["state"] for event in events]
    assert list(dict.fromkeys(states)) == ["parsing", "splitting", "embedding", "ready"]
    embedding = [event["progress"] for event in events if event["state"] == "embedding"]
    total = 3 * BATCH
    assert (embedding[0], embedding[-1]) == ({"done": 0, "total": total}, {"done": total, "total": total})
    assert [step["done"] for step in embedding] == sorted(step["done"] for step in embedding)
    assert (events[-1]["chunk_count"], events[-1]["current_version"]) == (total, 1)


async def test_each_event_is_sent_along_as_a_hint(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    frames: list[EventFrame] = []

    async def collect(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        hint = HINT.validate_json(message.body)
        if isinstance(hint, StreamAdvanced) and hint.stream_id == library.id:
            frames.extend(hint.events)

    async def all_arrived() -> bool:
        return any('"state":"ready"' in frame.data.replace(" ", "") for frame in frames)

    async with await aio_pika.connect(shared_home.environment["RABBITMQ_URL"]) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(HINTS)
        await queue.consume(collect, no_ack=True)
        document_id = await library.upload(HANDBOOK)
        await library.until(document_id, "ready")
        await eventually(all_arrived, "the last hint has arrived")
    stored = await shared_home.pool.fetchval(
        "SELECT last_seq FROM knowledge_base WHERE tenant_id = $1 AND id = $2", library.tenant_id, library.id
    )
    assert [frame.seq for frame in frames] == list(range(1, stored + 1))
    assert {frame.type for frame in frames} == {"document.state"}


@pytest.mark.parametrize("answer", ["nan", "zero", "wrong_dimension", "fewer", "twice_the_same_index"])
async def test_broken_vectors_fail_the_document_and_leave_nothing(
    shared_home: Home, embeddings: EmbeddingServer, answer: Answer
) -> None:
    library = await Library.create(shared_home.pool)
    embeddings.answer = answer
    document_id = await library.upload(f"# {answer}\n\ntext of {answer}\n\n# Second {answer}\n\nmore {answer}\n")
    document = await library.until(document_id, "failed")
    assert document["error"]["code"] == "embedding_invalid"
    assert document["error"]["message"]
    assert document["current_version"] is None
    assert (await library.chunks(document_id), await library.vectors(document_id)) == ([], {})
    cached = await shared_home.pool.fetchval("SELECT count(*) FROM embedding_cache WHERE model LIKE '%nan%'")
    assert cached == 0


async def test_answers_out_of_order_are_put_in_order(shared_home: Home, embeddings: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    embeddings.answer = "shuffled"
    document_id = await library.upload("# A\n\nshuffled one\n\n# B\n\nshuffled two\n")
    await library.until(document_id, "ready")
    vectors = await library.vectors(document_id)
    assert vectors[0, "body"] == pytest.approx(vector_of("passage: shuffled one", 8), abs=1e-6)
    assert vectors[1, "body"] == pytest.approx(vector_of("passage: shuffled two", 8), abs=1e-6)


async def test_a_refused_key_fails_the_document_at_once(shared_home: Home, embeddings: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool)
    embeddings.answer = "unauthorized"
    asked = len(embeddings.requests)
    document_id = await library.upload("# Locked\n\nbehind a wrong key\n")
    document = await library.until(document_id, "failed")
    assert "unauthorized" in document["error"]["code"]
    assert len(embeddings.requests) == asked + 1


@pytest.mark.parametrize(
    ("data", "filename", "code"),
    [
        (b" \n\t\n", "empty.md", "empty_document"),
        (b"%PDF-1.7 not text at all", "fake.txt", "corrupt"),
        (b"\x89PNG\r\n not text at all", "fake.txt", "unsupported_media_type"),
        (b"\x00\x01\x02\x03\xff\xfe" * 50, "binary.txt", None),
        (b"# " + b"x" * (2 * 1024 * 1024), "line.md", "line_too_long"),
    ],
)
async def test_a_document_that_cannot_be_read_fails_with_a_code(
    shared_home: Home, data: bytes, filename: str, code: str | None
) -> None:
    library = await Library.create(shared_home.pool)
    document = await library.until(await library.upload(data, filename), "failed")
    assert document["error"]["code"] == (code or document["error"]["code"])
    assert (document["lease_owner"], document["attempts"]) == (None, 1)


async def test_a_model_that_is_not_configured_fails_the_document(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    await shared_home.pool.execute("UPDATE knowledge_base SET embedding_model = 'gone' WHERE id = $1", library.id)
    document = await library.until(await library.upload(HANDBOOK), "failed")
    assert "gone" in document["error"]["message"]


async def test_texts_that_were_embedded_before_are_not_asked_for_again(
    shared_home: Home, embeddings: EmbeddingServer
) -> None:
    library = await Library.create(shared_home.pool)
    text = "# Once\n\nsaid and never again\n"
    await library.until(await library.upload(text), "ready")
    asked = len(embeddings.texts)
    second = await library.upload(text + "\n", "b.md")
    await library.until(second, "ready")
    assert len(embeddings.texts) == asked
    assert len(await library.vectors(second)) == 2


async def test_a_large_document_is_stored_whole(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool, embed="title")
    document_id = await library.upload("\n".join(f"# Same title\n\nSection {number}.\n" for number in range(2345)))
    await library.until(document_id, "ready")
    assert [chunk["ordinal"] for chunk in await library.chunks(document_id)] == list(range(2345))
    assert len(await library.vectors(document_id)) == 2345


async def test_duplicate_and_shuffled_wake_ups_change_nothing(shared_home: Home, embeddings: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    asked = len(embeddings.texts)
    document_ids = [await library.upload(f"# W{number}\n\nwake {number}\n", f"{number}.md") for number in range(10)]
    repeated = document_ids * 3
    random.Random(7).shuffle(repeated)
    for document_id in repeated:
        await library.wake(document_id)
    for document_id in document_ids:
        await library.until(document_id, "ready")
    await _queue_is_drained(shared_home)
    for document_id in document_ids:
        assert [event["state"] for event in await library.events(document_id)].count("ready") == 1
        assert len(await library.chunks(document_id)) == 1
    assert len(embeddings.texts) == asked + 10


@pytest.mark.parametrize(
    "body", [b"", b"garbage", b"[]", b'{"tenant_id": "x"}', b'{"schema_version": 2}', b"\xff\xfe\x00"]
)
async def test_a_message_that_cannot_be_read_goes_to_dead_letters(shared_home: Home, body: bytes) -> None:
    async with await aio_pika.connect(shared_home.environment["RABBITMQ_URL"]) as connection:
        channel = await connection.channel()
        dead = await channel.get_queue(DEAD_LETTERS)
        await channel.default_exchange.publish(aio_pika.Message(body), routing_key=DOCUMENTS)

        async def arrived() -> bool:
            message = await dead.get(fail=False, no_ack=True)
            return message is not None and message.body == body

        await eventually(arrived, "the message is a dead letter")
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(HANDBOOK), "ready")


async def test_a_wake_up_that_names_what_is_not_waiting_does_nothing(shared_home: Home) -> None:
    """A wake-up says "look" and no more: neither another tenant's id nor an old one moves a document."""
    owner = await Library.create(shared_home.pool)
    stranger = await Library.create(shared_home.pool)
    document_id = await owner.upload(HANDBOOK)
    before = await owner.until(document_id, "ready")
    await stranger.wake(document_id)
    await owner.wake(document_id)
    await _queue_is_drained(shared_home)
    assert await owner.document(document_id) == before


async def _queue_is_drained(home: Home) -> None:
    """No wake-up is left in the outbox or in the broker."""

    async def drained() -> bool:
        if await home.pool.fetchval("SELECT count(*) FROM outbox"):
            return False
        async with await aio_pika.connect(home.environment["RABBITMQ_URL"]) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(DOCUMENTS, passive=True)
            # Messages that are being handled are not counted: a closing consumer would give them back.
            return queue.declaration_result.message_count == 0

    await eventually(drained, "all wake-ups are taken")
