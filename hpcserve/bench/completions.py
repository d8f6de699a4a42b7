"""One streamed completion, timed as a client sees it."""

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import httpx

from hpcserve.nouns import Sample

__all__ = ["client_for", "random_prompt", "stream_completion"]

_TOKEN_IDS = range(1000, 10_000)
"""Vocabularies in use are larger than this, and keep their special tokens below or above."""

_CONNECT_S = 10.0
_READ_S = 300.0
"""The longest pause between two events of a stream."""

_MS_PER_S = 1e3


def client_for(*, url: str, api_key: str) -> httpx.AsyncClient:
    """A client of the router; proxies of the environment are not for addresses inside the cluster."""
    return httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {api_key}"},
        timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=False,
    )


def random_prompt(source: random.Random, tokens: int) -> list[int]:
    """That many token ids; two draws are different prompts, and share no first block."""
    return source.choices(_TOKEN_IDS, k=tokens)


async def stream_completion(
    client: httpx.AsyncClient, *, model: str, prompt: Sequence[int], output_tokens: int, origin_s: float
) -> Sample:
    """The request as a sample; start times count from `origin_s` of `time.perf_counter`.

    The first token is the first event with text that is not empty. Whatever goes wrong stands in `error`.
    """
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start_s = time.perf_counter()
    seen = _Seen()
    try:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                text = (await answer.aread()).decode(errors="replace")
                seen.error = f"HTTP {answer.status_code}: {text[:200]}"
            else:
                async for line in answer.aiter_lines():
                    seen.take(line)
    except httpx.HTTPError as error:
        seen.error = f"{type(error).__name__}: {error}"
    return seen.sample(start_s=start_s, origin_s=origin_s, asked_tokens=len(prompt))


class _Seen:
    """What came so far of one stream."""

    def __init__(self) -> None:
        self.error = ""
        self._first_s: float | None = None
        self._last_s = 0.0
        self._usage: dict[str, Any] = {}

    def take(self, line: str) -> None:
        """One line of the event stream; comments and blank lines say nothing."""
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            self.error = f"error event: {json.dumps(event['error'])[:200]}"
        self._usage = event.get("usage") or self._usage
        if any(choice.get("text") for choice in event.get("choices", ())):
            self._last_s = time.perf_counter()
            self._first_s = self._first_s or self._last_s

    def sample(self, *, start_s: float, origin_s: float, asked_tokens: int) -> Sample:
        """The sample; a stream that ended well and brought no text or no usage is an error too."""
        output_tokens = int(self._usage.get("completion_tokens", 0))
        if not self.error and (self._first_s is None or not output_tokens):
            self.error = "the stream ended without a token"
        spread_s = self._last_s - (self._first_s or self._last_s)
        return Sample(
            start_s=start_s - origin_s,
            input_tokens=int(self._usage.get("prompt_tokens", asked_tokens)),
            output_tokens=output_tokens,
            ttft_ms=None if self._first_s is None else (self._first_s - start_s) * _MS_PER_S,
            tpot_ms=spread_s * _MS_PER_S / (output_tokens - 1) if output_tokens > 1 else None,
            error=self.error,
        )
