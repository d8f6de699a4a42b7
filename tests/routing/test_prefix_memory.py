"""The memory of routed prefixes keeps what is younger than the TTL, and forgets what is older than 1.5 of it."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.routing.prefix_memory import PrefixMemory

TTL_S = 100.0
WORKERS = ("prefill-0", "prefill-1", "decode-0")
SYSTEM = b"s" * 1024
TEXTS = (
    SYSTEM + b"a" * 6000,
    SYSTEM + b"b" * 500 + b"c" * 700,
    SYSTEM,
    b"x" * 511,
    b"y" * 100_000,
)
EDGES = (*range(512, 4097, 512), *range(4096 + 2048, 256 * 1024 + 1, 2048))


def common_bytes(here: bytes, there: bytes) -> int:
    """Length of the common beginning, cut to whole blocks."""
    same = next((place for place, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
    length = min(len(here), len(there)) if same is None else same
    return max((edge for edge in EDGES if edge <= length), default=0)


def longest(routed: list[tuple[str, bytes, float]], asked: bytes, now_s: float, age_s: float) -> dict[str, int]:
    found: dict[str, int] = {}
    for worker, text, then_s in routed:
        if now_s - then_s < age_s and (size := common_bytes(asked, text)):
            found[worker] = max(found.get(worker, 0), size)
    return found


STEP = st.tuples(
    st.sampled_from(["route", "route", "route", "wait", "forget"]),
    st.sampled_from(WORKERS),
    st.sampled_from(TEXTS),
    st.floats(0, 1.2 * TTL_S),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEP, max_size=25))
def test_it_lies_between_the_two_ages(steps: list[tuple[Any, ...]]) -> None:
    memory = PrefixMemory(ttl_s=TTL_S)
    routed: list[tuple[str, bytes, float]] = []
    now_s = 0.0
    for kind, worker, text, wait_s in steps:
        if kind == "route":
            memory.remember(memory.names(text), worker, now_s=now_s)
            routed.append((worker, text, now_s))
        elif kind == "wait":
            now_s += wait_s
        else:
            memory.forget(worker)
            routed = [each for each in routed if each[0] != worker]
        for asked in TEXTS:
            found = memory.find(memory.names(asked), now_s=now_s)
            least = longest(routed, asked, now_s, TTL_S)
            most = longest(routed, asked, now_s, 1.5 * TTL_S + 1e-6)
            assert found.keys() <= most.keys()
            assert all(found.get(one, 0) >= size for one, size in least.items())
            assert all(size <= most[one] for one, size in found.items())


def test_another_tenant_or_model_has_names_of_its_own() -> None:
    memory = PrefixMemory()
    names = [memory.names(SYSTEM, root) for root in (None, "tenant-a", ("model", None))]
    assert len({one[0] for one in names}) == len(names)


def test_memory_is_bounded() -> None:
    memory = PrefixMemory(most_entries=100)
    for number in range(300):
        memory.remember(memory.names(b"%08d" % number + b"z" * 5000), "prefill-0", now_s=0.0)
    assert len(memory) <= 300
    last = memory.names(b"%08d" % 299 + b"z" * 5000)
    assert memory.find(last, now_s=0.0) == {"prefill-0": 4096}


def test_a_worker_that_starts_again_and_again_takes_no_more_room() -> None:
    memory = PrefixMemory(ttl_s=TTL_S)
    names = memory.names(SYSTEM)
    for number in range(200):
        memory.remember(names, "prefill-0", now_s=number * TTL_S / 2)
        memory.forget("prefill-0")
    assert memory.find(names, now_s=100 * TTL_S) == {}
    assert len(memory._names) < 10


class Counted(list[str]):
    """A list that counts how often one of it is looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[str]:
        self.looks += len(self)
        return super().__iter__()


def test_only_those_who_hold_a_prompt_are_looked_at() -> None:
    memory = PrefixMemory(ttl_s=TTL_S)
    for number in range(1000):
        memory.remember(memory.names(b"%08d" % number * 100), f"prefill-{number}", now_s=0.0)
    names = memory.names(SYSTEM)
    holders = {f"prefill-{number}" for number in (0, 7, 500, 999)}
    for holder in holders:
        memory.remember(names, holder, now_s=0.0)
    memory._names = counted = Counted(memory._names)
    assert memory.find(names, now_s=0.0) == dict.fromkeys(holders, 1024)
    assert counted.looks == len(holders)
    memory.forget("prefill-7")
    assert memory.find(names, now_s=0.0) == dict.fromkeys(holders - {"prefill-7"}, 1024)


def test_the_end_of_a_very_long_text_is_not_looked_at() -> None:
    memory = PrefixMemory()
    assert len(memory.names(b"x" * 10_000_000)) == 8 + (256 - 4) // 2
