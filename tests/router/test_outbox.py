from collections.abc import Callable

from hpcserve.router.outbox import Outbox


class Line:
    """Writes down what is written, in one list for all lines."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        self._name = name
        self._written = written
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        assert not self.closing
        self._written.append((self._name, data))

    def writelines(self, list_of_data: tuple[bytes, bytes]) -> None:
        self.write(b"".join(list_of_data))


def test_what_is_put_in_one_turn_is_written_at_its_end_in_its_order() -> None:
    turns: list[Callable[[], None]] = []
    written: list[tuple[str, bytes]] = []
    outbox, first, second = Outbox(turns.append), Line("a", written), Line("b", written)
    outbox.put(first, b"1")
    outbox.put(second, (b"2", b"3"))
    outbox.put(first, b"4")
    assert (written, len(turns)) == ([], 1)
    turns.pop()()
    assert written == [("a", b"1"), ("b", b"23"), ("a", b"4")]
    outbox.put(first, b"5")
    assert len(turns) == 1, "the next turn is asked for anew"
    outbox.flush()
    assert written[-1] == ("a", b"5")
    turns.pop()()
    assert len(written) == 4, "once is enough"


def test_what_is_for_a_connection_that_broke_meanwhile_is_dropped() -> None:
    written: list[tuple[str, bytes]] = []
    outbox, first, second = Outbox(lambda _: None), Line("a", written), Line("b", written)
    outbox.put(first, b"1")
    outbox.put(second, b"2")
    first.closing = True
    outbox.flush()
    assert written == [("b", b"2")]


def test_much_does_not_wait_for_the_end_of_the_turn() -> None:
    written: list[tuple[str, bytes]] = []
    outbox, line = Outbox(lambda _: None), Line("a", written)
    for number in range(100):
        outbox.put(line, b"%d" % number)
    assert 64 <= len(written) < 100
    outbox.flush()
    assert [data for _, data in written] == [b"%d" % number for number in range(100)]


def test_a_write_that_puts_more_loses_nothing() -> None:
    written: list[tuple[str, bytes]] = []

    class Echo(Line):
        def write(self, data: bytes) -> None:
            super().write(data)
            if data == b"ask":
                outbox.put(line, b"more")

    outbox = Outbox(lambda _: None)
    line = Echo("a", written)
    outbox.put(line, b"ask")
    outbox.put(line, b"then")
    outbox.flush()
    outbox.flush()
    assert [data for _, data in written] == [b"ask", b"then", b"more"]
