"""Templates get what vLLM gives them, and run on what clients send without harm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.routing.chat_messages import UnlikeEngineError
from hpcserve.routing.chat_template import ChatTemplate

BY_TEXT = (
    "{%- for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
BY_PARTS = (
    "{% for message in messages %}[{{ message['role'] }}]{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}<{{ part['text'] }}>{% endfor %}{% endif %}{% endfor %}"
)
BY_MACRO = (
    "{% macro show(content) %}{% for part in content %}<{{ part.text }}>{% endfor %}{% endmacro %}"
    "{% for message in messages %}{{ show(message.content) }}{% endfor %}"
)
WITH_TOOLS = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}{% for call in message.tool_calls or [] %}"
    "{{ call.function.name }}={{ call.function.arguments | tojson }};{% endfor %}{{ message.content }}{% endfor %}"
)


def made(text: str, **special: str) -> ChatTemplate:
    return ChatTemplate(text, special_tokens=special, strftime_now=lambda form: f"<{form}>")


def said(text: str, *messages: dict[str, Any], special: dict[str, str] | None = None, **fields: Any) -> str:
    return made(text, **(special or {})).render({"messages": list(messages), **fields})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


TWO_PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("template", "wanted"), [(BY_TEXT, "[user]a\nb[assistant]"), (BY_PARTS, "[user]<a><><b>"), (BY_MACRO, "<a><><b>")]
)
def test_parts_are_joined_unless_the_template_goes_through_them(template: str, wanted: str) -> None:
    assert said(template, user(TWO_PARTS)) == wanted


def test_text_becomes_a_part_for_a_template_of_parts() -> None:
    assert said(BY_PARTS, user("a")) == "[user]<a>"


def test_content_of_none_is_empty() -> None:
    assert said(BY_TEXT, {"role": "assistant", "content": None}, add_generation_prompt=False) == "[assistant]"


def test_a_tools_answer_is_one_text_always() -> None:
    tool = {"role": "tool", "tool_call_id": "t1", "content": TWO_PARTS}
    assert said(BY_PARTS, tool) == "[tool]a\nb"


def test_arguments_of_calls_are_objects_and_tools_have_vllms_keys() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at": "é"}'}}
    broken = {"id": "t2", "type": "function", "function": {"name": "shut", "arguments": "{"}}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}, "unheard_of": 1}}
    text = said(WITH_TOOLS, {"role": "assistant", "content": None, "tool_calls": [call, broken]}, tools=[tool])
    assert text == (
        '{"type": "function", "function": {"name": "look", "description": null, "parameters": {"type": "object"}}}'
        'look={"at": "é"};shut={};'
    )


def test_variables_reach_the_template_only_where_it_reads_them() -> None:
    text = "{{ enable_thinking }} {{ reasoning_effort }} {{ bos_token }} {{ strftime_now('%Y') }}"
    fields = {"chat_template_kwargs": {"enable_thinking": False, "other": 1}, "reasoning_effort": "low"}
    assert said(text, user("a"), special={"bos_token": "<s>"}, **fields) == "False low <s> <%Y>"
    assert said("{{ enable_thinking }}", user("a"), reasoning_effort="none") == "False"
    assert said("{{ enable_thinking }}", user("a")) == ""


def test_a_generation_block_is_its_body() -> None:
    assert said("{% generation %}{{ messages[0].content }}{% endgeneration %}", user("a")) == "a"


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('no system') }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{% set _ = messages.append(1) %}",
        "{{ 1 / 0 }}",
        "{% for a in range(10 ** 9) %}{% endfor %}",
        "{% include 'x' %}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_an_error_of_its_own(text: str) -> None:
    with pytest.raises(UnlikeEngineError):
        said(text, user("a"))


def test_a_text_that_is_no_template_is_refused() -> None:
    with pytest.raises(UnlikeEngineError):
        made("{% for %}")


def test_a_line_that_the_engine_drops_is_not_guessed_at() -> None:
    with pytest.raises(UnlikeEngineError):
        said(BY_TEXT, {"role": "system", "content": "x-anthropic-billing-header: cch=1\nBe brief."})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["user", "tool", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "function", "name", "arguments"]), inner
        )
    ),
    max_leaves=15,
)


COMPILED = [made(text) for text in (BY_TEXT, BY_PARTS, BY_MACRO, WITH_TOOLS)]


@given(st.sampled_from(COMPILED), VALUES, VALUES, VALUES)
def test_nothing_that_a_client_sends_raises_anything_else(
    template: ChatTemplate, messages: Any, tools: Any, own: Any
) -> None:
    try:
        text = template.render({"messages": messages, "tools": tools, "chat_template_kwargs": own})
    except UnlikeEngineError:
        return
    assert isinstance(text, str)
