"""Where a hit leads: the bytes of its document, and the chunk itself."""

from collections.abc import AsyncIterator
from uuid import UUID

import httpx
import pytest

from services.gateway.store.files import FileChanged, StoredFile, find_file
from shared.ids import new_id
from tests.integration.gateway.served import ServedGateways
from tests.integration.gateway.test_documents import add_chunks, set_state
from tests.support.api import Json, RunningGateway, create_knowledge_base, created, problem_of, read_all, upload
from tests.support.stack import Stack
from tests.support.waiting import eventually

MIB = 1024 * 1024
CONTENT = bytes(range(256)) * 8500  # two full parts and a bit


async def test_a_file_is_sent_as_it_was_uploaded_and_only_to_be_saved(writer: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(writer)
    for name, media_type in (
        ('订单 "设计".md', "text/markdown"),
        ("a.html", "text/html"),
        ("a.pdf", "application/pdf"),
    ):
        content = name.encode() + CONTENT
        document = await upload(writer, base["id"], content, name)
        answer = await writer.get(f"/api/documents/{document['id']}/file")
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-type"] == media_type
        assert int(answer.headers["content-length"]) == len(content)
        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]


async def started(gateway: RunningGateway, document: Json) -> tuple[AsyncIterator[bytes], bytes]:
    """The parts of a file, of which the first was sent."""
    async with gateway.parts.pool.acquire() as connection:
        tenant_id = await connection.fetchval("SELECT tenant_id FROM document WHERE id = $1", UUID(document["id"]))
        file = await find_file(connection, tenant_id, UUID(document["id"]))
    assert isinstance(file, StoredFile)
    parts = file.parts(gateway.parts.pool)
    first = await anext(parts)
    assert len(first) == MIB
    return parts, first


async def test_a_file_goes_on_while_its_document_is_read_again(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], CONTENT)
    await set_state(quiet_gateway, document["id"], "ready")
    parts, first = await started(quiet_gateway, document)
    assert (await created(writer.post(f"/api/documents/{document['id']}/reprocess")))["version"] == 2
    assert first + b"".join([part async for part in parts]) == CONTENT


@pytest.mark.parametrize("change", ["replaced", "deleted"])
async def test_a_file_that_changes_on_its_way_is_not_mixed(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway, change: str
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], CONTENT)
    parts, _ = await started(quiet_gateway, document)
    path = f"/api/documents/{document['id']}"
    if change == "replaced":
        await created(writer.put(f"{path}/content", files={"file": ("a.md", CONTENT[::-1])}))
    else:
        await writer.delete(path)
    with pytest.raises(FileChanged):
        await anext(parts)


async def test_a_chunk_is_shown_as_lists_show_it_while_searches_find_it(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    await add_chunks(quiet_gateway, document["id"], 2)
    await set_state(quiet_gateway, document["id"], "ready", current_version=1)
    chunks = await read_all(writer, f"/api/documents/{document['id']}/chunks")
    for chunk in chunks:
        assert await created(writer.get(f"/api/chunks/{chunk['id']}")) == chunk
    stranger = await quiet_gateway.client("another")
    foreign = await stranger.get(f"/api/chunks/{chunks[0]['id']}")
    problem_of(foreign, 404, "not_found")
    assert foreign.content == (await stranger.get(f"/api/chunks/{new_id()}")).content
    await set_state(quiet_gateway, document["id"], "ready", current_version=2)
    problem_of(await writer.get(f"/api/chunks/{chunks[0]['id']}"), 404, "not_found")


async def test_over_a_socket_a_changed_file_ends_early_and_a_tenant_has_so_many_at_once(stack: Stack) -> None:
    gateways = ServedGateways(stack, LOAD__DOWNLOADS_PER_TENANT="2", LOAD__BODY_TIMEOUT="3")
    try:
        async with gateways.client() as client:
            base = await create_knowledge_base(client)
            document = await upload(client, base["id"], CONTENT * 12)  # more than sockets hold
            path = f"/api/documents/{document['id']}"
            async with client.stream("GET", f"{path}/file") as changed, client.stream("GET", f"{path}/file") as stalled:
                problem_of(await client.get(f"{path}/file"), 429, "too_many_downloads")
                await created(client.put(f"{path}/content", files={"file": ("a.md", b"newer")}))
                with pytest.raises(httpx.RemoteProtocolError):
                    await changed.aread()

                async def has_room() -> bool:
                    return (await client.get(f"{path}/file")).content == b"newer"

                await eventually(has_room)
                assert stalled.status_code == 200
        log = gateways.processes[0].log_file.read_text()
        assert '"event":"file.changed"' in log
        assert '"event":"request.failed"' not in log
    finally:
        gateways.stop()
