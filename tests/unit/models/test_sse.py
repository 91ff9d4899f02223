import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent_runner.models.sse import EventReader


def events_of(*reads: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for read in reads for event in reader.feed(read)] + reader.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        ("data: a\n\ndata: b\n\n", ["a", "b"]),
        ("data:a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        ("data: a\r\rdata: b\r\r", ["a", "b"]),
        ("data: a\ndata:  b\n\n", ["a\n b"]),
        (": keep-alive\n\nevent: x\nid: 3\ndata: a\n\n", ["a"]),
        ("\ufeffdata: a\n\n", ["a"]),
        ("data\n\ndatax: 1\n\nnonsense\n\n", []),
        ("data: a", ["a"]),
        ("", []),
    ],
)
def test_events(stream: str, events: list[str]) -> None:
    assert events_of(stream.encode()) == [event.encode() for event in events]


LINES = st.lists(st.sampled_from(["data: 订单", "data: 😀 x", ": c", "", "event: y"]), max_size=12)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_events_do_not_depend_on_where_reads_end(lines: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(line + end for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events_of(*reads) == events_of(stream)
