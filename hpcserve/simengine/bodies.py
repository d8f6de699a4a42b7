"""Request bodies -> what is asked for, or the refusal that vLLM 0.32 gives."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from hpcserve.simengine.settings import Settings
from hpcserve.simengine.tokens import Tokens

__all__ = ["Asked", "RefusedError", "read_body", "read_chat", "read_completion", "read_tokenize"]

_DEFAULT_COMPLETION_TOKENS = 16
_MAX_TEMPERATURE = 2
_BOOLEANS: Mapping[object, bool] = {
    **dict.fromkeys((1, "1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys((0, "0", "off", "f", "false", "n", "no"), False),
}
"""What pydantic takes for a boolean (its documentation, Conversion Table); True is 1 and False is 0 here."""

_BOOLEAN, _WHOLE = ("boolean", "bool_type"), ("integer", "int_type")
_NEVER_NULL: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("add_special_tokens", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"), _BOOLEAN
    ),
    **dict.fromkeys(("spaces_between_special_tokens", "use_beam_search"), _BOOLEAN),
    **dict.fromkeys(("min_tokens", "priority"), _WHOLE),
    "length_penalty": ("number", "float_type"),
    "bad_words": ("list", "list_type"),
    "request_id": ("string", "string_type"),
}
_NEVER_NULL_IN_CHATS = dict.fromkeys(
    ("add_generation_prompt", "continue_final_message", "echo", "include_reasoning"), _BOOLEAN
)
"""What has a default and may be left out, but not be null."""


class RefusedError(Exception):
    """A request that is answered with an error: status, vLLM's `type` and `param`."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        kind: str = "BadRequestError",
        status: int = HTTPStatus.BAD_REQUEST,
    ) -> None:
        super().__init__(message)
        self.content: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": int(status)}
        }
        self.status = int(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One valid request for text."""

    chat: bool
    prompts: tuple[tuple[int, ...], ...]
    echoes: tuple[str, ...]
    """What `echo` puts before each prompt's answer; empty texts where it is not asked for."""
    samples: int
    max_tokens: tuple[int, ...]
    """For each prompt."""
    min_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: int | None
    """How many alternatives to each token; None: no logprobs."""
    token_ids: bool
    salt: str
    transfer: dict[str, Any] | None


def read_body(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object in a body."""
    if not headers.get("content-type", "application/json").startswith("application/json"):
        raise _invalid("Unsupported Media Type: Only 'application/json' is allowed", None)
    if not body:
        raise _invalid("{'type': 'missing', 'loc': 'body', 'msg': 'Field required', 'input': 'None'}", "body")
    try:
        data = json.loads(body)
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        context = f"'ctx': {{'error': '{error.msg}'}}"
        detail = f"{{'type': 'json_invalid', 'loc': '{where}', 'msg': 'JSON decode error', {context}}}"
        raise _invalid(detail, where) from None
    except UnicodeDecodeError:
        refusal = RefusedError("There was an error parsing the body")
        refusal.content = {"detail": "There was an error parsing the body"}
        raise refusal from None
    if not isinstance(data, dict):
        raise _invalid(
            "{'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary'}", "body"
        )
    return data


def read_completion(data: Mapping[str, Any], settings: Settings, tokens: Tokens) -> Asked:
    """A body of /v1/completions."""
    _check_model(data, settings)
    prompts, texts = _prompts(data, tokens)
    wanted = _integer(data, "max_tokens")
    logprobs = _integer(data, "logprobs")
    echoes = tuple(texts) if data.get("echo") else ("",) * len(prompts)
    return _asked(
        data,
        settings,
        prompts,
        chat=False,
        echoes=echoes,
        wanted=_DEFAULT_COMPLETION_TOKENS if wanted is None else wanted,
        logprobs=logprobs,
    )


def read_chat(data: Mapping[str, Any], settings: Settings, tokens: Tokens) -> Asked:
    """A body of /v1/chat/completions."""
    _check_model(data, settings)
    prompt = tokens.of_chat(data, _messages(data), special=_special(data, unless_said=False))
    wanted = _integer(data, "max_completion_tokens")
    if wanted is None:
        wanted = _integer(data, "max_tokens")
    logprobs = (_integer(data, "top_logprobs") or 0) if data.get("logprobs") else None
    return _asked(data, settings, [prompt], chat=True, echoes=("",), wanted=wanted, logprobs=logprobs)


def read_tokenize(data: Mapping[str, Any], settings: Settings, tokens: Tokens) -> list[int]:
    """A body of /tokenize -> token ids."""
    _check_model(data, settings)
    if "messages" in data:
        return tokens.of_chat(data, _messages(data), special=_special(data, unless_said=False))
    return tokens.of_text(_text(data, "prompt"), special=_special(data, unless_said=True))


def _asked(
    data: Mapping[str, Any],
    settings: Settings,
    prompts: list[list[int]],
    *,
    chat: bool,
    echoes: tuple[str, ...],
    wanted: int | None,
    logprobs: int | None,
) -> Asked:
    _check_nulls(data, chat=chat)
    stream = bool(data.get("stream"))
    options = data.get("stream_options")
    if options is not None and not stream:
        raise _refused_value("Stream options can only be defined when `stream=True`.", "stream_options")
    options = options if isinstance(options, dict) else {}
    transfer = data.get("kv_transfer_params")
    if transfer is not None and not isinstance(transfer, dict):
        raise _not_a("dictionary", "dict_type", "kv_transfer_params", transfer)
    _check_sampling(data)
    samples = _integer(data, "n")
    if samples is None:
        samples = 1
    if samples < 1:
        raise RefusedError(f"n must be at least 1, got {samples}.")
    room = [_room(settings, len(prompt)) for prompt in prompts]
    _check_max_tokens(settings, wanted)
    max_tokens = tuple(left if wanted is None else min(wanted, left) for left in room)
    min_tokens = _integer(data, "min_tokens") or 0
    if min_tokens > min(max_tokens):
        raise RefusedError(f"min_tokens must be less than or equal to max_tokens={min(max_tokens)}, got {min_tokens}.")
    return Asked(
        chat=chat,
        prompts=tuple(tuple(prompt) for prompt in prompts),
        echoes=echoes,
        samples=samples,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(data.get("ignore_eos")),
        stream=stream,
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("include_usage")) and bool(options.get("continuous_usage_stats")),
        logprobs=logprobs,
        token_ids=bool(data.get("return_token_ids")),
        salt=data["cache_salt"] if isinstance(data.get("cache_salt"), str) else "",
        transfer=transfer,
    )


def _check_nulls(data: Mapping[str, Any], *, chat: bool) -> None:
    for name, (wanted, kind) in {**_NEVER_NULL, **(_NEVER_NULL_IN_CHATS if chat else {"n": _WHOLE})}.items():
        if name in data and data[name] is None:
            raise _not_a(wanted, kind, name, None)


def _check_model(data: Mapping[str, Any], settings: Settings) -> None:
    model = data.get("model")
    if model is None or model == settings.served_name:
        return
    if not isinstance(model, str):
        raise _not_a("string", "string_type", "model", model)
    raise RefusedError(
        f"The model `{model}` does not exist. Valid aliases: {settings.served_name}.",
        param="model",
        kind="NotFoundError",
        status=HTTPStatus.NOT_FOUND,
    )


def _prompts(data: Mapping[str, Any], tokens: Tokens) -> tuple[list[list[int]], list[str]]:
    """Token ids of each prompt, and its text where it was one."""
    prompt, special = data.get("prompt"), _special(data, unless_said=True)
    if prompt is None or prompt == "":
        raise _refused_value("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if isinstance(prompt, str):
        return [_encoded(prompt, tokens, special=special)], [prompt]
    if prompt == []:
        raise RefusedError("You must pass at least one prompt")
    if isinstance(prompt, list):
        if all(type(item) is int and item >= 0 for item in prompt):
            return [_checked_ids(prompt, tokens)], [""]
        if all(isinstance(item, str) for item in prompt):
            return [_encoded(item, tokens, special=special) for item in prompt], list(prompt)
        if all(isinstance(item, list) and item and all(type(n) is int and n >= 0 for n in item) for item in prompt):
            return [_checked_ids(item, tokens) for item in prompt], [""] * len(prompt)
    raise _invalid(
        "{'type': 'list_type', 'loc': 'body.prompt.0', 'msg': 'Input should be a valid list'}", "body.prompt.0"
    )


def _special(data: Mapping[str, Any], *, unless_said: bool) -> bool:
    """Whether a text gets special tokens at its ends."""
    return _boolean(data, "add_special_tokens", unless_said=unless_said)


def _encoded(text: str, tokens: Tokens, *, special: bool) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(
            "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
        ) from None
    return tokens.of_text(text, special=special)


def _checked_ids(ids: list[int], tokens: Tokens) -> list[int]:
    most = max(ids)
    if most >= tokens.vocabulary:
        raise RefusedError(f"Token id {most} is out of vocabulary")
    return ids


def _messages(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    messages = data.get("messages")
    if not isinstance(messages, list):
        raise _invalid("{'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required'}", "body.messages")
    if not messages:
        raise RefusedError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    found: list[tuple[str, str]] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            where = f"body.messages.{index}.role"
            raise _invalid(f"{{'type': 'missing', 'loc': '{where}', 'msg': 'Field required'}}", where)
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        found.append((message["role"], "\n".join(texts)))
    return found


def _check_sampling(data: Mapping[str, Any]) -> None:
    temperature = _number(data, "temperature")
    if temperature is not None:
        if not math.isfinite(temperature):
            raise _refused_value(f"temperature must be a finite number, got {temperature}.", "temperature", temperature)
        if temperature < 0:
            raise _refused_value(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
        if temperature > _MAX_TEMPERATURE:
            raise _refused_value(f"temperature must be in [0, 2], got {temperature}.", "temperature", temperature)
    top_p = _number(data, "top_p")
    if top_p is not None and not 0 < top_p <= 1:
        raise _refused_value(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)


def _check_max_tokens(settings: Settings, wanted: int | None) -> None:
    if wanted is None:
        return
    if wanted < 1:
        raise _refused_value(f"max_tokens must be at least 1, got {wanted}.", "max_tokens", wanted)
    limit = settings.max_model_len
    if wanted > limit:
        raise _refused_value(
            f"max_tokens={wanted} cannot be greater than max_model_len={limit}. Please request fewer output tokens.",
            "max_tokens",
            wanted,
        )


def _room(settings: Settings, tokens: int) -> int:
    """How many tokens may follow a prompt."""
    left = settings.max_model_len - tokens
    if left < 1:
        raise _refused_value(
            f"This model's maximum context length is {settings.max_model_len} tokens. However, your prompt contains "
            f"{tokens} input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt.",
            "input_tokens",
            tokens,
        )
    return left


def _boolean(data: Mapping[str, Any], name: str, *, unless_said: bool) -> bool:
    """As pydantic reads one that has a default: null is none."""
    value = data.get(name, unless_said)
    known = value.lower() if isinstance(value, str) else value
    if isinstance(known, str | int | float) and known in _BOOLEANS:
        return _BOOLEANS[known]
    raise _not_a("boolean", "bool_parsing" if isinstance(value, str | int) else "bool_type", name, value)


def _integer(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not int:
        kind = "int_parsing" if isinstance(value, str) else "int_type"
        raise _not_a("integer", kind, name, value)
    return value


def _number(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _not_a("number", "float_type", name, value)
    return float(value)


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise _not_a("string", "string_type", name, value)
    return value


def _not_a(wanted: str, kind: str, name: str, value: Any) -> RefusedError:
    where = f"body.{name}"
    detail = f"{{'type': '{kind}', 'loc': '{where}', 'msg': 'Input should be a valid {wanted}', 'input': '{value}'}}"
    return _invalid(detail, where)


def _invalid(detail: str, where: str | None) -> RefusedError:
    """The form in which vLLM shows a validation error."""
    return RefusedError(f"1 validation error:\n  {detail}", param=where, kind="Bad Request")


def _refused_value(message: str, name: str, value: object = None) -> RefusedError:
    shown = f"parameter={name}" if value is None else f"parameter={name}, value={value}"
    return RefusedError(f"{message} ({shown})", param=name)
