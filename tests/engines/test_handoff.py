import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcserve.engines.handoff import (
    BodyError,
    decode_body,
    prefill_body,
    read_answer,
    read_body,
    read_facts,
    whole_body,
)

DROPPED = {"max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options", "kv_transfer_params"}
NULL_IS_ABSENT = {"min_tokens", "n", "ignore_eos"}
"""Of the keys that are drawn those that vLLM refuses as null."""
KEYS = [
    *sorted(DROPPED | NULL_IS_ABSENT),
    "model",
    "prompt",
    "stop",
    "max_tokens_",
    "é",
    "\\",
    '"',
    "\u2028",
    "",
    "a b",
]
text = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | text, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(KEYS) | text, values, max_size=6)


@st.composite
def texts(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """An object and one way of writing it."""
    content = draw(objects)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]))
    written = json.dumps(
        content,
        ensure_ascii=draw(st.booleans()),
        separators=separators,
        indent=draw(st.sampled_from([None, 0, 2])),
    )
    return draw(st.sampled_from(["", " \n"])).encode() + written.encode() + draw(
        st.sampled_from([b"", b"\r\n "])
    ), content


@given(texts())
@example((b'{"n":null,"stop":null,"a":{"n":null}}', {"n": None, "stop": None, "a": {"n": None}}))
@example((b' {"min_tokens" : null }', {"min_tokens": None}))
def test_splices_are_what_an_edit_of_the_object_gives(case: tuple[bytes, dict[str, Any]]) -> None:
    raw, written = case
    body = read_body(raw)
    content = {key: value for key, value in written.items() if value is not None or key not in NULL_IS_ABSENT}
    kept = {key: value for key, value in content.items() if key not in DROPPED}
    prefill = json.loads(prefill_body(body))
    asked = prefill.pop("kv_transfer_params")
    assert prefill == kept | {"max_tokens": 1, "stream": False}
    assert (asked["do_remote_decode"], asked["do_remote_prefill"]) == (True, False)
    own = {key: value for key, value in content.items() if key != "kv_transfer_params"}
    assert json.loads(whole_body(body)) == own
    params = b'{"remote_block_ids": [[1, 2]], "x":"\\u00e9}"}'
    assert json.loads(decode_body(body, params)) == own | {"kv_transfer_params": json.loads(params)}
    assert params in decode_body(body, params)
    for made in (prefill_body(body), decode_body(body, params), whole_body(body)):
        seen: list[Any] = json.loads(made, object_pairs_hook=lambda pairs: pairs)
        assert len({key for key, _ in seen}) == len(seen)


