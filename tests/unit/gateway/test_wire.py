"""An answer parses alike however it is cut into packets; other bytes are refused."""

import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.upstream.wire import Chunked, Counted, UntilClose, WireError, choose_framing, read_head

OK = b"HTTP/1.1 200 OK\r\n"


@st.composite
def chunked_bodies(draw):
    """Return (content, its bytes on the wire)."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
    extension, trailer = draw(st.sampled_from([b"", b";a=b"])), draw(st.sampled_from([b"", b"x: y\r\n"]))
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return b"".join(pieces), chunks + b"0\r\n" + trailer + b"\r\n"


def cut(travelling, places):
    ends = sorted({place % (len(travelling) + 1) for place in places})
    return [travelling[begin:end] for begin, end in zip([0, *ends], [*ends, None], strict=True)]


@given(chunked_bodies(), st.lists(st.integers(0, 1000), max_size=12), st.binary(max_size=5))
def test_chunks_give_their_content_however_they_are_cut(body, places, after):
    content, travelling = body
    chunked = Chunked()

    read = b"".join([chunked.feed(piece) for piece in cut(travelling + after, places)])

    assert (read, chunked.is_done, chunked.rest.startswith(after[:0])) == (content, True, True)


@given(chunked_bodies(), st.integers(1, 1000))
def test_chunks_that_break_off_are_not_whole(body, num_missing):
    chunked = Chunked()

    chunked.feed(body[1][: -min(num_missing, len(body[1]))])

    assert not chunked.is_done
    assert not chunked.close()


@given(st.binary(max_size=30), st.binary(max_size=10), st.lists(st.integers(0, 50), max_size=5))
def test_a_counted_body_ends_where_its_length_says(content, after, places):
    counted = Counted(len(content))

    read, rest = b"", b""
    for piece in cut(content + after, places):
        read += counted.feed(piece)
        rest += counted.rest

    assert (read, rest, counted.is_done) == (content, after, True)


@given(st.lists(st.integers(0, 200), max_size=5))
def test_a_head_is_read_however_it_is_cut(places):
    travelling = b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Type: text/plain\r\nX: 1\r\nx:2\r\n\r\nbody"

    head, unread = None, b""
    for piece in cut(travelling, places):
        unread += piece
        if head is None:
            head, unread = read_head(unread)

    assert (head.status, head.field("content-type"), head.field("x"), unread) == (200, "text/plain", "1, 2", b"body")


@pytest.mark.parametrize(
    "text", [b"SSH-2.0-x\r\n\r\n", b"HTTP/2 200 OK\r\n\r\n", b"HTTP/1.1 101 Switch\r\n\r\n", b"x" * 70000]
)
def test_what_is_no_answer_is_refused(text):
    with pytest.raises(WireError):
        read_head(text)


@pytest.mark.parametrize("text", [b"zz\r\n", b"-1\r\n", b"2\r\nabc\r\n", b"1" * 5000])
def test_what_are_no_chunks_is_refused(text):
    with pytest.raises(WireError):
        Chunked().feed(text)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (b"content-length: 3\r\n", Counted),
        (b"content-length: 3\r\ncontent-length: 3\r\n", Counted),
        (b"transfer-encoding: chunked\r\ncontent-length: 3\r\n", Chunked),
        (b"", UntilClose),
    ],
)
def test_the_head_says_how_long_the_body_is(fields, kind):
    assert type(choose_framing(read_head(OK + fields + b"\r\n")[0])) is kind


@pytest.mark.parametrize(
    "fields",
    [
        b"content-length: 3\r\ncontent-length: 4\r\n",
        b"content-length: -3\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"content-encoding: gzip\r\n",
    ],
)
def test_a_length_that_can_be_read_in_two_ways_is_refused(fields):
    with pytest.raises(WireError):
        choose_framing(read_head(OK + fields + b"\r\n")[0])


@pytest.mark.parametrize(
    ("head", "is_last"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", False),
        (b"HTTP/1.1 200\r\nConnection: Close\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\n", False),
    ],
)
def test_the_head_says_whether_the_connection_goes_on(head, is_last):
    assert read_head(head)[0].is_last == is_last
