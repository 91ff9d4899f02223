import pytest

from services.ingestion.text import EmptyDocument, NotText, TextTooLarge, decode

CHINESE = "订单表记录每一笔订单的状态。"
TRADITIONAL = "訂單表記錄每一筆訂單的狀態與付款方式。"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030", "gbk"])
def test_chinese_is_read_in_any_usual_encoding(encoding: str) -> None:
    assert decode(CHINESE.encode(encoding), max_chars=1000) == CHINESE


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (TRADITIONAL, "big5"),
        ("これは日本語の文章です。漢字とかなが混ざっています。", "shift_jis"),
        ("안녕하세요 이것은 한국어 문장입니다. 데이터베이스 설계 문서입니다.", "euc_kr"),
        ("Café déjà vu: naïve façades", "cp1252"),
        ("line one\r\nline two", "utf-16-le"),
        ("line one\r\nline two", "utf-16-be"),
    ],
)
def test_other_encodings_are_detected(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding), max_chars=1000) == text.replace("\r\n", "\n")


@pytest.mark.parametrize("encoding", ["cp1251", "koi8_r", "koi8_u", "cp866", "iso8859_5"])
@pytest.mark.parametrize(
    "text", ["Чайник греет воду", "ЧАЙНИК ГРЕЕТ ВОДУ", "# Возврат\n\nСрок: 30 дней (см. order_id).\n" * 3]
)
def test_short_cyrillic_texts_are_told_from_other_encodings(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding), max_chars=1000) == text


def test_ukrainian_letters_are_read() -> None:
    text = "Її можна використати знову, якщо є вода."
    assert decode(text.encode("koi8_u"), max_chars=1000) == text


@pytest.mark.parametrize(
    "text", ["L'été dernier, nous avons été à la forêt près de Besançon.", "Größe hängt am Gefäß, das fällt und trägt."]
)
def test_accents_are_no_cyrillic_letters(text: str) -> None:
    assert decode(text.encode("cp1252"), max_chars=1000) == text


@pytest.mark.parametrize("encoding", ["cp1251", "koi8_u", "cp866", "iso8859_5"])
def test_binary_data_is_not_taken_for_cyrillic_text(encoding: str) -> None:
    letters = "оеаинтсрвлкмдуп".encode(encoding)
    with pytest.raises(NotText):
        decode(b"".join(bytes([letter, 1, 2]) for letter in letters * 10), max_chars=1000)


def test_a_bad_byte_does_not_spoil_utf8() -> None:
    damaged = CHINESE.encode() + b"\xff" + CHINESE.encode()
    assert decode(damaged, max_chars=1000) == f"{CHINESE}\ufffd{CHINESE}"


def test_text_is_normalised() -> None:
    assert decode("a\r\nb\rc\x00d e\u0301".encode(), max_chars=100) == "a\nb\ncd \u00e9"


def test_lone_surrogates_are_dropped() -> None:
    assert decode(b"\xff\xfe" + b"\x00\xd8" + "ok".encode("utf-16-le"), max_chars=100).strip("\ufffd") == "ok"


@pytest.mark.parametrize("data", [b"", b" \r\n\t\n", b"\xef\xbb\xbf", b"\x00\x00\x00\x00"])
def test_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(EmptyDocument) as error:
        decode(data, max_chars=100)
    assert error.value.code == "empty_document"


def test_binary_data_is_refused() -> None:
    with pytest.raises(NotText) as error:
        decode(bytes(range(256)) * 20, max_chars=100_000)
    assert error.value.code == "not_text"


@pytest.mark.parametrize("data", [b"x" * 101, b"x" * 1000, "订".encode() * 101])
def test_more_than_the_limit_is_refused(data: bytes) -> None:
    with pytest.raises(TextTooLarge) as error:
        decode(data, max_chars=100)
    assert error.value.code == "text_too_large"
