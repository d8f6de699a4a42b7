"""A worker is ready when it has served: it is healthy, it is the one that was started, and it completes a prompt."""

import json
from dataclasses import dataclass
from typing import Any

from hpcserve.agent.http import UnreachableError, ask
from hpcserve.errors import ServiceError

__all__ = ["Proof", "is_healthy", "prove"]

_OK = 200
_PROMPT = "The capital of France is"
_TOKENS = 4
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a worker showed by serving: the longest context that it takes (None where it does not say), its counters."""

    max_model_len: int | None
    metrics_text: str


async def is_healthy(url: str, *, timeout_s: float) -> bool:
    """Whether `/health` says 200; False where nobody answers."""
    try:
        return (await ask(f"{url}/health", timeout_s=timeout_s)).status == _OK
    except UnreachableError:
        return False


async def prove(url: str, *, model: str, key: str, timeout_s: float) -> Proof:
    """Ask for a real completion, with the engine's key; raises ServiceError with what came instead."""
    listed = _json(await _asked(f"{url}/v1/models", key=key, timeout_s=timeout_s), "/v1/models")
    served = {str(card.get("id")): card for card in listed.get("data", ()) if isinstance(card, dict)}
    if model not in served:
        raise ServiceError(f"the worker serves {', '.join(served) or 'no model'}, not {model}")
    body = {"model": model, "prompt": _PROMPT, "max_tokens": _TOKENS, "temperature": 0, "stream": False}
    answer = _json(await _asked(f"{url}/v1/completions", key=key, timeout_s=timeout_s, body=body), "/v1/completions")
    usage = answer.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if not answer.get("choices") or not isinstance(tokens, int) or tokens < 1:
        raise ServiceError(f"the worker completed a prompt with no token: {json.dumps(answer)[:_SHOWN]}")
    length = served[model].get("max_model_len")
    metrics = await _asked(f"{url}/metrics", key=key, timeout_s=timeout_s)
    return Proof(max_model_len=length if isinstance(length, int) and length > 0 else None, metrics_text=metrics)


async def _asked(url: str, *, key: str, timeout_s: float, body: dict[str, Any] | None = None) -> str:
    try:
        answer = await ask(url, key=key, timeout_s=timeout_s, body=body)
    except UnreachableError as error:
        raise ServiceError(f"the worker did not answer {url}: {error}") from None
    if answer.status != _OK:
        raise ServiceError(f"the worker answered {url} with {answer.status}: {answer.text[:_SHOWN].strip()}")
    return answer.text


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ServiceError(f"the worker answered {what} with no JSON object: {text[:_SHOWN]!r}")
    return data
