"""`make demo`: two sample documents, one agent, one question in each language, through the public API alone.

Run again, it finds its knowledge base, documents and agent by name and content, and asks in fresh sessions.
"""

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from deploy.local.demo_api import DemoApi
from deploy.local.demo_view import DemoView
from deploy.local.errors import StackError
from deploy.local.settings import REPOSITORY, StackSettings
from deploy.local.stack import EmbeddedStack

Json = dict[str, Any]

SAMPLES = Path(__file__).parent / "samples"
KNOWLEDGE_BASE = {
    "name": "Demo library",
    "description": "青禾商城的数据库设计 (the database design of an e-shop, in Chinese) and the handbook of the Tidewatch 4 leak detector",
}
AGENT = {
    "name": "Demo librarian",
    "description": "Answers from the sample documents and says where it read it",
    "system_prompt": (
        "Answer from the knowledge bases, in the language of the question, and cite what you used as [n]. "
        "Say so when they hold no answer."
    ),
    "tools": ["KnowledgeTool"],
}
QUESTIONS = {
    "Demo: 中文": "同一笔支付的退款总额有什么上限？",
    "Demo: English": "What does error code E14 mean, and what do I do when it comes back?",
}
INGESTION_SECONDS = 300.0
RUN_SECONDS = 300.0
POLL_SECONDS = 0.25


def run_demo(settings: StackSettings) -> None:
    """Raises StackError when anything fails, with what to do about it."""
    started = time.monotonic()
    console = Console(highlight=False, emoji=False)
    view = DemoView(console)
    view.heading("1. The stack: PostgreSQL, RabbitMQ, two model servers, four services")
    EmbeddedStack(settings, view.line).up()
    api = DemoApi(settings.api_url, settings.api_key_file.read_text().strip())
    try:
        view.heading("2. Two documents into a knowledge base")
        knowledge_base = api.ensure("/knowledge-bases", KNOWLEDGE_BASE)
        _ingest(api, view, knowledge_base["id"])
        agent = api.ensure("/agents", {**AGENT, "knowledge_base_ids": [knowledge_base["id"]]})
        for number, (title, question) in enumerate(QUESTIONS.items(), start=3):
            view.heading(f"{number}. A question")
            _ask(api, view, _fresh_session(api, agent["id"], title), question)
    finally:
        api.close()
    view.heading(f"Done in {time.monotonic() - started:.0f} s; the stack goes on running")
    _print_next_steps(console, settings)


def _ingest(api: DemoApi, view: DemoView, knowledge_base_id: str) -> None:
    """Uploads the samples and shows every change of state until both are ready."""
    waiting = api.upload(knowledge_base_id, sorted(SAMPLES.glob("*.md")))
    shown: dict[str, tuple[str, int]] = {}
    deadline = time.monotonic() + INGESTION_SECONDS
    while waiting:
        for document in waiting:
            _show_change(view, document, shown)
            if document["state"] == "failed":
                error = document["error"]
                raise StackError(
                    f"{document['filename']}: {error['code']}: {error['message']}", "make logs SERVICE=ingestion"
                )
        if time.monotonic() > deadline:
            raise StackError("the documents are not ready after 5 minutes", "make logs SERVICE=ingestion")
        waiting = [document for document in waiting if document["state"] != "ready"]
        if waiting:
            time.sleep(POLL_SECONDS)
            waiting = [api.request("GET", f"/documents/{document['id']}") for document in waiting]


def _show_change(view: DemoView, document: Json, shown: dict[str, tuple[str, int]]) -> None:
    now = (document["state"], document["progress"]["done"])
    if shown.get(document["id"]) != now:
        shown[document["id"]] = now
        view.document(document)


def _fresh_session(api: DemoApi, agent_id: str, title: str) -> Json:
    """A session without history: that of an earlier demonstration is replaced."""
    earlier = [session for session in api.items("/sessions", agent_id=agent_id) if session["title"] == title]
    for session in earlier:
        api.request("DELETE", f"/sessions/{session['id']}")
    return api.request("POST", "/sessions", json={"agent_id": agent_id, "title": title})


def _ask(api: DemoApi, view: DemoView, session: Json, question: str) -> None:
    """Posts first and listens from the seq before the message, so that nothing can be missed."""
    view.question(question)
    posted = api.request("POST", f"/sessions/{session['id']}/messages", json={"content": question})
    deadline = time.monotonic() + RUN_SECONDS
    has_citations = False
    for event in api.events(session["id"], after=posted["last_seq"]):
        _show_event(view, event)
        has_citations |= bool(event.get("message", {}).get("citations"))
        if event["type"] == "run.finished" and event["run_id"] == posted["run"]["id"]:
            _refuse_failure(event, has_citations)
            return
        if time.monotonic() > deadline:
            break
    raise StackError("the run did not finish in time", "make logs SERVICE=agent-runner")


def _refuse_failure(finished: Json, has_citations: bool) -> None:
    if finished["reason"] != "completed":
        raise StackError(
            f"the run ended with {finished['reason']}: {finished['error']}", "make logs SERVICE=agent-runner"
        )
    if not has_citations:
        raise StackError("the answer cites nothing although the documents hold it", "make logs SERVICE=retrieval")


def _show_event(view: DemoView, event: Json) -> None:
    match event["type"]:
        case "run.queued":
            view.state("IDLE", "queued")
        case "run.state":
            view.state(event["state"], f"step {event['step']}")
        case "run.finished":
            view.state(event["state"], event["reason"])
        case "message.created":
            _show_message(view, event["message"])


def _show_message(view: DemoView, message: Json) -> None:
    if message["role"] == "tool":
        view.tool_result(message)
    elif message["role"] == "assistant":
        for call in message["tool_calls"]:
            view.tool_call(call)
        if not message["tool_calls"]:
            view.answer(message)


def _print_next_steps(console: Console, settings: StackSettings) -> None:
    key_file = settings.api_key_file
    shown = key_file.relative_to(REPOSITORY) if key_file.is_relative_to(REPOSITORY) else key_file
    lines = {
        "API": f"{settings.api_url}/docs",
        "key": f"{shown} (mode 600)",
        "try": f'curl -H "Authorization: Bearer $(cat {shown})" {settings.api_url}/api/agents',
        "logs": "make logs FOLLOW=1",
        "stop": "make down",
    }
    for name, value in lines.items():
        console.print(f"  {name:<5} {value}", markup=False, soft_wrap=True)
