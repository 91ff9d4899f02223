"""A private RabbitMQ node, run from the system's package but sharing nothing with the node of that package.

Node name, ports, data, logs, configuration, Erlang cookie and epmd are its own. Works with RabbitMQ 3.10 to 4.x.
"""

import json
import socket
import string
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.accounts import SERVICES, account_name, password_file
from deploy.local.errors import StackError
from deploy.local.rabbitmq_package import find_server
from deploy.local.secret_files import load_or_create_password, write_secret
from deploy.local.server import LocalServer
from deploy.local.settings import REPOSITORY

USER = "chatmind"
LOOPBACK_ONLY = "-kernel inet_dist_use_interface {127,0,0,1}"
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"
# Erlang terms rather than rabbitmq.conf: translating that costs the node some seconds of every start.
DEFINITIONS = REPOSITORY / "deploy" / "rabbitmq" / "definitions.json"
CONFIGURATION = """\
[{{rabbit, [
  {{tcp_listeners, [{{"127.0.0.1", {port}}}]}},
  {{load_definitions, "{definitions}"}},
  {{vm_memory_high_watermark, {{absolute, "1GB"}}}},
  {{disk_free_limit, "200MB"}},
  {{log, [{{categories, [{{connection, [{{level, error}}]}}]}}]}}
]}}].
"""


@dataclass(frozen=True)
class RabbitPorts:
    """AMQP for clients, Erlang distribution and its port mapper for `rabbitmqctl`."""

    amqp: int
    distribution: int
    epmd: int


class LocalRabbitMQ(LocalServer):
    """The user in `url` administers the node, each service has one of its own; the well-known `guest` is never created."""

    name = "RabbitMQ"

    def __init__(self, directory: Path, ports: RabbitPorts) -> None:
        super().__init__(directory, ports.amqp)
        self.ports = ports

    @property
    def url(self) -> str:
        return self.vhost_url("/")

    def vhost_url(self, vhost: str) -> str:
        """The address of a virtual host; its name needs no quoting, except for the default one."""
        path = "" if vhost == "/" else vhost
        return f"amqp://{USER}:{self._password()}@127.0.0.1:{self.port}/{path}"

    def account_url(self, service: str, vhost: str = "/") -> str:
        """The address of a virtual host for one service."""
        path = "" if vhost == "/" else vhost
        return f"amqp://{account_name(service)}:{self._password(service)}@127.0.0.1:{self.port}/{path}"

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        definitions = self.directory / "definitions.json"
        write_secret(definitions, json.dumps(self._definitions("/")))
        write_secret(self.directory / "advanced.config", CONFIGURATION.format(port=self.port, definitions=definitions))
        load_or_create_password(self.directory / ".erlang.cookie")
        (self.directory / "enabled_plugins").write_text("[].\n")
        (self.directory / "rabbitmq-env.conf").write_text("")

    def command(self) -> list[str]:
        return [str(find_server())]

    def variables(self) -> dict[str, str]:
        return {
            **super().variables(),
            "HOME": str(self.directory),  # where Erlang keeps its cookie
            "ERL_EPMD_PORT": str(self.ports.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"chatmind{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),  # none, instead of the system's
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.directory / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"+S 2:2 {LOOPBACK_ONLY}",
            "RABBITMQ_CTL_ERL_ARGS": LOOPBACK_ONLY,
        }

    def is_ready(self) -> bool:
        """The listener opens last; a greeting shows that the node behind it answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(PROTOCOL_HEADER)
                return connection.recv(1024).startswith(METHOD_FRAME)
        except OSError:
            return False

    def ctl(self, *arguments: str) -> str:
        """The output of `rabbitmqctl` for this node, without headings. Raises StackError when it fails."""
        return self._run([str(find_server().with_name("rabbitmqctl")), "--silent", *arguments])

    def create_vhost(self, name: str) -> str:
        """A new virtual host, where every account may do what it may do in the default one, and its address."""
        file = self.directory / f"definitions-{name}.json"
        write_secret(file, json.dumps(self._definitions(name)))
        self.ctl("import_definitions", str(file))
        return self.vhost_url(name)

    def _definitions(self, vhost: str) -> dict[str, Any]:
        """Accounts and what they may do in a virtual host, with the passwords of this node."""
        passwords = {f"CHATMIND_{service.upper()}_RABBITMQ_PASSWORD": self._password(service) for service in SERVICES}
        text = string.Template(DEFINITIONS.read_text()).safe_substitute(passwords, RABBITMQ_PASSWORD=self._password())
        definitions: dict[str, Any] = json.loads(text)
        permissions = [{**permission, "vhost": vhost} for permission in definitions["permissions"]]
        return {**definitions, "vhosts": [{"name": vhost}], "permissions": permissions}

    def delete_queue(self, name: str, vhost: str = "/") -> None:
        """Deletes a queue with everything in it."""
        self.ctl("delete_queue", "--vhost", vhost, name)

    def list_queues(self, vhost: str = "/") -> list[str]:
        """Queue names. Counts are left to a passive declaration: those of `rabbitmqctl` are seconds old."""
        return self.ctl("list_queues", "--vhost", vhost, "--no-table-headers", "name").split()

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}", f"see {self.log_file}")
        return done.stdout

    def _password(self, service: str = "") -> str:
        return load_or_create_password(password_file(self.directory, service))
