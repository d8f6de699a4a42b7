"""A client's messages and tools as a chat template gets them from vLLM (0.32, renderers/chat_utils.py and hf.py).

What vLLM treats in a way that is not followed here (images, developer messages, ...) raises `UnlikeEngineError`: such a
prompt is not tokenized here, and nothing is claimed of it.
"""

from typing import Any

import msgspec

__all__ = ["UnlikeEngineError", "conversation_of", "tools_of"]


class UnlikeEngineError(ValueError):
    """This prompt cannot be made here as the engine makes it; says why in constant words, for open metrics."""


_ROLES = frozenset({"system", "user", "assistant", "tool"})
_BILLING_HEADER = "x-anthropic-billing-header"
"""vLLM drops such a line from system messages."""


def conversation_of(messages: object, *, parts: bool) -> list[dict[str, Any]]:
    """The messages for the template. `parts`: it goes through lists of content parts; else content is one text.

    Raises UnlikeEngineError.
    """
    if not isinstance(messages, list) or not messages:
        raise UnlikeEngineError("messages are no list of messages")
    return [_message(one, parts=parts) for one in messages]


def _message(message: object, *, parts: bool) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise UnlikeEngineError("a message is no object")
    role = message.get("role")
    if role not in _ROLES:
        raise UnlikeEngineError("a message has another role than system, user, assistant and tool")
    texts = _texts(message.get("content"))
    if role == "system" and any(text.startswith(_BILLING_HEADER) for text in texts):
        raise UnlikeEngineError("a system message has a billing header")
    made: dict[str, Any] = {"role": role, "content": _content(texts, parts=parts and role != "tool")}
    if role == "assistant":
        if message.get("tool_calls"):
            made["tool_calls"] = _tool_calls(message["tool_calls"])
        if message.get("reasoning") is not None:
            made["reasoning"] = made["reasoning_content"] = message["reasoning"]
    if role == "tool" and "tool_call_id" in message:
        made["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        made["name"] = message["name"]
    return made


def _texts(content: object) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise UnlikeEngineError("content is neither text nor a list of parts")
    return [_text(part) for part in content]


def _text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text":
        text = part["text"]
        if isinstance(text, str):
            return text
    raise UnlikeEngineError("a part of a content is not plain text")


def _content(texts: list[str], *, parts: bool) -> Any:
    if parts:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(text for text in texts if text)  # vLLM leaves empty parts out before it joins


def _tool_calls(calls: object) -> list[dict[str, Any]]:
    """Calls with their arguments as objects: templates expect them so."""
    if not isinstance(calls, list):
        raise UnlikeEngineError("tool_calls are no list")
    return [_tool_call(call) for call in calls]


def _tool_call(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or call.get("type", "function") != "function":
        raise UnlikeEngineError("a tool call is not one of a function")
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments:
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            arguments = {}
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}


def tools_of(tools: object) -> list[dict[str, Any]] | None:
    """The tools for the template, with the keys that vLLM's own model of a tool writes. Raises UnlikeEngineError."""
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise UnlikeEngineError("tools are no list")
    return [_tool(tool) for tool in tools]


def _tool(tool: object) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UnlikeEngineError("a tool is no function with a name")
    if "defer_loading" in tool or "defer_loading" in function:
        raise UnlikeEngineError("a tool is loaded later")
    made = {name: function.get(name) for name in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        made["strict"] = function["strict"]
    return {"type": tool.get("type", "function"), "function": made}
