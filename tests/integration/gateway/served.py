"""Gateways as processes, for what needs a socket: event streams, and how a process ends."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import asyncpg
import httpx

from services.gateway.store import api_keys as store
from tests.support.stack import REPOSITORY, ServiceProcess, Stack, clean_environment

ResultT = TypeVar("ResultT")


def admin(environment: Mapping[str, str], *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Runs the key administration as an operator would."""
    return subprocess.run(
        [sys.executable, "-m", "services.gateway.admin", *arguments],
        cwd=REPOSITORY,
        env={**clean_environment(), **environment},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def run_admin(environment: Mapping[str, str], action: Callable[..., Awaitable[ResultT]], *arguments: object) -> ResultT:
    """One of the store's key functions on a connection of its own, from code that is not asynchronous."""

    async def act() -> ResultT:
        connection = await asyncpg.connect(environment["DATABASE_URL"])
        try:
            return await action(connection, *arguments)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, act()).result()


def issue_key(environment: Mapping[str, str], tenant: str = "default") -> str:
    return run_admin(environment, store.issue_key, tenant, "test")


class ServedGateways:
    """Some gateways on one database and virtual host, and a key for them."""

    def __init__(self, stack: Stack, count: int = 1, **settings: str) -> None:
        self.environment = {
            "DATABASE_URL": stack.create_database(),
            "RABBITMQ_URL": stack.create_vhost(),
            **{f"CHATMIND_{name}": value for name, value in settings.items()},
        }
        self.key = issue_key(self.environment)
        self.processes: list[ServiceProcess] = [
            stack.start_service("services.gateway.main", self.environment) for _ in range(count)
        ]
        for process in self.processes:
            process.wait_ready()

    def client(self, number: int = 0, key: str | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.AsyncClient(base_url=self.processes[number].base_url, headers=headers, timeout=30)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
