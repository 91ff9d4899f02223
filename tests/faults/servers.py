"""The two files that tell services where the bed's own servers are."""

from tests.support.embedding_server import EmbeddingServer

ADDRESS_OF = {"rabbitmq": "RABBITMQ_URL", "postgres": "DATABASE_URL"}
"""The variable that holds a server's address."""

LEDGER_TOOLS = ("ledger_read", "ledger_keyed", "ledger_once")

_MODELS = """
[chat.scripted]
base_url = "{model}"
model = "scripted"
api_key_env = "SCRIPTED_KEY"
concurrency = 128
default = true

[chat.hasty]
base_url = "{model}"
model = "hasty"
concurrency = 128
timeouts = {{connect = 2, first_byte = 4, idle = 3, total = 12}}

[chat.nobody]
base_url = "http://127.0.0.1:1/v1"
model = "nobody"
timeouts = {{total = 10}}

[chat.nowhere]
base_url = "http://nowhere.invalid/v1"
model = "nowhere"
timeouts = {{total = 10}}

[chat.untrusted]
base_url = "{model_by_tls}"
model = "untrusted"
timeouts = {{connect = 1, total = 3}}

[embedding.hashes]
base_url = "{embeddings}"
model = "hashes"
dimension = {dimension}
default = true
"""

_TOOL = """
[http.ledger_{effect}]
description = "Books an amount in the ledger ({effect})."
url = "{ledger}/{effect}"
effect = "{effect}"
timeout = 60
api_key_env = "LEDGER_KEY"
parameters = '''
{{"type": "object", "required": ["amount"], "properties": {{"amount": {{"type": "integer"}}, "note": {{"type": "string"}}}}}}
'''
"""

_HASTY_TOOLS = """
[http.hasty_read]
description = "Reads from the ledger, with little patience."
url = "{ledger}/read"
effect = "read"
timeout = 2
api_key_env = "LEDGER_KEY"
parameters = '''{{"type": "object", "properties": {{"note": {{"type": "string"}}}}}}'''

[http.unreachable]
description = "Nobody listens there."
url = "http://127.0.0.1:1/"
effect = "read"
timeout = 5
parameters = '''{{"type": "object"}}'''
"""


def models_file(model_url: str, embeddings: EmbeddingServer) -> str:
    """Chat models: `scripted` with the default limits, `hasty` with short ones; nobody listens at `nobody`, there is no such host as
    `nowhere`, and who answers for `untrusted` speaks no TLS."""
    by_tls = model_url.replace("http://", "https://")
    urls = {"model": model_url, "model_by_tls": by_tls, "embeddings": embeddings.url}
    return _MODELS.format(**urls, dimension=embeddings.dimension)


def tools_file(ledger_url: str) -> str:
    """A tool of each class on the ledger, one that waits 2 s only, and one that nobody serves."""
    tools = "".join(_TOOL.format(effect=effect, ledger=ledger_url) for effect in ("read", "keyed", "once"))
    return tools + _HASTY_TOOLS.format(ledger=ledger_url)


def password_of(url: str) -> str:
    """The password in the address of a server."""
    return url.split("@", maxsplit=1)[0].rsplit(":", 1)[1]
