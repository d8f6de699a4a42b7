from hypothesis import assume, given
from hypothesis import strategies as st

from hpcserve.simengine.kv import CHUNK, extend, next_state, start_state, token_at
from hpcserve.simengine.tokens import EOS, VOCABULARY, encode, text_of

TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=100)


def answer(digests: tuple[bytes, ...], count: int = 4) -> list[int]:
    state = start_state("model", digests, 0)
    tokens = []
    for _ in range(count):
        tokens.append(token_at(state, may_end=False))
        state = next_state(state, tokens[-1])
    return tokens


@given(tokens=TOKENS, cut=st.integers(0, 6))
def test_answer_does_not_depend_on_where_blocks_end(tokens: list[int], cut: int) -> None:
    split = cut * CHUNK
    head = extend(b"", tokens[:split])
    tail = extend(head[-1] if head else b"", tokens[split:])
    assert (*head, *tail) == extend(b"", tokens)


@given(tokens=TOKENS, other=TOKENS)
def test_other_prompts_have_other_answers(tokens: list[int], other: list[int]) -> None:
    assume(tokens != other)
    assert answer(extend(b"", tokens)) != answer(extend(b"", other))


@given(tokens=st.lists(st.integers(0, 99), min_size=3 * CHUNK, max_size=3 * CHUNK), place=st.integers(0, 2))
def test_one_wrong_piece_of_kv_changes_the_answer(tokens: list[int], place: int) -> None:
    right = extend(b"", tokens)
    wrong = (*right[:place], b"\x00" * 8, *right[place + 1 :])
    assert answer(right) != answer(wrong)


def test_answers_end_only_where_they_may() -> None:
    states = [number.to_bytes(8, "big") for number in range(256)]
    assert any(token_at(state, may_end=True) == EOS for state in states)
    assert all(token_at(state, may_end=False) > EOS for state in states)


@given(tokens=st.lists(st.integers(3, VOCABULARY - 1), max_size=30))
def test_own_words_are_read_back_as_the_same_tokens(tokens: list[int]) -> None:
    assert encode("".join(text_of(token) for token in tokens)) == tokens


@given(text=st.text(max_size=200))
def test_every_text_has_tokens_in_the_vocabulary(text: str) -> None:
    ids = encode(text)
    assert bool(ids) == bool(text)
    assert all(0 <= token < VOCABULARY for token in ids)
