"""What compose_check.py needs of the public API, through one replica of the gateway."""

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

Json = dict[str, Any]

SILENCE_SECONDS = 60.0  # a stream carries a comment every 15 s


class CheckFailedError(Exception):
    """Something is not as it must be."""


class GatewayClient:
    """Raises CheckFailedError for every answer that is no success, and when the replica can't be reached."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=f"{url}/api", headers=headers, timeout=60, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str) -> Json:
        return self._request("GET", path)

    def post(self, path: str, body: Json) -> Json:
        return self._request("POST", path, json=body)

    def upload(self, knowledge_base_id: str, documents: Mapping[str, str]) -> Json:
        files = [("files", (name, text.encode(), "text/markdown")) for name, text in documents.items()]
        return self._request("POST", f"/knowledge-bases/{knowledge_base_id}/documents", files=files)

    def events(self, session_id: str) -> Iterator[Json]:
        """All events of a session from the first on, deltas too, each with its `type`; ends only by an error."""
        path = f"/sessions/{session_id}/events"
        parameters = {"after": "0", "deltas": "true"}
        try:
            with self._http.stream("GET", path, params=parameters, timeout=SILENCE_SECONDS) as response:
                _refuse_error(response)
                event_type = ""
                for line in response.iter_lines():
                    if line.startswith("event:"):
                        event_type = line.removeprefix("event:").strip()
                    elif line.startswith("data:"):
                        yield {"type": event_type, **json.loads(line.removeprefix("data:"))}
        except httpx.HTTPError as error:
            raise CheckFailedError(f"GET {path}: {error!r}") from error
        raise CheckFailedError(f"GET {path}: the stream ended before the run did")

    def _request(self, method: str, path: str, **arguments: Any) -> Json:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise CheckFailedError(f"{method} {path}: {error!r}") from error
        _refuse_error(response)
        answer: Json = response.json()
        return answer


def _refuse_error(response: httpx.Response) -> None:
    if response.is_error:
        response.read()
        raise CheckFailedError(f"{response.request.method} {response.url.path}: {response.status_code} {response.text}")
