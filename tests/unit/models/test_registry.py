import re
from pathlib import Path

import pytest

from shared.model_registry import RegistryError, UnknownModelError, load_registry

SHIPPED = Path(__file__).parents[3] / "models.toml"
CHAT = '[chat.a]\nbase_url = "http://h/v1/"\nmodel = "m"\ndefault = true\n'
EMBEDDING = '[embedding.e]\nbase_url = "http://h/v1"\nmodel = "m"\ndimension = 3\ndefault = true\n'
SECRET = "sk-very-secret"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "models.toml"


def test_the_shipped_file() -> None:
    registry = load_registry(SHIPPED, {})
    assert (registry.default_chat.name, registry.default_embedding.name) == ("offline", "e5-small")
    assert (registry.default_embedding.dimension, registry.default_embedding.input_type) == (384, True)
    moved = load_registry(SHIPPED, {"CHATMIND_OFFLINE_MODEL_URL": "http://127.0.0.1:1234/v1"})
    assert moved.chat_model("offline").base_url == "http://127.0.0.1:1234/v1"
    assert registry.problems() == {}


def test_the_commented_entries_of_the_shipped_file_are_complete(file: Path) -> None:
    file.write_text(re.sub(r"^# (?=\[|[a-z_]+ = )", "", SHIPPED.read_text(), flags=re.MULTILINE))
    registry = load_registry(file, {})
    assert set(registry.chat) == {"offline", "ollama", "deepseek", "glm", "openai"}
    assert set(registry.embedding) == {"e5-small", "bge-m3", "glm", "openai"}
    assert set(registry.rerank) == {"bge", "jina"}
    assert registry.problems()["rerank.jina"] == "environment variable JINA_API_KEY is not set"
    assert registry.problems()["chat.deepseek"] == "environment variable DEEPSEEK_API_KEY is not set"
    assert registry.chat_model("ollama").usable
    assert not registry.chat_model("glm").usable


def test_the_path_comes_from_the_environment(file: Path) -> None:
    file.write_text(CHAT + EMBEDDING)
    registry = load_registry(environ={"CHATMIND_MODELS_FILE": str(file)})
    assert registry.path == file
    assert registry.chat_model().base_url == "http://h/v1"
    assert registry.embedding_model().batch_size == 32


RERANK = '[rerank.r]\nbase_url = "http://h/v1"\nmodel = "m"\ndefault = true\n'


def test_reranking_models_may_be_left_out_and_lack_their_key(file: Path) -> None:
    file.write_text(CHAT + EMBEDDING)
    assert load_registry(file, {}).default_rerank is None

    file.write_text(CHAT + EMBEDDING + RERANK + 'api_key_env = "K"\nprotocol = "tei"\n')
    entry = load_registry(file, {}).default_rerank
    assert entry is not None
    assert (entry.name, entry.protocol, entry.usable) == ("r", "tei", False)


def test_score_ranges(file: Path) -> None:
    file.write_text(CHAT + EMBEDDING)
    assert load_registry(file, {}).default_embedding.score_range == (0.0, 1.0)

    file.write_text(CHAT + EMBEDDING + "score_range = [0.7, 0.92]\n")
    assert load_registry(file, {}).default_embedding.score_range == (0.7, 0.92)


def test_unknown_names(file: Path) -> None:
    file.write_text(CHAT + EMBEDDING)
    registry = load_registry(file, {})
    with pytest.raises(UnknownModelError, match="unknown chat model 'b'; there are: a"):
        registry.chat_model("b")
    with pytest.raises(UnknownModelError, match="unknown embedding model 'a'; there are: e"):
        registry.embedding_model("a")


def test_keys_are_read_but_never_shown(file: Path) -> None:
    file.write_text(CHAT + 'api_key_env = "KEY"\n' + EMBEDDING)
    registry = load_registry(file, {"KEY": f" {SECRET}\n"})
    key = registry.default_chat.api_key
    assert key is not None
    assert key.get_secret_value() == SECRET
    assert SECRET not in f"{registry!r} {registry} {registry.model_dump_json()}"


