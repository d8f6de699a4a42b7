import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.simulate import Lengths, azure_trace, mooncake_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.5000000,300,8
2023-11-16 18:17:03.9799600,100,10
2024-05-10 00:00:00.009930+00:00,1,1
"""


def test_azure_lines_in_any_order_from_the_first_on() -> None:
    trace = azure_trace(AZURE, source="a.csv")
    assert [one.lengths for one in trace.seen] == [Lengths(100, 10), Lengths(300, 8), Lengths(1, 1)]
    assert [one.at_ms for one in trace.seen[:2]] == pytest.approx([0.0, 520.04], abs=1e-3)
    again = azure_trace("\ufeff" + AZURE.replace("\n", "\r\n") + "\n", source="a.csv")
    assert again == trace


def test_every_mistake_in_an_azure_trace_is_told_with_its_line() -> None:
    text = AZURE + "yesterday,5,5\n2023-11-16 18:17:04,x,0\n1,2\n2023-02-30 00:00:00,1,1\n"
    with pytest.raises(InputError) as caught:
        azure_trace(text, source="a.csv")
    told = [str(mistake) for mistake in caught.value.mistakes]
    assert [line.split(";")[0] for line in told] == [
        "a.csv:5:1: the time `yesterday`",
        "a.csv:6:1: ContextTokens `x`",
        "a.csv:6:1: GeneratedTokens `0`",
        "a.csv:7:1: 2 fields",
        "a.csv:8:1: the time `2023-02-30 00:00:00`",
    ]


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "header"), ("a,b\n1,2\n", "header"), ("TIMESTAMP,ContextTokens,GeneratedTokens\n\n", "at least one")],
)
def test_what_is_no_azure_trace(text: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        azure_trace(text, source="a.csv")


MOONCAKE = """{"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 1500, "output_length": 7, "hash_ids": [0, 1, 3]}

{"timestamp": 3000, "input_length": 1024, "output_length": 2, "hash_ids": [0, 1]}
{"timestamp": 3500, "input_length": 600, "output_length": 2, "hash_ids": [9, 1]}
"""


def test_mooncake_lines_with_and_without_the_prefixes_they_share() -> None:
    plain = mooncake_trace(MOONCAKE, source="m.jsonl")
    assert [(one.at_ms, one.lengths) for one in plain.seen] == [
        (0.0, Lengths(1100, 5)),
        (2000.0, Lengths(1500, 7)),
        (2000.0, Lengths(1024, 2)),
        (2500.0, Lengths(600, 2)),
    ]
    shared = mooncake_trace(MOONCAKE, source="m.jsonl", reuse=True)
    # two blocks of 512; a prompt of nothing but known blocks still computes one token; a block within is no prefix
    assert [one.lengths.cached_tokens for one in shared.seen] == [0, 1024, 1023, 0]


def test_every_mistake_in_a_mooncake_trace_is_told_with_its_line() -> None:
    lines = [
        '{"timestamp": 0, "input_length": 1, "output_length": 1}',
        "{",
        "[1]",
        '{"timestamp": -1, "input_length": true, "output_length": 1.5, "hash_ids": [1, "2"]}',
        "{}",
    ]
    with pytest.raises(InputError) as caught:
        mooncake_trace("\n".join(lines), source="m.jsonl")
    told = [str(mistake).split(";")[0] for mistake in caught.value.mistakes]
    assert told == [
        "m.jsonl:2:1: `{`",
        "m.jsonl:3:1: `[1]`",
        "m.jsonl:4:1: hash_ids `[1, '2']`",
        "m.jsonl:4:1: input_length `True`",
        "m.jsonl:4:1: output_length `1.5`",
        "m.jsonl:4:1: timestamp `-1`",
        "m.jsonl:5:1: no input_length",
        "m.jsonl:5:1: no output_length",
        "m.jsonl:5:1: no timestamp",
    ]


@given(st.text(), st.booleans())
def test_no_text_gives_anything_but_a_trace_or_mistakes(text: str, header: bool) -> None:
    for read in (azure_trace, mooncake_trace):
        with contextlib.suppress(InputError):
            assert read(("TIMESTAMP,ContextTokens,GeneratedTokens\n" if header else "") + text, source="t").seen
