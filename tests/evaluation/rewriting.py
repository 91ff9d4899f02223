"""How far rewriting a query helps: follow-up questions, asked after the turn that they refer to by agents that rewrite differently.

`python -m tests.evaluation.rewriting --model-url http://127.0.0.1:8080/v1 --model NAME [--set en-gitlab-handbook]`; without a URL
the offline model is measured, which rewrites by rule. The model only rewrites: see `verbatim_searcher`.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.system import HelperProcess, ask, post_json, stored_messages
from tests.evaluation.product import Json, Product, running_product
from tests.evaluation.retrieval import Index
from tests.evaluation.scoring import Judged, figures
from tests.evaluation.sets import Question, load_sets
from tests.support.reports import Row
from tests.support.stack import REPOSITORY, start_stack
from tests.support.waiting import eventually

KINDS = ("off", "rewrite", "multi")
_ASKED_AT_ONCE = 4
_ANSWER_SECONDS = 120
_CHAT = """
[chat.rewriting]
base_url = "{url}/v1"
model = "rewriting"
concurrency = 8
"""


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A question that can't be understood without the one before it."""

    earlier: str
    question: Question


@dataclass(frozen=True, slots=True)
class Searched:
    """One follow-up's search: its hits judged, and what was searched for."""

    judged: Judged
    query: str
    wordings: tuple[str, ...]


def follow_ups(folder: Path) -> list[FollowUp]:
    """Those of a set's questions that have an `earlier_turn`."""
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().split("\n") if line]
    return [
        FollowUp(row["earlier_turn"], Question(row["query"], quotes=tuple(part["quote"] for part in row["evidence"])))
        for row in rows
        if row.get("earlier_turn")
    ]


async def evaluate_rewriting(product: Product, index: Index, asked: Sequence[FollowUp], model: str) -> list[Row]:
    """The figures of each kind of rewriting by a model of the registry that searches for the user's words, like `verbatim_searcher`."""
    rows: list[Row] = []
    for kind in KINDS:
        body = {
            "name": kind,
            "model": model,
            "knowledge_base_ids": [index.base_id],
            "knowledge": {"query_rewriting": kind},
        }
        agent = await post_json(product.client, "/api/agents", body)
        began = time.monotonic()
        searched = await _ask_all(product, index, asked, agent["id"])
        seconds = round(time.monotonic() - began, 1)
        changed = sum(bool(one.wordings) for one in searched)
        name = f"rewriting/{index.questions.name}/{kind}"
        for metric, value in figures([one.judged for one in searched]).items():
            rows.append(
                {
                    "name": f"{name}/{metric}",
                    "value": round(value, 4),
                    "unit": "share",
                    "questions": len(searched),
                    "rewritten": changed,
                    "seconds": seconds,
                }
            )
    return rows


async def _ask_all(product: Product, index: Index, asked: Sequence[FollowUp], agent_id: str) -> list[Searched]:
    turns = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def one(follow_up: FollowUp) -> Searched:
        async with turns:
            return await _ask(product, index, follow_up, agent_id)

    return list(await asyncio.gather(*(one(follow_up) for follow_up in asked)))


async def _ask(product: Product, index: Index, follow_up: FollowUp, agent_id: str) -> Searched:
    session = await post_json(product.client, "/api/sessions", {"agent_id": agent_id})
    for text in (follow_up.earlier, follow_up.question.text):
        run = (await ask(product.client, session["id"], text))["run"]

        async def ended(path: str = f"/api/runs/{run['id']}") -> Json | None:
            state: Json = (await product.client.get(path)).json()
            return state if state["finished_at"] else None

        state = await eventually(ended, within=_ANSWER_SECONDS)
        assert state is not None
        assert state["reason"] == "completed", state
    result = [m for m in await stored_messages(product.client, session["id"]) if m["role"] == "tool"][-1]
    told = {hit["n"]: hit for hit in json.loads(result["content"])["hits"]}
    hits = [{**cited, **told[cited["n"]]} for cited in result["metadata"]["hits"]]
    search = result["metadata"]["search"]
    return Searched(index.judge(follow_up.question, hits), search["query"], tuple(search.get("queries", ())))


async def measure(data: Path, name: str, model_url: str, model: str) -> list[Row]:
    """Uploads the set and measures every kind."""
    [questions] = load_sets(data / "retrieval", [name])
    stack = start_stack()
    try:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            offline = (
                None if model_url else HelperProcess(["deploy.offline_model", "--token-ms", "0"], "/health", place)
            )
            url = f"{offline.base_url}/v1" if offline else model_url
            command = ["tests.evaluation.verbatim_searcher", "--model-url", url, "--model", model]
            searcher = HelperProcess(command, "/health", place)
            try:
                async with running_product(stack, place, _CHAT.format(url=searcher.base_url)) as product:
                    base_id = await product.upload(name, questions.sources, {})
                    index = Index(questions, base_id, await product.chunks(base_id))
                    return await evaluate_rewriting(product, index, follow_ups(data / "retrieval" / name), "rewriting")
            finally:
                searcher.kill()
                if offline:
                    offline.kill()
    finally:
        stack.stop()


def main() -> None:
    """Measures and prints a row a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-url", default="")
    parser.add_argument("--model", default="chatmind-offline")
    parser.add_argument("--set", default="en-gitlab-handbook")
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    arguments = parser.parse_args()
    for row in asyncio.run(measure(arguments.data, arguments.set, arguments.model_url, arguments.model)):
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
