"""Whatever is dropped, repeated or cut off: batches are applied in order, each once, and what is lost is said."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.routing.event_order import EventOrder, Lost
from hpcserve.routing.kv_events import read_batch
from hpcserve.routing.kv_index import KvIndex
from hpcserve.routing.kv_intake import Intake
from tests.routing.kv_model import CLEARED, Model, contents, payload, removed, stored
from tests.routing.test_kv_index import PROMPTS, keys_of

WORKER = "prefill-0"


@dataclass
class Publisher:
    """Numbers batches and keeps the last ones."""

    kept: deque[tuple[int, bytes]]
    count: int = 0

    def publish(self, data: bytes) -> int:
        self.kept.append((self.count, data))
        self.count += 1
        return self.count - 1

    def replay(self, start: int, most: int) -> list[tuple[int, bytes]]:
        """What it still has, cut off behind `most`."""
        return [each for each in self.kept if each[0] >= start][:most]


@dataclass
class Subscriber:
    """What a feed does with the order, without a network."""

    order: EventOrder
    intake: Intake
    lost: int = 0
    applied: list[bytes] = field(default_factory=list)

    def do(self, steps: list[bytes | Lost]) -> None:
        for step in steps:
            if isinstance(step, Lost):
                assert step.batches > 0
                self.lost += step.batches
                self.intake.forget()
            else:
                self.applied.append(step)
                self.intake.take(read_batch(step))

    def replay(self, publisher: Publisher, most: int) -> None:
        start = self.order.replay_began()
        for number, data in publisher.replay(start, most):
            self.do(self.order.replayed(number, data))
        self.do(self.order.replay_ended(whole=len(publisher.replay(start, most + 1)) <= most))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "store", "remove", "clear"]),
        st.sampled_from(PROMPTS),
        st.integers(0, 3),
        st.sampled_from(["arrives", "arrives", "twice", "dropped"]),
        st.sampled_from([0, 0, 1, 5, 1000]),
    ),
    max_size=40,
)


def publish(publisher: Publisher, model: Model, kind: str, tokens: tuple[int, ...], place: int) -> tuple[int, bytes]:
    blocks = contents(tokens)
    place = min(place, len(blocks) - 1)
    if kind == "store":
        data = payload(stored(tokens, 0, place + 1))
        model.store(WORKER, "GPU", blocks[: place + 1])
    elif kind == "remove":
        data = payload(removed(blocks[place]))
        model.remove(WORKER, "GPU", blocks[place])
    else:
        data = payload(CLEARED)
        model.clear(WORKER)
    return publisher.publish(data), data


@settings(deadline=None)
@given(STEPS, st.sampled_from([1, 3, 1000]), st.booleans())
def test_the_index_never_claims_what_is_not_there_and_is_whole_where_nothing_was_lost(
    steps: list[tuple[str, tuple[int, ...], int, str, int]], buffer: int, replays: bool
) -> None:
    publisher, model, index = Publisher(deque(maxlen=buffer)), Model(), KvIndex()
    mine = Subscriber(EventOrder(replays=replays), Intake(index, WORKER))
    for kind, tokens, place, fate, replayed in steps:
        number, data = publish(publisher, model, kind, tokens, place)
        for _ in range({"arrives": 1, "twice": 2, "dropped": 0}[fate]):
            mine.do(mine.order.live(number, data))
        if mine.order.wanted and replayed:
            mine.replay(publisher, replayed)
        if mine.order.next == publisher.count and not mine.lost:
            assert index.find(keys_of(PROMPTS[0])) == model.find(contents(PROMPTS[0]))
    if replays:
        mine.order.wanted = True  # as a feed does now and then
        for _ in range(len(steps) + 2):
            if mine.order.wanted:
                mine.replay(publisher, 7)
        assert mine.order.next == publisher.count
        assert not mine.order.wanted
    assert len(mine.applied) + mine.lost == mine.order.next
    if mine.order.next == publisher.count:
        for tokens in PROMPTS:
            found, there = index.find(keys_of(tokens)), model.find(contents(tokens))
            assert found.get(WORKER, 0) <= there.get(WORKER, 0)
            assert mine.lost or found == there


def test_a_first_replay_that_begins_late_says_how_much_is_missing() -> None:
    order = EventOrder()
    assert order.replay_began() == 0
    assert order.replayed(40, b"a") == [Lost(40), b"a"]
    assert order.replay_ended() == []
    assert order.live(41, b"b") == [b"b"]


def test_a_gap_that_no_replay_fills_is_lost_after_it_was_asked_for() -> None:
    order = EventOrder()
    order.replay_began()
    order.replay_ended()
    assert order.live(0, b"a") == [b"a"]
    assert order.live(3, b"d") == []
    assert order.wanted
    assert order.replay_began() == 1
    assert order.replay_ended() == [Lost(2), b"d"]
    assert not order.wanted


def test_a_publisher_that_begins_anew_is_heard_again() -> None:
    order = EventOrder()
    order.replay_began()
    assert [order.replayed(number, b"old") for number in range(5)] == [[b"old"]] * 5
    assert order.replay_ended() == []
    assert order.live(3, b"queued before the replay") == []
    assert order.live(4, b"the same") == []
    assert order.live(5, b"old") == [b"old"]
    assert order.live(1, b"b") == [Lost(0)]
    assert order.wanted
    assert order.replay_began() == 0
    assert [*order.replayed(0, b"a"), *order.replayed(1, b"b"), *order.replay_ended()] == [b"a", b"b"]
    assert order.live(2, b"c") == [b"c"]


def test_a_publisher_that_begins_anew_and_repeats_nothing_is_heard_again() -> None:
    order = EventOrder(replays=False)
    assert [order.live(number, b"old") for number in range(3)] == [[b"old"]] * 3
    assert order.live(1, b"b") == [Lost(0), Lost(1), b"b"]
    assert order.live(2, b"c") == [b"c"]


def test_a_replay_that_was_cut_off_is_asked_for_again() -> None:
    order = EventOrder()
    order.replay_began()
    assert order.replayed(0, b"a") == [b"a"]
    assert order.replayed(2, b"c") == []
    assert order.live(3, b"d") == []
    assert order.replay_ended() == []
    assert order.wanted
    assert order.replay_began() == 1
    assert [step for number, data in ((1, b"b"), (2, b"c")) for step in order.replayed(number, data)] == [
        *(b"b", b"c", b"d")
    ]
    assert order.replay_ended() == []
    assert not order.wanted
