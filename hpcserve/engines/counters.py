"""What an engine counted, read from its Prometheus text; names as vLLM 0.32 prints them (v1/metrics, nixl/stats.py)."""

import math
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hpcserve.errors import ServiceError
from hpcserve.nouns import Noun

__all__ = ["EngineCounters", "read_counters"]


class EngineCounters(Noun):
    """Counts since the engine's start, summed over its ranks; KV transfers are counted by the side that pulls."""

    xfer_count: int
    xfer_bytes: int
    xfer_seconds: float
    """Sum of the transfers' own times."""
    xfer_failed: int
    kv_expired: int
    """Requests whose KV was released at the end of its lease without a pull; counted by the prefill side."""
    late_notices: int
    """Pulls that ended after their lease, and may have read other requests' KV; counted by the prefill side."""
    external_hit_tokens: int
    """Prompt tokens whose KV came from another engine."""
    local_hit_tokens: int
    """Prompt tokens whose KV was in the engine's own prefix cache."""
    prompt_tokens: int
    generation_tokens: int
    running: int
    waiting: int
    block_size: int | None
    """Tokens of one KV block as the engine settled it; None where it does not say."""
    kv_room_tokens: int | None = None
    """Tokens whose KV the engine has room for; None where it does not say."""
    prefix_query_tokens: int = 0
    """Prompt tokens that were looked for in the engine's own prefix cache."""


_SAMPLES: Mapping[str, str] = {
    "vllm:nixl_xfer_time_seconds_count": "xfer_count",
    "vllm:nixl_xfer_time_seconds_sum": "xfer_seconds",
    "vllm:nixl_bytes_transferred_sum": "xfer_bytes",
    "vllm:nixl_num_failed_transfers_total": "xfer_failed",
    "vllm:nixl_num_kv_expired_reqs_total": "kv_expired",
    "vllm:nixl_num_notifications_after_expiry_total": "late_notices",
    "vllm:external_prefix_cache_hits_total": "external_hit_tokens",
    "vllm:prefix_cache_hits_total": "local_hit_tokens",
    "vllm:prefix_cache_queries_total": "prefix_query_tokens",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}
_REQUIRED = ("prompt_tokens", "generation_tokens", "running", "waiting")
_CONFIG = "vllm:cache_config_info"


def read_counters(metrics_text: str) -> EngineCounters:
    """The counters in `/metrics` of an engine; those of KV transfer are 0 where it has no connector.

    Raises ServiceError where the text is not an engine's: nothing was served by it, or a value is no number.
    """
    sums: dict[str, float] = {}
    block_size: int | None = None
    blocks = 0
    for sample in _wanted_samples(metrics_text):
        if sample.name == _CONFIG:
            size = sample.labels.get("block_size", "")
            block_size = int(size) if size.isdigit() else None
            count = sample.labels.get("num_gpu_blocks", "")  # "None" until the engine has settled it
            blocks += int(count) if count.isdigit() else 0
            continue
        if not math.isfinite(sample.value):
            raise ServiceError(f"metric {sample.name} is {sample.value}", remedy="a number was wanted")
        field = _SAMPLES[sample.name]
        sums[field] = sums.get(field, 0.0) + sample.value
    missing = [name for name, field in _SAMPLES.items() if field in _REQUIRED and field not in sums]
    if missing:
        raise ServiceError(
            f"the metrics lack {missing[0]}",
            remedy="check that the address is an engine's and that its version is known",
        )
    seconds = sums.pop("xfer_seconds", 0.0)
    counts = {field: int(sums.get(field, 0)) for field in _SAMPLES.values() if field != "xfer_seconds"}
    room = blocks * block_size if blocks and block_size else None
    return EngineCounters(xfer_seconds=seconds, block_size=block_size, kv_room_tokens=room, **counts)


def _wanted_samples(metrics_text: str) -> list[Sample]:
    """Samples of the wanted names only: an engine prints some 700 lines and the parser is slow."""
    lines = [line for line in metrics_text.splitlines() if _name_of(line) in _SAMPLES or _name_of(line) == _CONFIG]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError as error:
        raise ServiceError(
            f"the metrics cannot be read: {error}", remedy="check that the address is an engine's"
        ) from None
    return [sample for family in families for sample in family.samples]


def _name_of(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]
