from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hpcserve.measure import rounds_of

TASKS = st.lists(st.frozensets(st.integers(0, 12), max_size=5), max_size=40)


@given(TASKS)
def test_every_task_is_in_one_round_and_no_two_of_a_round_share_anything(tasks: list[frozenset[int]]) -> None:
    numbered = list(enumerate(tasks))
    rounds = rounds_of(numbered, holds=lambda task: task[1])
    assert sorted(task for each in rounds for task in each) == numbered
    for each in rounds:
        assert each
        held = [thing for _, things in each for thing in things]
        assert len(held) == len(set(held))


@given(TASKS)
def test_no_task_is_later_than_the_number_of_those_it_clashes_with(tasks: list[frozenset[int]]) -> None:
    rounds = rounds_of(list(enumerate(tasks)), holds=lambda task: task[1])
    for number, each in enumerate(rounds):
        for place, things in each:
            clashes = sum(1 for other, held in enumerate(tasks) if other != place and held & things)
            assert number <= clashes


@given(st.integers(2, 14))
def test_pairs_in_round_robin_order_come_close_to_the_fewest_rounds(count: int) -> None:
    pairs = [(one, (one + step) % count) for step in range(1, count) for one in range(count)]
    rounds = rounds_of(pairs, holds=lambda pair: pair)
    busiest = max(Counter(end for pair in pairs for end in pair).values())
    assert len(rounds) <= 1.5 * busiest + 2


def test_what_holds_nothing_waits_for_nobody() -> None:
    assert rounds_of(["a", "b"], holds=lambda _: ()) == (("a", "b"),)
