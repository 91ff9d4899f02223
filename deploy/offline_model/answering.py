"""What the offline model does with a conversation: call a tool, or say something."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.offline_model.conversation import Conversation, Tool
from deploy.offline_model.quoting import Hit, quote, read_hits
from deploy.offline_model.rewriting import read_rewriting_request
from deploy.offline_model.summary import summarise
from deploy.offline_model.terms import is_chinese, terms

_SMALL_TALK = re.compile(
    r"(hi|hello|hey|good (morning|afternoon|evening|day)|thanks?( you)?|thx|(good)?bye|ok(ay)?|great|how are you|"
    r"你好|您好|嗨|哈喽|早上好|下午好|晚上好|早|谢谢|多谢|感谢|再见|拜拜|好的?|在吗|辛苦了|你是谁|who are you|what can you do|你能做什么)"
    r"( there| so much| very much| a lot| all| chatmind|你们?|您|啊|呀|了)*[\s!.,?~。！，？～]*",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\bwhat('s| is)?( the)? (current )?(time|date|day)\b|\b(today's|current) (date|time)\b|"
    r"现在几点|几点了|(今天|现在).{0,4}(几号|日期|星期几|周几|时间)",
    re.IGNORECASE,
)
_SUMMARY = re.compile(r"summar(y|i[sz]e)|摘要|总结|概括", re.IGNORECASE)
_REFERS_BACK = re.compile(r"\b(it|its|they|them|their|that|those|this|these)\b|[它其这那]", re.IGNORECASE)
_GOES_ON = re.compile(r"^\s*(and|or|but|what about|how about)\b|呢\s*[?？]?\s*$", re.IGNORECASE)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MAX_QUERY_CHARS = 500

_WORDS = {
    "greeting": (
        "I am ChatMind's offline model: I quote your documents. Ask me something about them.",
        "我是 ChatMind 的离线模型，只会引用知识库里的原文。请问您想了解什么？",
    ),
    "quoting": ("Offline model, quoting the knowledge base:", "离线模型，以下引自知识库原文："),
    "unsure": (
        "I don't know. Offline model, quoting the closest passage found:",
        "在知识库中没有找到确切的答案。离线模型，以下引自最接近的原文：",
    ),
    "nothing": (
        "I don't know: nothing about this was found in the knowledge base. (Offline model)",
        "在知识库中没有找到相关内容。（离线模型）",
    ),
    "failed": ("The tool gave no answer (offline model): ", "工具没有给出答案（离线模型）："),
    "time": ("Offline model, quoting the clock: ", "离线模型，以下引自时钟工具："),
    "no_tool": (
        "I am ChatMind's offline model and can only quote a knowledge base, but this agent has none.",
        "我是 ChatMind 的离线模型，只会引用知识库原文，而这个智能体没有知识库。",
    ),
}


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: Mapping[str, Any]


def decide(conversation: Conversation) -> Say | Call:
    """Deterministic: the same conversation gets the same answer."""
    chinese = is_chinese(conversation.question)
    if conversation.results:
        return Say(_answer(conversation, chinese))
    task = _of_task(conversation)
    if task is not None:
        return Say(task)
    if not conversation.question or _SMALL_TALK.fullmatch(conversation.question):
        return Say(_word("greeting", chinese))
    clock = conversation.tool("time", "clock", "date")
    if clock and _TIME.search(conversation.question):
        return Call(clock.name, {})
    search = conversation.tool("knowledge")
    if search:
        return Call(search.name, _search_arguments(search, conversation))
    return Say(_word("no_tool", chinese))


def _of_task(conversation: Conversation) -> str | None:
    """What comes of a task that the system prompt sets; None where there is somebody to talk to."""
    if asked := read_rewriting_request(conversation):
        return asked.written(_query(asked.conversation))
    if _SUMMARY.search(conversation.system) and not conversation.tools:
        return summarise(conversation.question)
    return None


def _answer(conversation: Conversation, chinese: bool) -> str:
    hits: list[Hit] = []
    others: list[str] = []
    for result in conversation.results:
        found = read_hits(result.content) if "knowledge" in result.tool.lower() else None
        if found is None:
            others.append(_other_result(result.tool, result.content, chinese))
        else:
            hits.extend(found)
    if hits or not others:
        return "\n\n".join([_quoted(conversation, hits, chinese), *others])
    return "\n\n".join(others)


def _quoted(conversation: Conversation, hits: list[Hit], chinese: bool) -> str:
    quotes, covers = quote(_query(conversation), hits)
    if not quotes:
        return _word("nothing", chinese)
    return f"{_word('quoting' if covers else 'unsure', chinese)}\n\n{quotes}"


def _other_result(tool: str, content: str, chinese: bool) -> str:
    is_clock = any(word in tool.lower() for word in ("time", "clock", "date"))
    try:
        facts = json.loads(content)
    except ValueError:
        facts = None
    if is_clock and isinstance(facts, dict) and "error" not in facts:
        return _word("time", chinese) + " ".join(str(value) for value in facts.values())
    return _word("failed", chinese) + content[:300]


def _query(conversation: Conversation) -> str:
    """The question, with the one before it where it can't be understood alone ("and its price?", "那退款呢？")."""
    question = conversation.question
    if not conversation.earlier or not _refers_back(question):
        return question[:_MAX_QUERY_CHARS]
    earlier = conversation.earlier[-1]
    if earlier == question or is_chinese(earlier) != is_chinese(question) or _SMALL_TALK.fullmatch(earlier):
        return question[:_MAX_QUERY_CHARS]
    return f"{earlier} {question}"[:_MAX_QUERY_CHARS]


def _refers_back(question: str) -> bool:
    asked = terms(question)
    return (
        not asked
        or _GOES_ON.search(question) is not None
        or (_REFERS_BACK.search(question) is not None and len(asked) < 6)
    )


def _search_arguments(tool: Tool, conversation: Conversation) -> dict[str, Any]:
    """The query, and whatever else the tool's schema requires, as far as schema or prompt tell it."""
    arguments: dict[str, Any] = {"query": _query(conversation)}
    properties = tool.parameters.get("properties")
    for name in tool.parameters.get("required") or ():
        schema = properties.get(name) if isinstance(properties, dict) else None
        if name not in arguments and isinstance(schema, dict):
            arguments[name] = _required_value(schema, f"{tool.description} {conversation.system}")
    return arguments


def _required_value(schema: Mapping[str, Any], told: str) -> object:
    if "default" in schema:
        return schema["default"]
    if schema.get("type") == "array":
        items = schema.get("items")
        allowed = items.get("enum") if isinstance(items, dict) else None
        return allowed or list(dict.fromkeys(_ID.findall(f"{schema.get('description', '')} {told}")))
    if schema.get("enum"):
        return schema["enum"][0]
    return schema.get("minimum", 1) if schema.get("type") in ("integer", "number") else ""


def _word(name: str, chinese: bool) -> str:
    return _WORDS[name][chinese]
