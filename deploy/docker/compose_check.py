"""The end-to-end questions against a running Compose project; compose_test.sh starts it.

Everything goes through the public API: a question is posted to one gateway replica and followed on the other. The last one goes through
the balancer, and its agent-runner is killed in the middle of the answer. The API key is read from CHATMIND_API_KEY.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from deploy.docker.gateway_client import CheckFailedError, GatewayClient
from deploy.docker.runner_killer import RunnerKiller

Json = dict[str, Any]

INGESTION_SECONDS = 240.0
POLL_SECONDS = 0.25
DOCUMENTS = {
    "harbour-rules.md": """# Harbour rules

## Tugs

After sunset a ship of more than 180 metres takes two tugs to berth 7. By day one tug is enough.

## Fog

When visibility falls below 400 metres, the pilot station closes the eastern fairway and sounds one long blast every two minutes.
Ships that are already in the fairway anchor north of the green buoy and report to channel 12 until the station opens it again.
""",
    "茶仓手册.md": """# 茶仓手册

## 湿度

白茶仓的相对湿度不得超过百分之五十五，超过时须在两小时内开启除湿机。

## 盘点

普洱茶每季度盘点一次，差异大于三公斤时由仓库主管复核并签字。
""",
}


@dataclass(frozen=True)
class Question:
    """What is asked, words that the answer must hold, and the file that it must cite."""

    text: str
    fact: str
    filename: str


ENGLISH = Question("How many tugs does a long ship need at berth 7 after sunset?", "two tugs", "harbour-rules.md")
CHINESE = Question("白茶仓的相对湿度不得超过多少？", "百分之五十五", "茶仓手册.md")
FOG = Question(
    "What does the pilot station do when visibility falls below 400 metres?", "eastern fairway", "harbour-rules.md"
)


def main() -> int:
    """Returns the exit code: 0 all is well, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--balancer", required=True, metavar="URL", help="the address of all replicas together")
    parser.add_argument("--gateway", nargs=2, required=True, metavar="URL", help="two replicas of the gateway")
    parser.add_argument("--runner", nargs="+", required=True, metavar="CONTAINER", help="all agent-runners")
    options = parser.parse_args()
    try:
        with ExitStack() as stack:
            key = os.environ["CHATMIND_API_KEY"]
            balancer, one, other = (
                stack.enter_context(GatewayClient(url, key)) for url in (options.balancer, *options.gateway)
            )
            agent_id = _create_agent(balancer)
            _check_answer(ENGLISH, agent_id, one, other)
            _check_answer(CHINESE, agent_id, other, one)
            _check_answer(FOG, agent_id, balancer, balancer, options.runner)
    except CheckFailedError as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    return 0


def _create_agent(gateway: GatewayClient) -> str:
    """The id of an agent that knows the two documents."""
    started = time.monotonic()
    knowledge_base = gateway.post("/knowledge-bases", {"name": "Compose"})
    gateway.upload(knowledge_base["id"], DOCUMENTS)
    _wait_until_ready(gateway, knowledge_base["id"])
    _report("documents ready", started)
    agent = {"name": "Compose", "tools": ["KnowledgeTool"], "knowledge_base_ids": [knowledge_base["id"]]}
    agent_id: str = gateway.post("/agents", agent)["id"]
    return agent_id


def _wait_until_ready(gateway: GatewayClient, knowledge_base_id: str) -> None:
    deadline = time.monotonic() + INGESTION_SECONDS
    while True:
        documents = gateway.get(f"/knowledge-bases/{knowledge_base_id}/documents")["items"]
        if any(document["state"] == "failed" for document in documents):
            raise CheckFailedError(f"a document failed: {documents}")
        if len(documents) == len(DOCUMENTS) and all(document["state"] == "ready" for document in documents):
            return
        if time.monotonic() > deadline:
            raise CheckFailedError(f"documents are not ready in {INGESTION_SECONDS:.0f} s: {documents}")
        time.sleep(POLL_SECONDS)


def _check_answer(
    question: Question, agent_id: str, poster: GatewayClient, reader: GatewayClient, runners: Sequence[str] = ()
) -> None:
    """Asks in a new session. With runners given, the one that answers is killed at the first words of its answer."""
    started = time.monotonic()
    session = poster.post("/sessions", {"agent_id": agent_id})
    run = poster.post(f"/sessions/{session['id']}/messages", {"content": question.text})["run"]
    killer = RunnerKiller(runners, run["id"])
    events: list[Json] = []
    for event in _events_until_finished(reader, session["id"], run["id"]):
        events.append(event)
        killer.observe(event)
    killer.refuse_missed_kill()
    _refuse_wrong_answer(question, events, poster.get(f"/sessions/{session['id']}/messages")["items"])
    _report(f"answered{', its runner killed half way' if killer.has_killed else ''}: {question.text}", started)


def _events_until_finished(reader: GatewayClient, session_id: str, run_id: str) -> Iterator[Json]:
    """Raises CheckFailedError when the seqs are not 1, 2, 3, ...; deltas have none."""
    expected = 1
    for event in reader.events(session_id):
        if "seq" in event:
            if event["seq"] != expected:
                raise CheckFailedError(f"event {event['seq']} came where {expected} was due")
            expected += 1
        yield event
        if event["type"] == "run.finished" and event["run_id"] == run_id:
            return


def _refuse_wrong_answer(question: Question, events: Sequence[Json], stored: Sequence[Json]) -> None:
    finished = events[-1]
    if (finished["state"], finished["reason"]) != ("FINISHED", "completed"):
        raise CheckFailedError(f"the run ended with {finished}")
    told = [event["message"] for event in events if event["type"] == "message.created"]
    if [(message["id"], message["content"]) for message in told] != [(row["id"], row["content"]) for row in stored]:
        raise CheckFailedError(f"the events tell {told}, stored is {stored}")
    answer = told[-1]
    if question.fact not in answer["content"]:
        raise CheckFailedError(f"{question.fact!r} is missing in the answer: {answer['content']!r}")
    if question.filename not in [citation["filename"] for citation in answer["citations"]]:
        raise CheckFailedError(f"{question.filename} is not cited: {answer['citations']}")


def _report(what: str, since: float) -> None:
    print(f"{time.monotonic() - since:6.1f} s  {what}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
