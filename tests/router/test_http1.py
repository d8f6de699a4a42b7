import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.router.chunked import ChunkedBody
from hpcserve.router.first_token import FirstToken, StreamStart
from hpcserve.router.http1 import RequestReader
from hpcserve.router.request import BadMessageError, Request
from hpcserve.router.response import parse_response_head
from tests.router.fake_engine import event, events_of

HEAD = (
    b"POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nX-Long: "
    + b"v" * 50
    + b"\r\nCONTENT-length: 11\r\n\r\nhello world"
)
CHUNKED = b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nT: u\r\n\r\n"


def read(pieces: list[bytes]) -> list[Request]:
    reader = RequestReader(header_limit_bytes=2000, body_limit_bytes=1000)
    found: list[Request] = []
    for piece in pieces:
        for request in reader.feed(piece):
            if not found or found[-1] is not request:
                found.append(request)
        assert reader.error is None
    assert not reader.in_message
    return found


@pytest.mark.parametrize("message", [HEAD, CHUNKED])
def test_a_request_split_at_every_byte_is_the_same_request(message: bytes) -> None:
    wanted = read([message])
    for place in range(1, len(message)):
        assert read([message[:place], message[place:]]) == wanted
    assert read([bytes([byte]) for byte in message]) == wanted
    assert bytes(wanted[0].body) == b"hello world"
    assert wanted[0].complete


