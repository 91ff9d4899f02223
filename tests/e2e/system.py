"""The whole system as processes of the operating system: two gateways, two runners, ingestion, retrieval, and their servers."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.accounts import account_environment, create_accounts, service_of
from tests.support.sse import SseEvent, read_until
from tests.support.stack import REPOSITORY, ServiceProcess, Stack, clean_environment, free_port
from tests.support.waiting import eventually

Json = dict[str, Any]

MODEL_KEY = "sk-scripted-7f3a90c1d2e4b586"

MODELS = """
[chat.offline]
base_url = "{offline}"
model = "chatmind-offline"
default = true

[chat.scripted]
base_url = "{scripted}"
model = "scripted"
api_key_env = "SCRIPTED_API_KEY"
concurrency = 64

[embedding.e5-small]
base_url = "{embeddings}"
model = "multilingual-e5-small"
dimension = 384
input_type = true
default = true
"""


@dataclass
class System:
    """The running system, and what tests do with it."""

    stack: Stack
    environment: dict[str, str]
    gateways: list[ServiceProcess] = field(default_factory=list)
    runners: list[ServiceProcess] = field(default_factory=list)
    others: list[ServiceProcess] = field(default_factory=list)
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def start(self, replicas: int = 2) -> None:
        """Makes the accounts, starts everything, gateway and runner so many times, and waits until it is ready."""
        create_accounts(self.stack, self.environment["DATABASE_URL"])
        self.gateways = [self.add("services.gateway.main") for _ in range(replicas)]
        self.runners = [self.add("services.agent_runner.main") for _ in range(replicas)]
        self.others = [self.add("services.ingestion.main"), self.add("services.retrieval.main")]
        for process in (*self.gateways, *self.runners, *self.others):
            process.wait_ready(60)

    def add(self, module: str, **extra: str) -> ServiceProcess:
        """One more process, under its service's own accounts, with extra environment."""
        return self.stack.start_service(module, {**self.environment, **self._accounts(module), **extra})

    def _accounts(self, module: str) -> dict[str, str]:
        return account_environment(
            self.stack, service_of(module), self.environment["DATABASE_URL"], self.environment["RABBITMQ_URL"]
        )

    def heal(self) -> None:
        """Starts again what a test has killed."""
        for process in (*self.gateways, *self.runners, *self.others):
            if process.process.poll() is not None:
                process.start()
        for process in (*self.gateways, *self.runners, *self.others):
            process.wait_ready(60)

    def connect(self) -> None:
        """Issues a key and makes a client for each gateway."""
        key = self._issue_key()
        self.clients = [
            httpx.AsyncClient(
                base_url=gateway.base_url,
                headers={"Authorization": f"Bearer {key}"},
                timeout=30,
                limits=httpx.Limits(max_connections=200),
            )
            for gateway in self.gateways
        ]

    def _issue_key(self) -> str:
        command = [sys.executable, "-m", "services.gateway.admin", "issue-key", "--tenant", "default", "--name", "e2e"]
        environment = {**clean_environment(), **self.environment, **self._accounts("services.gateway.admin")}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def stop(self) -> None:
        """Kills every process."""
        for process in (*self.gateways, *self.runners, *self.others):
            process.kill()


class HelperProcess:
    """A program that the system needs and that is none of its services: answers GET on its port when it is up."""

    def __init__(self, arguments: list[str], health: str, directory: Path) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._health = health
        with (directory / f"{arguments[0].rsplit('.', 1)[-1]}-{self.port}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments, "--host", "127.0.0.1", "--port", str(self.port)],
                cwd=REPOSITORY,
                env=clean_environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def wait_ready(self) -> None:
        """Returns when it answers."""

        async def probe() -> bool:
            try:
                async with httpx.AsyncClient() as client:
                    return (await client.get(self.base_url + self._health)).status_code == 200
            except httpx.HTTPError:
                return False

        await eventually(probe, within=60)

    def kill(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


async def make_knowledge_base(client: httpx.AsyncClient, name: str, files: dict[str, str]) -> str:
    """A knowledge base of Markdown documents, once all of them are ready; its id."""
    base = await post_json(client, "/api/knowledge-bases", {"name": name, "description": f"All about {name}."})
    parts = [("files", (filename, text.encode(), "text/markdown")) for filename, text in files.items()]
    answer = await client.post(f"/api/knowledge-bases/{base['id']}/documents", files=parts)
    assert answer.status_code == 202, answer.text

    async def all_ready() -> bool:
        items = (await client.get(f"/api/knowledge-bases/{base['id']}/documents")).json()["items"]
        assert all(item["state"] != "failed" for item in items), items
        return all(item["state"] == "ready" for item in items)

    await eventually(all_ready, within=60)
    return str(base["id"])


async def make_session(client: httpx.AsyncClient, knowledge_base_id: str, model: str) -> str:
    """A session of a new agent that may search the knowledge base; its id."""
    agent = await post_json(
        client, "/api/agents", {"name": "Guide", "model": model, "knowledge_base_ids": [knowledge_base_id]}
    )
    session = await post_json(client, "/api/sessions", {"agent_id": agent["id"], "title": "e2e"})
    return str(session["id"])


async def post_json(client: httpx.AsyncClient, path: str, body: Json) -> Json:
    """A POST that succeeds."""
    answer = await client.post(path, json=body)
    assert answer.is_success, answer.text
    value: Json = answer.json()
    return value


async def ask(client: httpx.AsyncClient, session_id: str, content: str) -> Json:
    """Posts a message; the answer of the POST."""
    return await post_json(client, f"/api/sessions/{session_id}/messages", {"content": content})


async def session_events(client: httpx.AsyncClient, session_id: str, *, runs: int = 1) -> list[SseEvent]:
    """All events of a session from the first to the end of its `runs`-th run."""
    return await read_until(client, f"/api/sessions/{session_id}/events", "run.finished", count=runs)


async def stored_messages(client: httpx.AsyncClient, session_id: str) -> list[Json]:
    """The session's messages, oldest first."""
    answer = await client.get(f"/api/sessions/{session_id}/messages", params={"limit": 200})
    assert answer.status_code == 200, answer.text
    items: list[Json] = answer.json()["items"]
    return items


def assert_clean(events: list[SseEvent], stored: list[Json], *, reasons: list[str]) -> None:
    """Events are 1..n, each run ends once as expected, and what the client saw is what is stored."""
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    ends = [event.data for event in events if event.type == "run.finished"]
    assert [end["reason"] for end in ends] == reasons, ends
    seen = [event.data["message"] for event in events if event.type == "message.created"]
    assert [(m["id"], m["content"]) for m in seen] == [(m["id"], m["content"]) for m in stored]
