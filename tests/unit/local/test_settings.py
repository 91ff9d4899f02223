"""Which programs the settings ask for, where they listen, and what a taken port is answered with."""

import socket
from pathlib import Path

import pytest
from supervisor.options import ServerOptions

from deploy.local.accounts import SERVICES as ACCOUNTS
from deploy.local.accounts import account_name
from deploy.local.errors import StackError
from deploy.local.port_check import check_ports
from deploy.local.programs import list_programs
from deploy.local.secret_files import load_or_create_password, write_secret
from deploy.local.settings import StackSettings
from deploy.local.supervision import Supervisor
from shared.db import accounts

SERVICES = {"gateway", "agent-runner", "ingestion", "retrieval"}
EXTERNAL = {
    "DATABASE_URL": "postgresql://u:p@db.example/x",
    "RABBITMQ_URL": "amqp://u:p@mq.example/",
    "CHATMIND_EMBEDDINGS_URL": "http://embeddings.example/v1",
    "CHATMIND_OFFLINE_MODEL_URL": "http://model.example/v1",
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackSettings:
    for name in EXTERNAL:
        monkeypatch.delenv(name, raising=False)
    server = tmp_path / "rabbitmq-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setenv("RABBITMQ_SERVER_BIN", str(server))
    monkeypatch.setenv("CHATMIND_STATE_DIR", str(tmp_path / "state"))
    return StackSettings()


def test_everything_listens_on_a_port_of_its_own(settings: StackSettings) -> None:
    ports = [port for program in list_programs(settings).programs for port in program.ports.values()]
    assert len(ports) == len(set(ports)) == 10


def test_a_given_url_is_used_and_its_server_not_started(
    settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in EXTERNAL.items():
        monkeypatch.setenv(name, value)
    plan = list_programs(StackSettings())
    assert {name: plan.of("gateway")[name] for name in EXTERNAL} == EXTERNAL
    assert {program.name for program in plan.programs} == {"gateway", "agent-runner", "ingestion", "retrieval"}


def test_a_taken_port_is_named_with_its_holder_and_the_setting_that_moves_it(
    settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("CHATMIND_RETRIEVAL_PORT", str(port))
        retrieval = [program for program in list_programs(StackSettings()).programs if program.name == "retrieval"]
        with pytest.raises(StackError) as caught:
            check_ports(retrieval)
    assert f"port {port} (retrieval) is taken by" in caught.value.problem
    assert "CHATMIND_RETRIEVAL_PORT=" in caught.value.remedy


def test_a_missing_rabbitmq_server_is_named(settings: StackSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBITMQ_SERVER_BIN", "/does/not/exist")
    with pytest.raises(StackError, match="RABBITMQ_SERVER_BIN=/does/not/exist"):
        list_programs(settings)


def test_supervisord_understands_its_configuration_and_tells_each_service_its_own_passwords(
    settings: StackSettings,
) -> None:
    programs = list_programs(settings)
    text = Supervisor(settings.state_dir).render(programs.programs)
    settings.logs.mkdir(parents=True)
    (settings.state_dir / "supervisor").mkdir()
    file = settings.state_dir / "supervisord.conf"
    file.write_text(text)
    options = ServerOptions()
    options.realize(args=["-c", str(file)])
    understood = {config.process_configs[0].name: config.process_configs[0] for config in options.process_group_configs}
    assert set(understood) == {program.name for program in programs.programs}
    rabbitmq = next(program for program in programs.programs if program.name == "rabbitmq")
    assert understood["rabbitmq"].environment == dict(rabbitmq.variables)
    passwords = {file.name.split(".")[1]: file.read_text() for file in settings.state_dir.glob("postgres.*.password")}
    passwords |= {
        f"mq {file.name.split('.')[1]}": file.read_text() for file in settings.state_dir.glob("rabbitmq.*.password")
    }
    assert len(passwords) == 8
    for name, process in understood.items():
        environment = str(process.environment)
        told = {whose.removeprefix("mq ") for whose, password in passwords.items() if password in environment}
        assert told == ({name.replace("-", "_")} if name in SERVICES else set())
    owners = [(settings.state_dir / f"{server}.password").read_text() for server in ("postgres", "rabbitmq")]
    assert not any(password in text for password in owners)
    assert not any(password in str(programs.variables) for password in [*owners, *passwords.values()])


def test_accounts_are_named_as_the_migrator_names_them() -> None:
    assert ACCOUNTS == accounts.SERVICES
    assert [account_name(service) for service in ACCOUNTS] == [accounts.role_of(service) for service in ACCOUNTS]


def test_programs_stop_in_the_reverse_order_of_their_dependencies(settings: StackSettings) -> None:
    by_rank = sorted(list_programs(settings).programs, key=lambda program: program.rank)
    assert [program.name for program in by_rank][:2] == ["postgres", "rabbitmq"]
    assert by_rank[-1].name == "gateway"


def test_secrets_are_readable_by_their_owner_alone_and_stay_the_same(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "password"
    password = load_or_create_password(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_or_create_password(file) == password
    assert load_or_create_password(tmp_path / "other") != password
    write_secret(file, "new")
    assert file.stat().st_mode & 0o777 == 0o600
