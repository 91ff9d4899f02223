"""A chat model for measuring how queries are rewritten: `python -m tests.evaluation.verbatim_searcher --model-url U --model NAME --port N`.

It searches for whatever the user said, word for word, and answers with the first hit. Requests without tools, which ask it to rewrite, go
on to the model under test as they are; its key, if it needs one, is read from the variable REWRITING_API_KEY.
"""

import argparse
import os

import httpx
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.support.scripted_replies import ScriptedCall, ScriptedReply, completion, last_user_text, text_of

TOP_K = 10
_QUOTED_CHARS = 600


def searching_reply(body: dict[str, object]) -> ScriptedReply:
    """A search for the user's words; once it is made, the beginning of its first hit."""
    messages = body["messages"]
    assert isinstance(messages, list)
    if messages[-1]["role"] != "tool":
        arguments = {"query": last_user_text(body), "top_k": TOP_K}
        return ScriptedReply(tool_calls=[ScriptedCall(name="KnowledgeTool", arguments=arguments)])
    hits = orjson.loads(text_of(messages[-1])).get("hits", [])
    return ScriptedReply(text=f"{hits[0]['content'][:_QUOTED_CHARS]} [{hits[0]['n']}]" if hits else "I don't know.")


def build_app(model_url: str, model: str) -> Starlette:
    """`model_url` is the base URL of the model under test, with its /v1."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("REWRITING_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    client = httpx.AsyncClient(timeout=120)

    async def complete(request: Request) -> Response:
        body = await request.json()
        if body.get("tools"):
            return JSONResponse(completion(searching_reply(body)))
        sent = orjson.dumps({**body, "model": model})
        answer = await client.post(f"{model_url}/chat/completions", content=sent, headers=headers)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/health", health), Route("/v1/chat/completions", complete, methods=["POST"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    app = build_app(arguments.model_url, arguments.model)
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
