"""Settings: a wrong value ends the process at once, named, and not shown."""

import pytest

from shared.settings import CommonSettings, load_settings

PASSWORD = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://chatmind:{PASSWORD}@127.0.0.1/chatmind")
    monkeypatch.setenv("RABBITMQ_URL", f"amqp://chatmind:{PASSWORD}@127.0.0.1/")
    for name in ("CHATMIND_LOG_LEVEL", "CHATMIND_HEALTH_PORT", "CHATMIND_MODELS_FILE", "CHATMIND_HEALTH_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_values_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATMIND_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("CHATMIND_HEALTH_PORT", "8123")

    settings = load_settings(CommonSettings)

    assert (settings.log_level, settings.health_port, str(settings.models_file)) == ("debug", 8123, "models.toml")
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in settings.model_dump_json()
    assert PASSWORD in settings.database_url.get_secret_value()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", f"mysql://chatmind:{PASSWORD}@127.0.0.1/chatmind"),
        ("DATABASE_URL", f"{PASSWORD} is no address"),
        ("DATABASE_URL", None),
        ("RABBITMQ_URL", None),
        ("CHATMIND_HEALTH_PORT", "70000"),
        ("CHATMIND_HEALTH_PORT", PASSWORD),
        ("CHATMIND_LOG_LEVEL", PASSWORD),
    ],
)
def test_a_wrong_value_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit) as ended:
        load_settings(CommonSettings)

    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("setting ")
    assert name.removeprefix("CHATMIND_").lower() in errors.lower()
    assert PASSWORD not in errors
    assert len(errors.splitlines()) == 1
