"""`python -m deploy.offline_model`: serve the offline model until SIGTERM."""

import argparse

import uvicorn

from deploy.offline_model.server import build_app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.offline_model", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8390)
    parser.add_argument(
        "--token-ms", type=float, default=4.0, help="time for a token of a streamed answer, in milliseconds (default 4)"
    )
    options = parser.parse_args()
    app = build_app(max(0.0, options.token_ms) / 1000)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning", timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
