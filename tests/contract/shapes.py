"""What contract tests compare: the keys and types of JSON, and the events of a stream."""

import json
from typing import Any

import httpx

NULL = "null"
MODEL_ENTRY = {"id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"}
WHOLE = {"id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"}
WHOLE |= {"kv_transfer_params", "ec_transfer_params", "metrics"}
WHOLE_CHAT = WHOLE | {"prompt_logprobs", "prompt_token_ids", "prompt_text"}
USAGE = {"prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"}
CHOICE = {"index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs"}
CHOICE |= {"prompt_token_ids", "routed_experts"}
CHAT_CHOICE = {"index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"}
MESSAGE = {"role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"}
CHUNK = {"id", "object", "created", "model", "choices"}
CHUNK_CHOICE = {"index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"}
HANDOFF = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": list,
    "remote_engine_id": str,
    "remote_request_id": str,
    "remote_host": "127.0.0.1",
    "remote_port": int,
    "tp_size": 1,
    "dcp_size": 1,
    "pp_size": 1,
    "remote_num_tokens": int,
    "remote_blocks_expiry_time": None,
    "transfer_mode": "pull",
    "remote_prefill_cached_tokens": int,
}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream that ended properly."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    parts = response.text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""], response.text
    assert all(part.startswith("data: ") for part in parts[:-1])
    return [json.loads(part[6:]) for part in parts[:-2]]


def error(response: httpx.Response) -> tuple[int, str, str | None, int]:
    """Status, type, param and code of an error answer."""
    content = response.json()
    assert list(content) == ["error"], content
    found = content["error"]
    assert list(found) == ["message", "type", "param", "code"]
    assert isinstance(found["message"], str)
    return response.status_code, found["type"], found["param"], found["code"]
