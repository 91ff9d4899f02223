"""The tools file: what is taken, and how a mistake is named."""

from pathlib import Path

import pytest

from shared.service import load_tools
from shared.tool_registry import ToolsFileError, load_tool_registry

GOOD = {
    "description": '"Books an amount."',
    "url": '"http://127.0.0.1:9000/record"',
    "effect": '"keyed"',
    "parameters": """'{"type": "object"}'""",
}


def write(directory: Path, name: str = "ledger", **fields: str | None) -> Path:
    """A file with one entry; None leaves a field out."""
    lines = [f"{field} = {value}" for field, value in {**GOOD, **fields}.items() if value is not None]
    path = directory / "tools.toml"
    path.write_text("\n".join([f'[http."{name}"]', *lines]))
    return path


def test_no_file_means_no_tools(tmp_path: Path) -> None:
    assert load_tool_registry(tmp_path / "none.toml") == {}


def test_an_entry(tmp_path: Path) -> None:
    path = write(tmp_path, timeout="5", api_key_env='"LEDGER_KEY"')
    entry = load_tool_registry(path, {"LEDGER_KEY": "hidden"})["ledger"]
    assert (entry.name, entry.effect, entry.timeout, entry.problem) == ("ledger", "keyed", 5.0, None)
    assert entry.parameters == {"type": "object"}
    assert "hidden" not in repr(entry)
    assert load_tool_registry(path, {})["ledger"].problem == "environment variable LEDGER_KEY is not set"


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("KnowledgeTool", {}, "[http.KnowledgeTool] name: KnowledgeTool is a tool that comes with ChatMind"),
        ("a b", {}, "[http.a b] name: 1 to 64 letters"),
        ("ledger", {"effect": '"twice"'}, "[http.ledger] effect: Input should be 'read', 'keyed' or 'once'"),
        ("ledger", {"effect": None}, "[http.ledger] effect: Field required"),
        ("ledger", {"url": '"ftp://host/"'}, "[http.ledger] url:"),
        ("ledger", {"url": '"http://user:hunter2@host/"'}, "[http.ledger] url:"),
        ("ledger", {"timeout": "0"}, "[http.ledger] timeout:"),
        ("ledger", {"api_key": '"hunter2"'}, "[http.ledger] api_key: not allowed here"),
        ("ledger", {"retries": "3"}, "[http.ledger] retries:"),
        ("ledger", {"parameters": "'{'"}, "[http.ledger] parameters: Value error, is not JSON"),
        ("ledger", {"parameters": """'{"type": "array"}'"""}, '[http.ledger] parameters: Value error, must be a JSON Schema'),
        ("ledger", {"parameters": """'{"type": "object", "required": 1}'"""}, "is not a valid JSON Schema"),
        ("ledger", {"parameters": """'{"type": "object", "allOf": [{"$ref": "http://127.0.0.1:1/"}]}'"""}, "outside of the schema"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_entry(tmp_path: Path, name: str, fields: dict[str, str | None], said: str) -> None:
    path = write(tmp_path, name, **fields)
    with pytest.raises(ToolsFileError) as error:
        load_tool_registry(path, {})
    assert said in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "hunter2" not in str(error.value)


def test_other_sections_and_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    for text, said in (
        ("[mcp.x]", "unknown section [mcp]"),
        ("[http", "not valid TOML"),
        ("http = 1", "must hold entries"),
    ):
        path.write_text(text)
        with pytest.raises(ToolsFileError) as error:
            load_tool_registry(path, {})
        assert said in str(error.value)


def test_a_wrong_file_ends_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load_tools(write(tmp_path, effect='"twice"'))
    assert end.value.code == 2
    assert "[http.ledger] effect" in capsys.readouterr().err
