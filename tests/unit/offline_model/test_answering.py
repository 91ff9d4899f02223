import json
from typing import Any

import pytest

from deploy.offline_model.answering import Call, Say, decide
from deploy.offline_model.conversation import read_conversation

KNOWLEDGE = {
    "type": "function",
    "function": {
        "name": "KnowledgeTool",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
CLOCK = {"type": "function", "function": {"name": "CurrentTimeTool", "parameters": {"type": "object"}}}
HANDBOOK = {
    "n": 3,
    "title": "Warranty",
    "heading_path": ["Kettle handbook", "Warranty"],
    "filename": "handbook.md",
    "content": "The kettle is covered for 24 months from the purchase. It does not cover limescale. Keep the receipt.",
    "score": 0.9,
}
ORDERS = {
    "n": 1,
    "title": "订单表 orders",
    "heading_path": ["电商数据库设计", "订单表 orders"],
    "content": "订单表记录交易。超过30分钟未付款的订单自动取消。\n\n"
    "| 字段 | 类型 | 说明 |\n|---|---|---|\n| order_id | BIGINT | 主键 |\n| pay_time | DATETIME | 支付时间 |\n\n"
    "```sql\nCREATE TABLE orders (\n  order_id BIGINT PRIMARY KEY\n);\n```\n",
}
INVENTORY = {"n": 2, "title": "库存表", "heading_path": ["库存表"], "content": "下单时锁定库存，取消订单时释放。"}


def decided(question: str, *, tools: tuple[Any, ...] = (KNOWLEDGE, CLOCK), **body: Any) -> Say | Call:
    messages = body.get("messages") or [{"role": "user", "content": question}]
    return decide(read_conversation({"messages": messages, "tools": list(tools)}))


def answered(question: str, result: object, tool: str = "KnowledgeTool") -> str:
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    content = result if isinstance(result, str) else json.dumps(result)
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    decision = decided(question, messages=messages)
    assert isinstance(decision, Say)
    return decision.text


@pytest.mark.parametrize(
    "text", ["hello", "Hi there!", "Thanks a lot.", "你好！", "谢谢", "谢谢你", "再见", "", "good morning"]
)
def test_small_talk_needs_no_search(text: str) -> None:
    decision = decided(text)
    assert isinstance(decision, Say)
    assert "offline model" in decision.text or "离线模型" in decision.text


@pytest.mark.parametrize(
    "text", ["hi, how long is the warranty?", "你好，订单表有哪些字段？", "What is the order time limit?"]
)
def test_questions_are_searched_for(text: str) -> None:
    assert decided(text) == Call("KnowledgeTool", {"query": text})


@pytest.mark.parametrize("text", ["What time is it?", "What's the date today?", "现在几点了？", "今天是星期几？"])
def test_time_is_asked_of_the_clock(text: str) -> None:
    assert decided(text) == Call("CurrentTimeTool", {})
    assert decided(text, tools=(KNOWLEDGE,)) == Call("KnowledgeTool", {"query": text})


def test_a_question_that_refers_back_takes_the_one_before_along() -> None:
    messages = [
        {"role": "user", "content": "How long is the warranty?"},
        {"role": "assistant", "content": "24 months"},
        {"role": "user", "content": "And what does it cost?"},
    ]
    assert decided("", messages=messages) == Call(
        "KnowledgeTool", {"query": "How long is the warranty? And what does it cost?"}
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string", "enum": ["0198c0de-0000-7000-8000-000000000001"]}},
        {"type": "array", "items": {"type": "string"}, "description": "of 0198c0de-0000-7000-8000-000000000001 (shop)"},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_required_knowledge_bases_come_from_schema_or_prompt(schema: dict[str, Any]) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "KnowledgeTool",
            "parameters": {
                "properties": {"query": {"type": "string"}, "knowledge_base_ids": schema, "top_k": {"type": "integer"}},
                "required": ["query", "knowledge_base_ids", "top_k"],
            },
        },
    }
    messages = [
        {"role": "system", "content": "- shop (id 0198c0de-0000-7000-8000-000000000001)"},
        {"role": "user", "content": [{"type": "text", "text": "orders?"}]},
    ]
    decision = decided("", messages=messages, tools=(tool,))
    assert isinstance(decision, Call)
    ids = ["0198c0de-0000-7000-8000-000000000001"]
    assert decision.arguments == {"query": "orders?", "knowledge_base_ids": ids, "top_k": 1}


def test_the_answer_quotes_what_fits_with_the_number_of_its_hit() -> None:
    answer = answered("How long is the warranty?", {"hits": [HANDBOOK]})
    label, quoted = answer.split("\n\n", 1)
    assert "Offline model" in label
    assert quoted == "The kettle is covered for 24 months from the purchase. [3]"


def test_a_chinese_question_is_answered_in_chinese() -> None:
    answer = answered("订单多久未付款会取消？", {"hits": [ORDERS, INVENTORY]})
    label, quoted = answer.split("\n\n", 1)
    assert "离线模型" in label
    assert quoted == "超过30分钟未付款的订单自动取消。 [1]"
    assert "取消订单时释放。 [2]" in answered("取消订单时库存怎么办？", {"hits": [ORDERS, INVENTORY]})


def test_table_rows_and_statements_are_quoted_whole() -> None:
    header = "| 字段 | 类型 | 说明 |\n|---|---|---|\n"
    row = answered("支付时间是哪个字段？", {"hits": [ORDERS]})
    assert row.endswith(f"{header}| pay_time | DATETIME | 支付时间 |\n\n[1]")
    table = answered("订单表有哪些字段？", {"hits": [ORDERS]})
    assert f"{header}| order_id | BIGINT | 主键 |\n| pay_time | DATETIME | 支付时间 |\n\n[1]" in table
    ddl = answered("orders 的建表语句？", {"hits": [ORDERS]})
    assert "```sql\nCREATE TABLE orders (\n  order_id BIGINT PRIMARY KEY\n);\n```\n\n[1]" in ddl


@pytest.mark.parametrize("result", [{"hits": []}, {"hits": [{"n": 1, "content": ""}]}, []])
def test_nothing_found(result: object) -> None:
    assert answered("Who is the CEO?", result).startswith("I don't know")
    assert "在知识库中没有找到" in answered("总经理是谁？", result)


def test_hits_that_do_not_fit_are_no_answer() -> None:
    answer = answered("Who is the CEO of the company?", {"hits": [HANDBOOK]})
    assert answer.startswith("I don't know")
    assert "[3]" in answer


def test_a_failed_tool_is_said_to_have_failed() -> None:
    answer = answered("How long?", {"error": {"code": "retrieval_unavailable", "message": "can't be searched now"}})
    assert "no answer" in answer
    assert "can't be searched now" in answer
    assert "no answer" in answered("How long?", "not json")


def test_the_clock_is_quoted() -> None:
    facts = {"time": "2026-01-01T00:00:00+00:00", "weekday": "Thursday"}
    answer = answered("What time is it?", facts, tool="CurrentTimeTool")
    assert answer == "Offline model, quoting the clock: 2026-01-01T00:00:00+00:00 Thursday"


def test_results_before_the_last_question_do_not_count() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "KnowledgeTool", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "How long is the warranty?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"hits": [HANDBOOK]})},
        {"role": "assistant", "content": "24 months [3]"},
        {"role": "user", "content": "How is the kettle cleaned and descaled?"},
    ]
    assert decided("", messages=messages) == Call("KnowledgeTool", {"query": "How is the kettle cleaned and descaled?"})


def test_without_a_knowledge_base_it_says_what_it_is() -> None:
    decision = decided("How long is the warranty?", tools=())
    assert isinstance(decision, Say)
    assert "offline model" in decision.text


def test_summaries_are_made_of_the_text() -> None:
    text = (
        "Kettles boil water. Kettles need descaling. Water leaves scale in kettles.\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    messages = [{"role": "system", "content": "Write a short summary."}, {"role": "user", "content": text}]
    decision = decided("", messages=messages, tools=())
    assert isinstance(decision, Say)
    assert decision.text
    assert all(line in text for line in decision.text.splitlines())
    assert "|" not in decision.text