def test_a_key_no_header_can_carry(file: Path) -> None:
    file.write_text(CHAT + EMBEDDING + '[chat.b]\nbase_url = "http://h"\nmodel = "m"\napi_key_env = "KEY"\n')
    assert "no HTTP header" in load_registry(file, {"KEY": "密钥"}).problems()["chat.b"]


def test_prefixes_keep_their_blank_and_values_may_be_numbers_in_variables(file: Path) -> None:
    file.write_text(CHAT + 'concurrency = "${N:-3}"\n' + EMBEDDING + 'query_prefix = "query: "\n')
    registry = load_registry(file, {"N": ""})
    assert (registry.default_chat.concurrency, registry.default_embedding.query_prefix) == (3, "query: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[chat.a", "not valid TOML"),
        (CHAT, r"no \[embedding.NAME\] entry"),
        (EMBEDDING, r"no \[chat.NAME\] entry"),
        (CHAT + EMBEDDING + "[chats.b]\n", r"unknown section \[chats\]"),
        (CHAT + EMBEDDING + "score_range = [0.9, 0.7]\n", r"score_range must ascend"),
        (CHAT + EMBEDDING + RERANK + "batch_size = 0\n", r"\[rerank.r\] batch_size"),
        (CHAT + EMBEDDING + "[chat.b]\n", r"\[chat.b\] base_url: Field required"),
        (CHAT + 'modle = "x"\n' + EMBEDDING, r"\[chat.a\] modle: Extra inputs are not permitted"),
        (CHAT.replace("http://", "ftp://") + EMBEDDING, r"\[chat.a\] base_url: .*http:// or https://"),
        (CHAT.replace("http://", "http://u:p@") + EMBEDDING, r"\[chat.a\] base_url: .*credentials"),
        (CHAT + "timeouts = { total = 1801 }\n" + EMBEDDING, r"\[chat.a\] timeouts.total: .*1800"),
        (CHAT + "timeouts = { idle = 0 }\n" + EMBEDDING, r"\[chat.a\] timeouts.idle: .*greater than 0"),
        (CHAT + 'tool_protocol = "xml"\n' + EMBEDDING, r"\[chat.a\] tool_protocol: .*'native' or 'tags'"),
        (CHAT + f'api_key = "{SECRET}"\n' + EMBEDDING, r"\[chat.a\] api_key: not allowed here"),
        (CHAT + f'api_key_env = "{SECRET}"\n' + EMBEDDING, r"\[chat.a\] api_key_env: String should match"),
        (CHAT + 'api_key_env = "KEY"\n' + EMBEDDING, "KEY is not set, and this is the default model"),
        (
            CHAT.replace("http://h", "${WHERE}") + EMBEDDING,
            r"\[chat.a\] base_url: environment variable WHERE is not set",
        ),
        (CHAT + EMBEDDING.replace("dimension = 3", 'dimension = "x"'), r"\[embedding.e\] dimension: "),
        (CHAT + EMBEDDING + 'input_type = true\nquery_prefix = "q"\n', r"\[embedding.e\]: .*exclude each other"),
        (CHAT.replace("default = true", "") + EMBEDDING, "exactly one .* but 0 do"),
        (CHAT + CHAT.replace("chat.a", "chat.b") + EMBEDDING, "exactly one .* but 2 do"),
        (CHAT + EMBEDDING + '[chat."a b"]\n', "name: 1 to 64 letters"),
        ("chat = 3\n" + EMBEDDING, r"no \[chat.NAME\] entry"),
        ("[chat]\na = 3\n" + EMBEDDING, r"\[chat.a\] must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_file_entry_and_field(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(RegistryError, match=said) as caught:
        load_registry(file, {})
    assert str(caught.value).startswith(str(file))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe[\x00"])
def test_a_file_that_cannot_be_read(file: Path, content: bytes | None) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RegistryError, match="cannot be read"):
        load_registry(file, {})
