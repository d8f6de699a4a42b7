"""Plain request heads are read without the parser: what is said of them must be what the parser says."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.router.http1 import RequestReader
from hpcserve.router.plain import PlainHeads
from hpcserve.router.request import Request

Said = tuple[list[tuple[Any, ...]], int | None, bool]


def all_of(reader: RequestReader, pieces: list[bytes]) -> Said:
    found: list[Request] = []
    for piece in pieces:
        for request in reader.feed(piece):
            if not any(each is request for each in found):
                found.append(request)
        if reader.error is not None or reader.ended:
            break
    facts = [
        (
            *(each.method, each.target, each.headers, each.http10, each.keep_alive),
            *(bytes(each.body), each.body_bytes, each.complete),
        )
        for each in found
    ]
    return facts, None if reader.error is None else reader.error.status, reader.in_message


class Never(PlainHeads):
    def read(self, head: bytes, *, limit_bytes: int) -> None:  # noqa: ARG002 - every head goes to httptools
        return None


def both(pieces: list[bytes]) -> tuple[Said, Said]:
    plain = RequestReader(header_limit_bytes=3000, body_limit_bytes=60)
    parser = RequestReader(header_limit_bytes=3000, body_limit_bytes=60)
    parser._plain = Never()
    return all_of(plain, pieces), all_of(parser, pieces)


starts = st.sampled_from([
    b"POST /v1/completions HTTP/1.1",
    b"GET /health HTTP/1.1",
    b"GET /v1/models?a=b%20c HTTP/1.1",
    b"POST /v1/chat/completions HTTP/1.0",
    b"post /x HTTP/1.1",
    b"PUT /x HTTP/1.1",
    b"POST  /x HTTP/1.1",
    b"POST /x HTTP/1.1 ",
    b"POST /x#y HTTP/1.1",
    b"POST /x\xc3\xa9 HTTP/1.1",
    b"POST http://x/y HTTP/1.1",
    b"POST * HTTP/1.1",
    b"POST /x HTTP/2.0",
    b"GET /a:b HTTP/1.1",
])  # fmt: skip
lines = st.sampled_from([
    b"Host: a",
    b"host:b",
    b"Content-Type: application/json",
    b"Authorization: Bearer x",
    b"Content-Length: 5",
    b"content-length:5",
    b"Content-Length: 005",
    b"Content-Length: 0",
    b"Content-Length: 61",
    b"Content-Length: +5",
    b"Content-Length: 5, 5",
    b"Content-Length: ",
    b"Content-Length : 5",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Connection: keep-alive",
    b"Connection: Keep-Alive, x",
    b"Connection: close",
    b"Proxy-Connection: close",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"X: a \t",
    b"X:\ta",
    b"X:",
    b"X: \xe9",
    b"X: a\x00b",
    b"X: a\x7fb",
    b"X: a\rb",
    b"X: a\nb",
    b" folded",
    b"no colon",
    b": no name",
    b"X Y: z",
    b"GET /a:b HTTP/1.1",
    b"",
])  # fmt: skip
bodies = st.sampled_from([b"", b"hello", b"hell", b"hello\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"\r\n\r\n"])


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    head = b"\r\n".join([draw(starts), *draw(st.lists(lines, max_size=5))])
    return head + draw(st.sampled_from([b"\r\n\r\n"] * 9 + [b"\n\n", b"\r\n"])) + draw(bodies)


@settings(max_examples=300)
@given(st.lists(messages(), min_size=1, max_size=4), st.data())
def test_it_is_what_the_parser_says(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
    plain, parser = both(pieces)
    assert plain == parser


@given(starts, st.lists(lines, max_size=5))
def test_what_is_plain_is_read_as_the_parser_reads_it(start: bytes, rest: list[bytes]) -> None:
    head = b"\r\n".join([start, *rest])
    found = PlainHeads().read(head, limit_bytes=3000)
    if found is not None:
        plain, parser = both([head + b"\r\n\r\n"])
        assert plain == parser
        assert plain[1] in {None, 413}


@pytest.mark.parametrize("cut", range(0, 75, 7))
def test_a_line_is_known_only_as_what_it_was(cut: int) -> None:
    """A start line that comes again where a header should stand is none."""
    good = b"POST /a:b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    bad = b"POST /a:b HTTP/1.1\r\nPOST /a:b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
    plain, parser = both([good[:cut], good[cut:], bad])
    assert plain == parser
    assert plain[1] == 400


def test_a_refused_body_is_not_kept() -> None:
    reader = RequestReader(header_limit_bytes=3000, body_limit_bytes=60)
    (request,) = reader.feed(b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc")
    request.discard, request.body = True, b""
    (same,) = reader.feed(b"defghi")
    assert same is request
    assert (request.body, request.body_bytes, request.complete) == (b"", 9, True)
    assert not reader.in_message


WHOLE = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: b\r\n\r\nhello"


def test_a_whole_request_is_taken_at_once_and_nothing_else_is() -> None:
    reader = RequestReader(header_limit_bytes=3000, body_limit_bytes=60)
    for other in (WHOLE[:-1], WHOLE + b"x", WHOLE + WHOLE, WHOLE[:20], WHOLE.replace(b"5", b"61"), b"\r\n" + WHOLE):
        assert reader.take_whole(other) is None
        assert not reader.in_message
    taken = reader.take_whole(WHOLE)
    assert taken is not None
    assert (taken, reader.in_message) == (
        *RequestReader(header_limit_bytes=3000, body_limit_bytes=60).feed(WHOLE),
        False,
    )
    reader.feed(WHOLE[:-1])
    assert reader.take_whole(WHOLE) is None, "in the middle of another"
    closing = RequestReader(header_limit_bytes=3000, body_limit_bytes=60)
    closing.feed(WHOLE.replace(b"X: b", b"Connection: close"))
    assert closing.take_whole(WHOLE) is None


def test_heads_are_the_same_only_where_all_but_their_length_is() -> None:
    reader = RequestReader(header_limit_bytes=3000, body_limit_bytes=60)

    def head_of(message: bytes) -> object:
        assert reader.take_whole(message) is not None
        return reader.head

    first = head_of(WHOLE)
    assert first is not None
    assert head_of(WHOLE.replace(b"5", b"7") + b"!!") is first
    assert head_of(b"GET /v1/x HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n") is None
    assert head_of(WHOLE) is first
    for change in ((b"/v1/x", b"/v1/y"), (b"Host: a", b"Host: b"), (b"X: b", b"Authorization: b"), (b"\r\nX: b", b"")):
        other = head_of(WHOLE.replace(*change))
        assert other is not None
        assert other is not first
        assert reader.take_whole(WHOLE) == RequestReader(header_limit_bytes=3000, body_limit_bytes=60).feed(WHOLE)[0]
        assert head_of(WHOLE.replace(*change)) is not other
        first = head_of(WHOLE)