@given(st.lists(st.sampled_from([HEAD, CHUNKED, b"GET /health HTTP/1.1\r\n\r\n"]), max_size=6), st.data())
def test_pipelined_requests_in_any_pieces(messages: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
    assert read(pieces) == [request for message in messages for request in read([message])]


def test_many_small_chunks_are_no_extensions_however_they_come() -> None:
    parts = b"1;a=b\r\ny\r\n" * 500 + b"%x\r\n%b\r\n0\r\n\r\n" % (450, b"z" * 450)
    message = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + parts
    for size in (1, 7, 3000, len(message)):
        (request,) = read([message[at : at + size] for at in range(0, len(message), size)])
        assert (request.body_bytes, request.complete) == (950, True)


TRAILERS = b"Host: b\r\nauthorization: Bearer other\r\nX-Request-Id: c\r\nExpect: d\r\n"


def test_trailers_change_nothing_of_what_the_head_said() -> None:
    head = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer one\r\nTransfer-Encoding: chunked\r\n\r\n"
    message = head + b"2\r\n{}\r\n0\r\n" + TRAILERS + b"\r\n"
    for size in (1, 7, len(message)):
        first, second = read([(message + HEAD)[at : at + size] for at in range(0, len(message + HEAD), size)])
        assert first.headers == {b"host": b"a", b"authorization": b"Bearer one", b"transfer-encoding": b"chunked"}
        assert (bytes(first.body), first.complete) == (b"{}", True)
        assert second.headers[b"host"] == b"x"


def test_limits_hold_in_any_pieces() -> None:
    for size in (1, 7, 5000):
        for message, status in (
            (b"GET /x HTTP/1.1\r\nA: " + b"y" * 3000 + b"\r\n\r\n", 431),
            (b"GET /" + b"y" * 3000 + b" HTTP/1.1\r\n\r\n", 431),
            (b"POST /x HTTP/1.1\r\nContent-Length: 2000\r\n\r\n" + b"y" * 2000, 413),
            (b"POST /x HTTP/1.1\r\nContent-Length: " + b"0" * 15 + b"1\r\n\r\ny", 400),
            (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\ny\r\n" * 2000, 413),
            (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 20_000, 400),
            (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 20_000 + b"1\r\nx", 400),
            (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"a" * 98 + b"\r\ny\r\n") * 200, 400),
            (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: u\r\n" * 20, 431),
        ):
            reader = RequestReader(header_limit_bytes=2000, body_limit_bytes=1000)
            for place in range(0, len(message), size):
                reader.feed(message[place : place + size])
                if reader.error is not None:
                    break
            assert reader.error is not None
            assert reader.error.status == status


def reference(data: bytes) -> tuple[bytes, int] | None:
    """RFC 9112, 7.1.3, word for word, on whole data: the body and its length on the wire; None while incomplete."""
    body, position = b"", 0
    while True:
        end = data.find(b"\r\n", position)
        if end < 0:
            return None
        size = int(data[position:end].partition(b";")[0], 16)
        position = end + 2
        if size == 0:
            break
        if len(data) < position + size + 2:
            return None
        body += data[position : position + size]
        position += size + 2
    while True:
        end = data.find(b"\r\n", position)
        if end < 0:
            return None
        if end == position:
            return body, end + 2
        position = end + 2


chunks = st.lists(st.one_of(st.binary(min_size=1, max_size=40), st.sampled_from([b"0\r\n\r\n", b"\r\n"])), max_size=6)


@given(chunks, st.sampled_from([b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"]), st.binary(max_size=10), st.data())
def test_chunked_bodies_against_the_reference(
    parts: list[bytes], trailers: bytes, excess: bytes, data: st.DataObject
) -> None:
    extensions = data.draw(st.lists(st.sampled_from([b"", b";x", b'; a="b"']), min_size=6, max_size=6))
    wire = b"".join(
        b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part, extension in zip(parts, extensions, strict=False)
    )
    wire += b"0\r\n" + trailers + b"\r\n"
    wanted = reference(wire)
    assert wanted is not None
    whole = wire + excess
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    body, taken = ChunkedBody(), 0
    payload: list[bytes] = []
    for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        if body.ended:
            break
        if a == b:
            continue
        rest = body.feed(whole[a:b], payload)
        taken = b - rest
        assert body.ended == (reference(whole[:b]) is not None)
    assert body.ended
    assert (b"".join(payload), taken) == wanted


def test_boundaries_lie_between_chunks() -> None:
    body = ChunkedBody()
    found = [
        place for place in range(18) if body.feed(b"5\r\nhello\r\n3\r\nabc\r\n"[place : place + 1]) or body.at_boundary
    ]
    assert found == [9, 17]


@pytest.mark.parametrize(
    "bad",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1\n",
        b"1\r\nab",
        b"1\r\na\n\r",
        b"f" * 5000,
        b"1" * 16 + b"\r\n",
    ],
)
def test_bad_chunks_are_refused_in_any_pieces(bad: bytes) -> None:
    for size in (1, 2, 10_000):
        with pytest.raises(BadMessageError):
            feed_all(ChunkedBody(), bad, size)


def feed_all(body: ChunkedBody, data: bytes, size: int) -> None:
    for place in range(0, len(data), size):
        body.feed(data[place : place + size])


def test_response_heads() -> None:
    head = parse_response_head(b"HTTP/1.1 200 OK\r\nContent-Type: a; b\r\nTransfer-Encoding: Chunked\r\nx:  y \t")
    assert (head.status, head.chunked, head.length, head.keep_alive) == (200, True, None, True)
    assert head.headers[b"content-type"] == b"a; b"
    assert head.headers[b"x"] == b"y"
    assert not parse_response_head(b"HTTP/1.1 200 OK").keep_alive
    assert parse_response_head(b"HTTP/1.1 204").length == 0
    assert not parse_response_head(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1").keep_alive
    assert not parse_response_head(b"HTTP/1.0 200 OK\r\nContent-Length: 1").keep_alive
    for bad in (
        b"HTTP/2 200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 200 OK\r\nA : b",
        b"HTTP/1.1 200 OK\r\n folded",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\nA: b\nC: d",
    ):
        with pytest.raises(BadMessageError):
            parse_response_head(bad)


@pytest.mark.parametrize(
    ("version", "lines", "stays"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: x", True),
        (b"1.1", b"Connection: closed", True),
        (b"1.1", b"Connection: CLOSE", False),
        (b"1.1", b"Connection: close, x", False),
        (b"1.1", b"Connection: x,\tclose ,", False),
        (b"1.1", b"Connection: keep-alive, close", False),
        (b"1.1", b"Connection: close\r\nConnection: x", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive, x", True),
        (b"1.0", b"Connection: x\r\nConnection: keep-alive", True),
        (b"1.0", b"Connection: keep-alive, close", False),
    ],
)
def test_whether_an_engine_keeps_its_connection(version: bytes, lines: bytes, stays: bool) -> None:
    head = b"HTTP/" + version + b" 200 OK\r\nContent-Length: 1" + (b"\r\n" + lines if lines else b"")
    assert parse_response_head(head).keep_alive is stays


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([ROLE], FirstToken.PENDING),
        ([b": ping\n\n"], FirstToken.PENDING),
        ([ROLE, event({"error": {"message": "m"}})], FirstToken.FAILED),
        ([event({"object": "error", "message": "m"})], FirstToken.FAILED),
        ([ROLE, event({"choices": [{"delta": {}, "finish_reason": "error"}]})], FirstToken.FAILED),
        ([ROLE, event({"choices": [{"delta": {"content": ""}}]})], FirstToken.CAME),
        ([event({"choices": [{"delta": {"role": "assistant", "content": "Hi"}}]})], FirstToken.CAME),
        ([event({"choices": [{"delta": {"role": "assistant", "tool_calls": [{}]}}]})], FirstToken.CAME),
        ([event({"choices": [], "usage": {}, "error": None})], FirstToken.CAME),
        ([b"data: [DONE]\n\n"], FirstToken.CAME),
        ([b"data: not json\n\n"], FirstToken.CAME),
        ([b"something else\n\n"], FirstToken.CAME),
    ],
)
def test_the_first_token_of_a_stream(events: list[bytes], wanted: FirstToken) -> None:
    whole = b"".join(events)
    assert StreamStart().feed(whole) is wanted
    start = StreamStart()
    verdicts = [start.feed(whole[place : place + 1]) for place in range(len(whole))]
    assert verdicts[-1] is wanted
    assert set(verdicts[:-1]) <= {FirstToken.PENDING}


def test_a_stream_has_its_first_token_at_its_first_token() -> None:
    for chat, place in ((True, 1), (False, 0)):
        start = StreamStart()
        verdicts = [start.feed(each) for each in events_of([" a", " b"], chat=chat)]
        assert verdicts.index(FirstToken.CAME) == place


@given(
    st.one_of(
        st.binary(max_size=30), st.binary(min_size=1, max_size=40).map(lambda part: b"%x\r\n%b\r\n" % (len(part), part))
    )
)
def test_what_passes_for_one_chunk_is_one(data: bytes) -> None:
    body, payload = ChunkedBody(), list[bytes]()
    if ChunkedBody().is_next_chunk(data):
        assert body.feed(data, payload) == 0
        assert body.at_boundary
        assert (len(payload), b"%x\r\n%b\r\n" % (len(payload[0]), payload[0])) == (1, data)


def test_what_looks_like_a_chunk_within_another_is_none() -> None:
    chunk = b"1\r\nx\r\n"
    assert ChunkedBody().is_next_chunk(chunk)
    for begun in (b"20\r\nabc", b"2", b"2\r", b"5\r\nhello\r", b"0\r\n"):
        body = ChunkedBody()
        body.feed(begun)
        assert not body.is_next_chunk(chunk)
    for other in (b"1\r\nx\n\n", b"01\r\nx\r\n", b"+1\r\nx\r\n", b"1\r\nxy\r\n", chunk + b"0\r\n\r\n", b"\r\n", b""):
        assert not ChunkedBody().is_next_chunk(other)