@given(texts(), st.data())
def test_a_key_that_stands_twice_is_refused(case: tuple[bytes, dict[str, Any]], data: st.DataObject) -> None:
    raw, content = case
    if not content:
        return
    key = data.draw(st.sampled_from(sorted(content)))
    written = json.dumps(key, ensure_ascii=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        written = '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in key) + '"'
    value = json.dumps(data.draw(values))
    at = raw.index(b"{") + 1
    twice = raw[:at] + f"{written}:{value},".encode() + raw[at:]
    assert json.loads(twice).keys() == content.keys()
    with pytest.raises(BodyError, match="twice") as caught:
        read_body(twice)
    assert caught.value.param == key[:60]


@pytest.mark.parametrize(
    "xargs",
    [
        '{"kv_transfer_params":""}',
        '{"a":1, "kv_transfer_params" :"x"}',
        '{"kv_transfer_params":"x","a":1,"a":2}',
        '{"\\u006bv_transfer_params":[]}',
        '{"ec_transfer_params":1}',
        '{"kv_cache_report_mode":"full"}',
    ],
)
@pytest.mark.parametrize("name", ["vllm_xargs", "vllm\\u005fxargs"])
def test_nothing_of_a_transfer_gets_to_an_engine_by_way_of_its_extra_arguments(name: str, xargs: str) -> None:
    (said,) = {"kv_transfer_params", "ec_transfer_params", "kv_cache_report_mode"} & json.loads(xargs).keys()
    with pytest.raises(BodyError, match=said) as caught:
        read_body(f'{{"prompt":"x","n":2,"{name}":{xargs}}}'.encode())
    assert caught.value.param == "vllm_xargs"


@pytest.mark.parametrize("xargs", ["null", "{}", '{"session_id":"kv_transfer_params"}', '["kv_transfer_params"]', "1"])
def test_other_extra_arguments_pass(xargs: str) -> None:
    raw = f'{{"prompt":"x","vllm_xargs":{xargs}}}'.encode()
    assert whole_body(read_body(raw)) == raw


@pytest.mark.timeout(30)
def test_a_key_that_stands_twice_among_very_many_is_found_in_one_pass() -> None:
    """Ends in a tenth of a second, or, where each key is counted among all, in minutes."""
    keys = b",".join(b'"k%d":1' % number for number in range(150_000))
    with pytest.raises(BodyError) as caught:
        read_body(b"{" + keys + b',"z":1,"z":1}')
    assert caught.value.param == "z"


def test_a_nested_key_may_stand_twice_at_the_engines_peril() -> None:
    raw = b'{"metadata":{"a":1,"a":2},"prompt":"x"}'
    assert whole_body(read_body(raw)) == raw


@pytest.mark.parametrize(
    ("body", "kind", "whole"),
    [
        ({"prompt": "x"}, "completions", ""),
        ({"prompt": [1, 2, 3]}, "completions", ""),
        ({"prompt": [5, -1]}, "completions", ""),
        ({"prompt": ["x"]}, "completions", "prompt"),
        ({"prompt": []}, "completions", "prompt"),
        ({"prompt": [[1]]}, "completions", "prompt"),
        ({"prompt": None}, "completions", "prompt"),
        ({}, "completions", "prompt"),
        ({"prompt": "x", "n": 1, "best_of": 1, "echo": False}, "completions", ""),
        ({"prompt": "x", "n": None, "best_of": None, "echo": None}, "completions", ""),
        ({"prompt": "x", "n": 3}, "completions", "n"),
        ({"messages": []}, "chat", ""),
        ({"messages": [], "tool_choice": "auto", "tools": [{}]}, "chat", ""),
        ({"messages": [], "tool_choice": "required"}, "chat", "tool_choice"),
        ({"messages": [], "tool_choice": {"type": "function"}}, "chat", "tool_choice"),
        ({"messages": [], "prompt_logprobs": 0}, "chat", "prompt_logprobs"),
    ],
)
def test_what_must_be_served_whole(body: dict[str, Any], kind: Any, whole: str) -> None:
    assert read_facts(read_body(json.dumps(body).encode()), kind=kind).whole == whole


def test_facts() -> None:
    facts = read_facts(read_body(b'{"model":"\\u0061b","stream": true ,"prompt":"x"}'), kind="completions")
    assert (facts.model, facts.stream) == ("ab", True)
    facts = read_facts(read_body(b'{"stream":null,"prompt":"x"}'), kind="completions")
    assert (facts.model, facts.stream) == (None, False)
    for wrong, param in ((b'{"stream":"true"}', "stream"), (b'{"stream":1}', "stream"), (b'{"model":[]}', "model")):
        with pytest.raises(BodyError) as caught:
            read_facts(read_body(wrong), kind="chat")
        assert caught.value.param == param


GOOD = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[4, 5]],
    "remote_engine_id": "e",
    "remote_host": "h",
    "remote_port": 5601,
    "tp_size": 1,
}


def test_the_span_of_an_answer_is_kept() -> None:
    span = json.dumps(GOOD, indent=3).encode()
    assert read_answer(b'{"id":"x", "kv_transfer_params" : ' + span + b', "choices":[]}').transfer == span


@pytest.mark.parametrize(
    "change",
    [
        {"remote_block_ids": None},
        {"remote_block_ids": [4, 5]},
        {"remote_block_ids": []},
        {"remote_block_ids": [[]]},
        {"remote_block_ids": [[4], []]},
        {"remote_host": None},
        {"remote_port": "5601"},
        {"do_remote_prefill": False},
    ],
)
def test_params_that_would_end_a_decode_engine_are_not_handed_on(change: dict[str, Any]) -> None:
    answer = read_answer(json.dumps({"kv_transfer_params": GOOD | change}).encode())
    assert answer.transfer is None
    assert answer.reason in {"no_handoff", "bad_handoff"}
    for key in ("remote_host", "remote_block_ids", "remote_engine_id"):
        missing = {name: value for name, value in GOOD.items() if name != key}
        assert read_answer(json.dumps({"kv_transfer_params": missing}).encode()).reason == "bad_handoff"
