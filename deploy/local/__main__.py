"""`python -m deploy.local up | demo | down | status | logs | dead-letters`: what the Makefile's targets call."""

import argparse
import os
import subprocess
import sys
import time

from dotenv import load_dotenv
from pydantic import ValidationError

from deploy.dead_letters import ALL
from deploy.local.demo import run_demo
from deploy.local.errors import StackError
from deploy.local.logs import follow_logs, print_logs
from deploy.local.programs import list_programs
from deploy.local.settings import REPOSITORY, StackSettings
from deploy.local.stack import EmbeddedStack
from deploy.local.status import print_status


def main() -> int:
    """The exit code: 0, 1 for what the message says, 130 when interrupted."""
    arguments = _parse_arguments()
    load_dotenv(REPOSITORY / ".env")
    try:
        return _run(arguments, StackSettings())
    except ValidationError as error:
        for item in error.errors(include_input=False, include_url=False):
            field = str(item["loc"][0])
            name = field if field.isupper() else f"CHATMIND_{field.upper()}"
            print(f"error: {name}: {item['msg']}", file=sys.stderr)
        return 1
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start the stack, or what is missing of it")
    commands.add_parser("demo", help="up, and two questions about two sample documents")
    commands.add_parser("down", help="stop all of it; data stays")
    commands.add_parser("status", help="a table; exit code 1 when something is down or stuck")
    letters = commands.add_parser("dead-letters", help="messages that could not be read; without an option, a list")
    letters.add_argument("--redrive", default="", help="an id, or 1 for all: send again what can be read now")
    letters.add_argument("--drop", default="", help="an id: remove it for good")
    logs = commands.add_parser("logs", help="the logs of all programs, merged by time")
    logs.add_argument("--service", default="", help="of this program alone")
    logs.add_argument("--follow", action="store_true", help="and go on with what comes")
    logs.add_argument("--lines", type=int, default=200, help="how many of the newest lines")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, settings: StackSettings) -> int:
    match arguments.command:
        case "up":
            _up(settings)
        case "demo":
            run_demo(settings)
        case "down":
            EmbeddedStack(settings, print).down()
            print("stopped; data stays in .local")
        case "status":
            return 0 if print_status(settings) else 1
        case "dead-letters":
            return _dead_letters(settings, arguments.redrive, arguments.drop)
        case "logs":
            print_logs(settings.logs, arguments.service, arguments.lines)
            if arguments.follow:
                follow_logs(settings.logs, arguments.service)
    return 0


def _dead_letters(settings: StackSettings, redrive: str, drop: str) -> int:
    """By a process of its own, which finds the broker in its environment, as where there is no such stack."""
    variables = list_programs(settings).owner_variables
    command = ["list"]
    if redrive:
        command = ["redrive", ALL if redrive == "1" else redrive]
    elif drop:
        command = ["drop", drop]
    done = subprocess.run(
        [sys.executable, "-m", "deploy.dead_letters", *command],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        check=False,
    )
    return done.returncode


def _up(settings: StackSettings) -> None:
    started = time.monotonic()
    EmbeddedStack(settings, lambda line: print(f"  {line}", flush=True)).up()
    print(f"ChatMind is up at {settings.api_url} after {time.monotonic() - started:.0f} s; stop it with `make down`.")
    print(f"API: {settings.api_url}/docs, key: {settings.api_key_file}")


if __name__ == "__main__":
    sys.exit(main())
