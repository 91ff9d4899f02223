"""The few calls of the public API that the demonstration needs, as any client would make them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from deploy.local.errors import StackError

Json = dict[str, Any]
PAGE_SIZE = 200
IDLE_SECONDS = 60.0  # the server sends a comment every 15 s


class DemoApi:
    """Raises StackError with the server's own explanation for every refused request, and when the server is gone."""

    def __init__(self, base_url: str, key: str) -> None:
        self._client = httpx.Client(
            base_url=f"{base_url}/api", headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False
        )

    def close(self) -> None:
        self._client.close()

    def items(self, path: str, **filters: str) -> Iterator[Json]:
        """All items of a list, page by page."""
        parameters: dict[str, str | int] = {"limit": PAGE_SIZE, **filters}
        while True:
            page = self.request("GET", path, params=parameters)
            yield from page["items"]
            if page["next_cursor"] is None:
                return
            parameters["cursor"] = page["next_cursor"]

    def ensure(self, path: str, body: Json) -> Json:
        """The item with this name, changed to `body` where it differs, or a new one."""
        present = next((item for item in self.items(path) if item["name"] == body["name"]), None)
        if present is None:
            return self.request("POST", path, json=body)
        if all(present.get(field) == value for field, value in body.items()):
            return present
        return self.request("PATCH", f"{path}/{present['id']}", json=body)

    def upload(self, knowledge_base_id: str, files: Sequence[Path]) -> list[Json]:
        parts = [("files", (file.name, file.read_bytes(), "text/markdown")) for file in files]
        answer = self.request("POST", f"/knowledge-bases/{knowledge_base_id}/documents", files=parts)
        items: list[Json] = answer["items"]
        return items

    def events(self, session_id: str, after: int) -> Iterator[Json]:
        """The events of a session after a seq, as they come; endless."""
        path = f"/sessions/{session_id}/events"
        try:
            with self._client.stream("GET", path, params={"after": after}, timeout=IDLE_SECONDS) as response:
                if response.is_error:
                    response.read()
                    raise _refusal(response)
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except httpx.HTTPError as error:
            raise _unreachable(error) from error

    def request(self, method: str, path: str, **arguments: Any) -> Json:
        try:
            response = self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if response.is_error:
            raise _refusal(response)
        answer: Json = response.json() if response.content else {}
        return answer


def _refusal(response: httpx.Response) -> StackError:
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    problem = response.json() if is_problem else {}
    detail = problem.get("detail") or problem.get("title") or response.text[:200]
    return StackError(
        f"{response.request.method} {response.request.url.path} answered {response.status_code}: {detail}",
        "make logs SERVICE=gateway",
    )


def _unreachable(error: httpx.HTTPError) -> StackError:
    return StackError(f"the gateway does not answer: {error!r}", "make status, make logs SERVICE=gateway")
