"""How the demonstration shows what it sees. Works without a terminal too: then it is plain lines."""

import json
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

Json = dict[str, Any]
STATE_STYLES = {"ready": "green", "failed": "red", "FINISHED": "green", "ERROR": "red"}


class DemoView:
    """Prints to one console; times are seconds since the last question."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.rule(f"[bold]{escape(text)}", align="left")

    def line(self, text: str) -> None:
        self._console.print(f"  {escape(text)}")

    def document(self, document: Json) -> None:
        state, progress = document["state"], document["progress"]
        details = {
            "embedding": f"{progress['done']}/{progress['total']}",
            "ready": f"{document['chunk_count']} chunks",
        }
        style = STATE_STYLES.get(state, "cyan")
        self._console.print(f"  {escape(document['filename'])}: [{style}]{state}[/] {details.get(state, '')}".rstrip())

    def question(self, text: str) -> None:
        self._started = time.monotonic()
        self._console.print(Panel(escape(text), title="question", title_align="left", border_style="blue"))

    def state(self, state: str, note: str) -> None:
        self._timed(f"[{STATE_STYLES.get(state, 'magenta')}]{state}[/] {escape(note)}".rstrip())

    def tool_call(self, call: Json) -> None:
        arguments = call["arguments"]
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self._timed(f"[yellow]{escape(call['name'])}[/]({escape(shown)})")

    def tool_result(self, message: Json) -> None:
        """The hits of a search; of a failed call, what the model was told."""
        hits = message["metadata"].get("hits")
        if hits is None:
            self._timed(f"[red]failed[/] {escape(message['content'])}")
            return
        table = Table("n", "score", "document", "section", title=f"{len(hits)} hits", title_justify="left")
        for hit in hits:
            table.add_row(str(hit["n"]), f"{hit['score']:.3f}", escape(hit["filename"]), escape(_section(hit)))
        self._console.print(table)

    def answer(self, message: Json) -> None:
        self._console.print(Panel(escape(message["content"]), title="answer", title_align="left", border_style="green"))
        for citation in message["citations"]:
            self._console.print(
                f"  [bold]\\[{citation['n']}][/] {escape(citation['filename'])}: {escape(_section(citation))}"
            )

    def _timed(self, text: str) -> None:
        self._console.print(f"  [dim]{time.monotonic() - self._started:6.2f} s[/] {text}")


def _section(hit: Json) -> str:
    return " > ".join(hit["heading_path"][-2:]) or hit["title"] or ""
