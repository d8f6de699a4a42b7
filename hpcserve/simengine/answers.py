"""The JSON of answers, key by key as vLLM 0.32 writes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcserve.simengine.tokens import text_of

__all__ = ["INTERNAL_ERROR", "Shape", "chat_logprobs", "chat_message", "completion_logprobs", "engine_dead", "usage"]

INTERNAL_ERROR: dict[str, Any] = {
    "error": {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
}
"""What a failed KV load is answered with (kv_load_failure_policy: fail)."""


def engine_dead() -> dict[str, Any]:
    """The answer to everybody whose engine died."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What all parts of one answer have in common."""

    id: str
    created: int
    model: str
    fingerprint: str
    chat: bool

    def whole(
        self, choices: list[dict[str, Any]], counts: dict[str, Any], transfer: dict[str, object] | None
    ) -> dict[str, Any]:
        """A complete answer."""
        answer: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": {**counts, "prompt_tokens_details": None, "completion_tokens_details": None},
        }
        if self.chat:
            answer |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return answer | {"kv_transfer_params": transfer, "ec_transfer_params": None, "metrics": None}

    def choice(
        self,
        *,
        index: int,
        text: str,
        logprobs: dict[str, Any] | None,
        finish: str,
        token_ids: list[int] | None,
        prompt_ids: list[int] | None,
    ) -> dict[str, Any]:
        """One choice of a complete answer."""
        if self.chat:
            return {
                "index": index,
                "message": chat_message(text),
                "logprobs": logprobs,
                "finish_reason": finish,
                "stop_reason": None,
                "token_ids": token_ids,
                "routed_experts": None,
            }
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish,
            "stop_reason": None,
            "token_ids": token_ids,
            "prompt_logprobs": None,
            "prompt_token_ids": prompt_ids,
            "routed_experts": None,
        }

    def role_chunk(self, index: int) -> dict[str, Any]:
        """The first event of a chat stream."""
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._chunk([choice]) | {"prompt_token_ids": None, "prompt_text": None}

    def token_chunk(
        self,
        *,
        index: int,
        text: str,
        logprobs: dict[str, Any] | None,
        finish: str | None,
        token_ids: list[int] | None,
        prompt_ids: list[int] | None,
    ) -> dict[str, Any]:
        """One event of a stream."""
        choice: dict[str, Any] = {"index": index}
        if self.chat:
            choice |= {"delta": {"content": text}, "logprobs": logprobs, "finish_reason": finish}
            if finish is not None:
                choice["stop_reason"] = None
            choice["token_ids"] = token_ids
        else:
            choice |= {"text": text, "logprobs": logprobs, "finish_reason": finish, "stop_reason": None}
            choice |= {"prompt_token_ids": prompt_ids, "token_ids": token_ids}
        return self._chunk([choice])

    def usage_chunk(self, counts: dict[str, Any]) -> dict[str, Any]:
        """The last event of a stream with include_usage."""
        return self._chunk([]) | {"usage": counts, "system_fingerprint": self.fingerprint}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def chat_message(text: str) -> dict[str, Any]:
    """An assistant's message."""
    return {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Token counts of an answer."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def completion_logprobs(tokens: Sequence[int], alternatives: int, offset: int) -> dict[str, Any]:
    """Log probabilities of a completion's tokens: the simulated model is sure of each."""
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(text_of(token))
    return {
        "text_offset": offsets,
        "token_logprobs": [_OWN_LOGPROB] * len(tokens),
        "tokens": [text_of(token) for token in tokens],
        "top_logprobs": [
            {text_of(other): logprob for other, logprob in _ranked(token, alternatives)} for token in tokens
        ],
    }


def chat_logprobs(tokens: Sequence[int], alternatives: int) -> dict[str, Any]:
    """Log probabilities of a chat answer's tokens."""
    return {
        "content": [
            _chat_token(token, _OWN_LOGPROB)
            | {"top_logprobs": [_chat_token(other, logprob) for other, logprob in _ranked(token, alternatives)]}
            for token in tokens
        ]
    }


_OWN_LOGPROB = -0.125


def _ranked(token: int, alternatives: int) -> list[tuple[int, float]]:
    """The chosen token and made-up runners-up, each less likely than the one before."""
    return [(token + rank, _OWN_LOGPROB - 4.0 * rank) for rank in range(alternatives)]


def _chat_token(token: int, logprob: float) -> dict[str, Any]:
    return {"token": text_of(token), "logprob": logprob, "bytes": list(text_of(token).encode())}
