"""A model's chat template, rendered as transformers and vLLM render it (transformers 5, utils/chat_template_utils.py).

Templates come with the model and are run in Jinja2's immutable sandbox. A template that a client sends is never run.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from hpcserve.routing.chat_messages import UnlikeEngineError, conversation_of, tools_of

__all__ = ["ChatTemplate", "template_of"]

_UNLIKE = ("chat_template", "documents", "truncate_prompt_tokens", "continue_final_message", "mm_processor_kwargs")
"""Keys of a request by which vLLM makes another prompt in a way that is not followed here."""
_PARAMETERS = frozenset({
    *("conversation", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"),
    *("tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict", "tokenizer_kwargs"),
    *("return_assistant_tokens_mask", "messages"),
})  # fmt: skip
"""Keys that mean something else than a template's variable when a client sends them in `chat_template_kwargs`."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant said, for training; here its body is all that counts."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One template, compiled. Raises UnlikeEngineError where its text is no template."""

    def __init__(self, text: str, *, special_tokens: Mapping[str, str], strftime_now: Callable[[str], str]) -> None:
        """`special_tokens`: `bos_token` and the like; `strftime_now(format)`: today, as some templates write it."""
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = strftime_now
        try:
            tree = environment.parse(text)
            self._template = environment.from_string(text)
        except (jinja2.TemplateError, RecursionError) as error:
            raise UnlikeEngineError(f"the chat template cannot be compiled: {error}") from None
        self._variables = jinja2.meta.find_undeclared_variables(tree)
        self._special_tokens = special_tokens
        self.parts = _goes_through_content(tree)
        """Whether it goes through lists of content parts: vLLM then gives it lists only, else texts only."""

    def render(self, fields: Mapping[str, Any]) -> str:
        """The prompt of a chat request's decoded fields. Raises UnlikeEngineError."""
        for name in _UNLIKE:
            if fields.get(name):
                raise UnlikeEngineError(f"{name} is set")
        variables = self._wanted(fields)
        try:
            return self._template.render(
                messages=conversation_of(fields.get("messages"), parts=self.parts),
                tools=tools_of(fields.get("tools")),
                documents=None,
                **{**self._special_tokens, **variables},
            )
        except UnlikeEngineError:
            raise
        except Exception:  # noqa: BLE001 - a template runs on what a client sent, and may fail in any way
            raise UnlikeEngineError("the chat template fails") from None

    def _wanted(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Variables of the request that the template reads."""
        own = fields.get("chat_template_kwargs") or {}
        if not isinstance(own, dict) or not _PARAMETERS.isdisjoint(own):
            raise UnlikeEngineError("chat_template_kwargs has more than variables of the template")
        effort = fields.get("reasoning_effort")
        prompt = fields.get("add_generation_prompt")
        if not isinstance(prompt, bool | None):
            raise UnlikeEngineError("add_generation_prompt is neither true nor false")
        found = dict(own)
        if effort is not None:
            found.setdefault("enable_thinking", effort != "none")
            found["reasoning_effort"] = effort
        kept = {name: value for name, value in found.items() if name in self._variables}
        return {**kept, "add_generation_prompt": True if prompt is None else prompt}


_SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))


def template_of(settings: bytes, *, own: str | None, strftime_now: Callable[[str], str]) -> ChatTemplate | None:
    """The template of a model: `own` is the text of its `chat_template.jinja`, else its `tokenizer_config.json` has it.

    None where there is none, or several by name, of which vLLM picks one per request. Raises ValueError where
    `settings`, the text of that file, is no JSON.
    """
    found = json.loads(settings)
    found = found if isinstance(found, dict) else {}
    text = found.get("chat_template") if own is None else own
    if not isinstance(text, str):
        return None
    special = {name: _content_of(found[name]) for name in _SPECIAL_TOKENS if found.get(name) is not None}
    return ChatTemplate(text, special_tokens=special, strftime_now=strftime_now)


def _content_of(token: Any) -> str:
    """A special token's text: it stands as such, or as an object with its flags."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _goes_through_content(tree: jinja2.nodes.Template) -> bool:
    """Whether a loop goes over a message's content, whatever it is called on its way there."""
    macros = tree.find_all(jinja2.nodes.Macro)
    inside_macros = {id(loop) for macro in macros for loop in macro.find_all(jinja2.nodes.For)}
    given = _macro_names_of_content(tree)
    for loop in tree.find_all(jinja2.nodes.For):
        source = _unwrapped(loop.iter)
        if _is_content(source):
            return True
        if isinstance(source, jinja2.nodes.Name):
            outside = source.name == "content" and id(loop) not in inside_macros
            if outside or id(loop) in given.get(source.name, ()):
                return True
    return False


def _macro_names_of_content(tree: jinja2.nodes.Template) -> dict[str, set[int]]:
    """Parameters of macros that are called with a message's content, and the loops inside those macros."""
    found: dict[str, set[int]] = {}
    calls = [call for call in tree.find_all(jinja2.nodes.Call) if isinstance(call.node, jinja2.nodes.Name)]
    for macro in tree.find_all(jinja2.nodes.Macro):
        loops = {id(loop) for loop in macro.find_all(jinja2.nodes.For)}
        names = [one.name for one in macro.args]
        for call in calls:
            if not isinstance(call.node, jinja2.nodes.Name) or call.node.name != macro.name:
                continue
            placed = [name for name, one in zip(names, call.args, strict=False) if _is_content(_unwrapped(one))]
            named = [one.key for one in call.kwargs if one.key in names and _is_content(_unwrapped(one.value))]
            for name in (*placed, *named):
                found.setdefault(name, set()).update(loops)
    return found


def _is_content(node: jinja2.nodes.Node) -> bool:
    if isinstance(node, jinja2.nodes.Getattr):
        return node.attr == "content"
    return (
        isinstance(node, jinja2.nodes.Getitem)
        and isinstance(node.arg, jinja2.nodes.Const)
        and node.arg.value == "content"
    )


def _unwrapped(node: jinja2.nodes.Node) -> jinja2.nodes.Node:
    """The node without filters, tests and slices around it."""
    around = jinja2.nodes.Filter | jinja2.nodes.Test
    while isinstance(node, around) or (
        isinstance(node, jinja2.nodes.Getitem) and isinstance(node.arg, jinja2.nodes.Slice)
    ):
        if node.node is None:
            break
        node = node.node
    return node
