"""Which knowledge bases a run may read."""

from uuid import UUID

import pytest
import structlog

from services.retrieval.search import RunNotFound
from shared.contracts.questions import RunScope, SearchFilter, SearchKnowledge, TenantScope
from shared.ids import new_id
from tests.integration.retrieval.library import Base, Library
from tests.support.seed import SeededSession, post, seed_session


async def run_with_bases(library: Library, models: list[str]) -> tuple[UUID, SeededSession, list[Base]]:
    """A run of an agent that was granted one base for each model, with one chunk in each."""
    seeded = await seed_session(library.pool)
    await library.pool.execute("DELETE FROM agent_knowledge_base")
    bases = []
    for position, model in enumerate(models):
        base = await library.add_base(seeded.tenant_id, model)
        await library.add_chunks(base, [f"{model} {position}"])
        await grant(library, seeded, base, position)
        bases.append(base)
    return await post(library.pool, seeded, "Hello"), seeded, bases


async def grant(library: Library, seeded: SeededSession, base: Base, position: int) -> None:
    await library.pool.execute(
        "INSERT INTO agent_knowledge_base (tenant_id, agent_id, knowledge_base_id, position) VALUES ($1, $2, $3, $4)",
        seeded.tenant_id,
        seeded.agent_id,
        base.id,
        position,
    )


async def contents(library: Library, run_id: UUID, base_ids: tuple[UUID, ...] | None = None) -> set[str]:
    scope = RunScope(run_id=run_id, knowledge_base_ids=base_ids)
    found = await library.search().answer(SearchKnowledge(scope=scope, query="q", top_k=50))
    return {hit.content for hit in found.hits}


async def test_a_run_reads_all_its_bases_and_no_others(library: Library) -> None:
    run_id, seeded, _ = await run_with_bases(library, ["tiny", "tiny"])
    ungranted = await library.add_base(seeded.tenant_id)
    await library.add_chunks(ungranted, ["not granted"])
    await library.add_chunks(await library.add_base(), ["of another tenant"])

    assert await contents(library, run_id) == {"tiny 0", "tiny 1"}


async def test_a_run_can_ask_for_some_of_its_bases(library: Library) -> None:
    run_id, _, bases = await run_with_bases(library, ["tiny", "tiny"])

    assert await contents(library, run_id, (bases[1].id,)) == {"tiny 1"}


async def test_what_was_not_granted_is_refused_and_logged(library: Library) -> None:
    run_id, seeded, bases = await run_with_bases(library, ["tiny"])
    ungranted, foreign = await library.add_base(seeded.tenant_id), await library.add_base()
    for base in (ungranted, foreign):
        await library.add_chunks(base, ["secret"])

    with structlog.testing.capture_logs() as logs:
        assert await contents(library, run_id, (ungranted.id, bases[0].id, foreign.id)) == {"tiny 0"}
        assert await contents(library, run_id, (foreign.id,)) == set()

    refusals = [entry["knowledge_base_ids"] for entry in logs if entry["event"] == "grant.refused"]
    assert refusals == [[str(ungranted.id), str(foreign.id)], [str(foreign.id)]]


async def test_a_run_without_grants_finds_nothing(library: Library) -> None:
    run_id, _, _ = await run_with_bases(library, [])

    assert await contents(library, run_id) == set()
    assert library.embedder.asked == []


async def test_a_grant_that_was_withdrawn_ends_at_once(library: Library) -> None:
    run_id, _, _ = await run_with_bases(library, ["tiny"])
    await library.pool.execute("DELETE FROM agent_knowledge_base")

    assert await contents(library, run_id) == set()


async def test_an_unknown_run_is_refused(library: Library) -> None:
    with pytest.raises(RunNotFound) as failure:
        await contents(library, new_id())

    assert failure.value.code == "run_not_found"


async def test_a_finished_run_is_refused(library: Library) -> None:
    run_id, _, _ = await run_with_bases(library, ["tiny"])
    await library.pool.execute(
        "UPDATE run SET status = 'finished', reason = 'completed', finished_at = now() WHERE id = $1", run_id
    )

    with pytest.raises(RunNotFound):
        await contents(library, run_id)


async def test_bases_of_different_models_are_searched_together(library: Library) -> None:
    run_id, _, bases = await run_with_bases(library, ["tiny", "large", "tiny"])
    library.embedder.vectors["tiny", "q"] = [1.0] + [0.0] * 7
    library.embedder.vectors["large", "q"] = [1.0] + [0.0] * 23
    await library.add_chunks(bases[1], ["nearest"], {"nearest": [1.0, 0.01] + [0.0] * 22})
    await library.add_chunks(bases[2], ["second"], {"second": [1.0, 0.2] + [0.0] * 6})

    question = SearchKnowledge(scope=RunScope(run_id=run_id), query="q", top_k=50, mode="dense")
    found = await library.search().answer(question)

    assert [hit.content for hit in found.hits[:2]] == ["nearest", "second"]
    assert len(found.hits) == 5
    assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True)
    assert sorted(library.embedder.asked) == [("large", "q"), ("tiny", "q")]


async def test_a_filter_never_widens_what_may_be_read(library: Library) -> None:
    run_id, seeded, bases = await run_with_bases(library, ["tiny"])
    ungranted, foreign = await library.add_base(seeded.tenant_id), await library.add_base()
    for base in (ungranted, foreign):
        await library.add_chunks(base, ["secret q"])
    others = await library.pool.fetch("SELECT id FROM document WHERE knowledge_base_id <> $1", bases[0].id)

    async def found(scope: RunScope | TenantScope, document_ids: list[UUID]) -> set[str]:
        question = SearchKnowledge(scope=scope, query="q", filter=SearchFilter(document_ids=tuple(document_ids)))
        return {hit.content for hit in (await library.search().answer(question)).hits}

    own = await library.pool.fetchval("SELECT id FROM document WHERE knowledge_base_id = $1", bases[0].id)
    for scope in (RunScope(run_id=run_id), bases[0].scope):
        assert await found(scope, [row["id"] for row in others]) == set()
        assert await found(scope, [own, *(row["id"] for row in others)]) == {"tiny 0"}
