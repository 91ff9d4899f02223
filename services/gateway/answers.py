"""Answers that are JSON text already, as the database made it, and requests whose JSON is read strictly."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from services.gateway.cursors import encode_id, encode_number
from services.gateway.store.pages import Page


class JsonText(Response):
    """A JSON answer."""

    media_type = "application/json"


def page_by_id(page: Page[Any]) -> JsonText:
    """A list whose cursor is the id of its last item."""
    return _page(page, encode_id)


def page_by_number(page: Page[Any]) -> JsonText:
    """A list whose cursor is the number of its last item."""
    return _page(page, encode_number)


def _page(page: Page[Any], encode: Callable[[Any], str]) -> JsonText:
    cursor = "null" if page.last_key is None else f'"{encode(page.last_key)}"'
    return JsonText(f'{{"items":[{",".join(page.items)}],"next_cursor":{cursor}}}')


class _StrictJsonRequest(Request):
    """Reads JSON by the standard: no NaN, no lone surrogates, no bottomless nesting, UTF-8 only."""

    async def json(self) -> Any:
        return orjson.loads(await self.body())


class StrictJsonRoute(APIRoute):
    """A route whose requests are read strictly; what can't be read is a validation error."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictJsonRequest(request.scope, request.receive))

        return handle_strictly
