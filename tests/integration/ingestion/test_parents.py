"""Small chunks that are searched and the larger pieces around them, which come and go with their document."""

from tests.integration.ingestion.conftest import Home
from tests.integration.ingestion.library import Library

ROWS = "".join(f"| field_{number} | what field {number} means |\n" for number in range(40))
TEXT = f"# Orders\n\n{'An order has a state. ' * 40}\n\n## Fields\n\n| name | meaning |\n|------|---------|\n{ROWS}"

PARENTS = "SELECT * FROM chunk_parent WHERE document_id = $1 ORDER BY ordinal"


async def test_children_name_the_parent_that_they_are_a_part_of(shared_home: Home) -> None:
    library = await Library.create(
        shared_home.pool, "body", method="parent_child", chunk_size=100, parent_size=400, max_section=100
    )
    document_id = await library.upload(TEXT)
    await library.until(document_id, "ready")
    chunks = await library.chunks(document_id)
    parents = {row["id"]: row for row in await shared_home.pool.fetch(PARENTS, document_id)}
    assert [parent["ordinal"] for parent in parents.values()] == list(range(len(parents)))
    assert {chunk["parent_id"] for chunk in chunks} == set(parents)
    assert {parent["title"] for parent in parents.values()} == {"Orders", "Fields"}
    for chunk in chunks:
        parent = parents[chunk["parent_id"]]
        assert chunk["content"][chunk["header_chars"] :] in parent["content"]
        assert parent["char_start"] <= chunk["char_start"] < chunk["char_end"] <= parent["char_end"]
        assert chunk["content"][chunk["header_chars"] :] == TEXT[chunk["char_start"] : chunk["char_end"]]
    rows = [chunk for chunk in chunks if chunk["content"].startswith("| name | meaning |")]
    assert len(rows) > 10
    assert len([chunk for chunk in rows if chunk["header_chars"]]) == len(rows) - 1


async def test_parents_are_replaced_and_deleted_with_their_document(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool, "body", method="parent_child")
    document_id = await library.upload(TEXT)
    await library.until(document_id, "ready")
    await library.replace(document_id, "# Invoices\n\nAn invoice is paid or not.\n")
    await library.until(document_id, "ready")
    parents = await shared_home.pool.fetch(
        "SELECT title, version FROM chunk_parent WHERE document_id = $1", document_id
    )
    assert [(parent["title"], parent["version"]) for parent in parents] == [("Invoices", 2)]
    await library.delete(document_id)
    assert await shared_home.pool.fetchval("SELECT count(*) FROM chunk_parent WHERE document_id = $1", document_id) == 0
