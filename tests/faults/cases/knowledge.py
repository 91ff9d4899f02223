"""Documents that are long in the making: case 81."""

from random import Random

from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.documents import Library
from tests.faults.tally import Tally
from tests.support.waiting import eventually

_CHUNKS_A_KILL = 500
_CHUNKS_A_SECTION = 3
_FIRST_BATCH, _LATER_BATCH = 32, 8  # what a kill may cost: the batch that is being asked for
_MOST = 1.02


@case(81, "Kill ingestion again and again in the middle of one document", trials=20, quick=True, seconds=1800)
async def again_and_again(bed: Bed, rng: Random, trials: int) -> Tally:
    """What was embedded is not asked for again: with 20 kills in 10,000 chunks, at most 2 % more than there are."""
    tally = Tally()
    library = await Library.found(rng.choice(bed.clients), (), settings={"embed": "body"})
    asked = bed.embeddings.texts
    sections, before = -(-_CHUNKS_A_KILL * trials // _CHUNKS_A_SECTION), len(asked)
    document_id = await library.upload(sections)
    tally.attempted += 1
    tally.acknowledged += 1
    for position in sorted(rng.randrange(1, _CHUNKS_A_KILL * trials * 9 // 10) for _ in range(trials)):
        began = len(asked)

        async def is_there(at: int = max(before + position, began + 1)) -> bool:
            return len(asked) >= at

        await eventually(is_there, within=300, every=0.001)
        await lasts(rng.uniform(0, 0.05))  # somewhere in a batch, or between two
        await bed.kill("ingestion-0")
        tally.recovered += 1
        await bed.start("ingestion-0")
    document = await library.settled(document_id, within=300)
    chunks, texts = document["chunk_count"], asked[before:]
    tally.note(chunks=chunks, texts=len(texts), ratio=round(len(texts) / max(chunks, 1), 4))
    if document["state"] != "ready" or chunks < _CHUNKS_A_KILL * trials:
        tally.surprise(f"the document is {document['state']} with {chunks} chunks: {document['error']}")
        return tally
    most = chunks + _FIRST_BATCH + _LATER_BATCH * (trials - 1)
    tally.require(len(texts) <= most, f"{len(texts)} texts for {chunks} chunks and {trials} kills")
    if trials >= 20:
        tally.require(len(texts) <= _MOST * chunks, f"{len(texts)} texts for {chunks} chunks")
    tally.ok += 1
    return tally
