"""A knowledge base that a client fills, and knows how many chunks each of its documents must have."""

from collections.abc import Iterable
from typing import Any, Self

from shared.ids import new_id
from tests.faults.client import TenantClient
from tests.faults.tally import Tally
from tests.support.waiting import eventually

_PARAGRAPH = "The value of part {number} is {value}; it is checked every {value} days by {mark}. "


def document_text(sections: int, mark: str) -> str:
    """Markdown of so many sections that differs with the mark only."""
    parts = [
        f"## Part {number}\n\n" + _PARAGRAPH.format(number=number, value=number * 7, mark=mark) * 8
        for number in range(sections)
    ]
    return "\n\n".join([f"# Book {mark}", *parts])


class Library:
    """`chunks[sections]` is what a document of so many sections comes to when nothing goes wrong."""

    def __init__(self, client: TenantClient, base_id: str) -> None:
        self.client = client
        self.base_id = base_id
        self.chunks: dict[int, int] = {}
        self._sections: dict[str, int] = {}

    @classmethod
    async def found(cls, client: TenantClient, sections: Iterable[int], **fields: Any) -> Self:
        """A new knowledge base with one document of each size, ready."""
        base = await client.create("/api/knowledge-bases", {"name": f"Library {client.canary}", **fields})
        library = cls(client, str(base["id"]))
        for size in sections:
            document = await library.settled(await library.upload(size))
            assert document["state"] == "ready", document
            library.chunks[size] = document["chunk_count"]
        return library

    async def upload(self, sections: int) -> str:
        """A new document; its id."""
        text = document_text(sections, f"{self.client.canary} {new_id().hex}")
        files = [("files", (f"{sections}.md", text.encode(), "text/markdown"))]
        path = f"/api/knowledge-bases/{self.base_id}/documents"
        response = await self.client.call("POST", path, files=files)
        if response.status_code != 202:
            raise AssertionError(f"POST {path}: {response.status_code} {response.text}")
        document_id = str(response.json()["items"][0]["id"])
        self._sections[document_id] = sections
        return document_id

    async def settled(self, document_id: str, within: float = 60) -> dict[str, Any]:
        """The document once it is ready or failed. Raises AssertionError when that takes longer."""

        async def settled() -> dict[str, Any] | None:
            response = await self.client.call("GET", f"/api/documents/{document_id}")
            document: dict[str, Any] = response.json()
            return document if document.get("state") in ("ready", "failed") else None

        document = await eventually(settled, within=within, every=0.2)
        assert document is not None
        return document

    async def expect(self, document_id: str, tally: Tally, within: float = 60) -> None:
        """It becomes ready with exactly its chunks."""
        try:
            document = await self.settled(document_id, within)
        except AssertionError:
            tally.lost += 1
            return
        expected = self.chunks[self._sections[document_id]]
        if (document["state"], document["chunk_count"]) != ("ready", expected):
            tally.surprise(
                f"document {document_id} is {document['state']} with {document['chunk_count']} chunks, not {expected}: {document['error']}"
            )
            return
        tally.ok += 1
