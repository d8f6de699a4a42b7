"""Prometheus metrics under vLLM's names; `hpcserve_simulated` says that no model stands behind them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hpcserve.simengine.settings import Settings

__all__ = ["Meters"]

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BYTES = tuple(2.0 ** (10 + power) for power in range(1, 25, 2))
_DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)


class Meters:
    """All metrics of one engine."""

    def __init__(self, settings: Settings) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"engine": "0", "model_name": settings.served_name}
        self.simulated = Gauge(
            "hpcserve_simulated", "1: a simulated engine; its times come from parameters.", registry=self._registry
        )
        self.simulated.set(1)
        if settings.transfer is not None:
            self.xfer_seconds = self._histogram("nixl_xfer_time_seconds", "Duration of KV transfers.", _SECONDS)
            self.post_seconds = self._histogram("nixl_post_time_seconds", "Posting time of KV transfers.", _SECONDS)
            self.xfer_bytes = self._histogram("nixl_bytes_transferred", "Bytes of KV transfers.", _BYTES)
            self.descriptors = self._histogram("nixl_num_descriptors", "Descriptors of KV transfers.", _DESCRIPTORS)
            self.xfer_failed = self._counter("nixl_num_failed_transfers", "Failed KV transfers.")
            self.failed_notices = self._counter("nixl_num_failed_notifications", "Failed notifications.")
            self.kv_expired = self._counter(
                "nixl_num_kv_expired_reqs", "Requests whose KV expired, on the prefill side."
            )
            self.late_notices = self._counter(
                "nixl_num_notifications_after_expiry", "Pulls that ended after the lease, on the prefill side."
            )
        self.running = self._gauge("num_requests_running", "Requests in execution.")
        self.waiting = self._gauge("num_requests_waiting", "Requests waiting.")
        self.cache_usage = self._gauge("kv_cache_usage_perc", "KV cache usage, 1 is full.")
        self.prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self.prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self.external_queries = self._counter("external_prefix_cache_queries", "Prompt tokens asked of other engines.")
        self.external_hits = self._counter("external_prefix_cache_hits", "Prompt tokens got from other engines.")
        self.preemptions = self._counter("num_preemptions", "Requests put back for lack of blocks.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        self.ttft = self._histogram("time_to_first_token_seconds", "Time to first token.", _SECONDS)
        self.token_time = self._histogram("inter_token_latency_seconds", "Time between tokens.", _SECONDS)
        self.latency = self._histogram("e2e_request_latency_seconds", "Time of a request.", _SECONDS)
        sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
        self._by_source = self._labelled("prompt_tokens_by_source", "Prompt tokens by source.", "source", sources)
        reasons = ("stop", "length", "abort", "error")
        self._finished = self._labelled("request_success", "Requests by how they ended.", "finished_reason", reasons)
        self._config(settings)

    def text(self) -> bytes:
        """What `/metrics` answers."""
        return generate_latest(self._registry)

    def count_prompt(self, *, local_hit: int, external: int, computed: int) -> None:
        """Count a prompt whose KV is complete, by where each token's came from."""
        self.prompt_tokens.inc(local_hit + external + computed)
        self._by_source["local_cache_hit"].inc(local_hit)
        self._by_source["external_kv_transfer"].inc(external)
        self._by_source["local_compute"].inc(computed)

    def count_end(self, reason: str) -> None:
        """Count a request that ended."""
        self._finished[reason].inc()

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, list(self._labels), registry=self._registry)
        return counter.labels(**self._labels)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, list(self._labels), registry=self._registry).labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self._registry)
        return histogram.labels(**self._labels)

    def _labelled(self, name: str, text: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
        counter = Counter(f"vllm:{name}", text, [*self._labels, label], registry=self._registry)
        return {value: counter.labels(**self._labels, **{label: value}) for value in values}

    def _config(self, settings: Settings) -> None:
        labels = {
            "engine": "0",
            "block_size": str(settings.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(settings.prefix_caching),
            "kv_cache_memory_bytes": str(settings.kv_cache_bytes),
            "num_gpu_blocks": str(settings.blocks),
            "simulated": "True",
        }
        info = Gauge("vllm:cache_config_info", "The KV cache.", list(labels), registry=self._registry)
        info.labels(**labels).set(1)
