"""What the metrics show of the workers and what is known of them, beside the counts of requests."""

from collections.abc import Iterator

from hpcserve.router.desk import Desk
from hpcserve.router.exposition import Series, series_of, text_of

__all__ = ["metrics_text"]

_STATES = {"closed": 0.0, "half-open": 1.0, "open": 2.0}


def metrics_text(desk: Desk) -> bytes:
    """Everything, in Prometheus' text format."""
    return text_of(_all(desk))


def _all(desk: Desk) -> Iterator[Series]:
    yield from desk.metrics.series()
    yield from _of_workers(desk)
    for more in desk.further_series:
        yield from more()


def _of_workers(desk: Desk) -> Iterator[Series]:
    roster, now_s, by_worker = desk.roster, desk.now_s(), ("worker",)
    loads = roster.loads
    yield series_of("gauge", "worker_in_flight", "Legs under way.", by_worker, {
        (name,): load.in_flight for name, load in loads.items()
    })  # fmt: skip
    yield series_of("gauge", "worker_transfers", "Legs without KV yet.", by_worker, {
        (name,): load.transfers for name, load in loads.items()
    })  # fmt: skip
    yield series_of("gauge", "worker_prefill_tokens", "Prompt tokens that wait to be computed, about.", by_worker, {
        (name,): load.prefill_tokens or 0.0 for name, load in loads.items()
    })  # fmt: skip
    yield series_of("gauge", "worker_kv_tokens", "Tokens whose KV its requests hold or will hold, about.", by_worker, {
        (name,): load.kv_tokens for name, load in loads.items()
    })  # fmt: skip
    yield series_of("gauge", "worker_kv_room_tokens", "Tokens of KV that it has room for.", by_worker, {
        (name,): load.kv_room_tokens for name, load in loads.items() if load.kv_room_tokens is not None
    })  # fmt: skip
    ready = roster.ready and not desk.draining
    yield series_of(
        "gauge", "ready", "1 when every planned worker was proved and a route is alive.", (), {(): float(ready)}
    )
    yield series_of("gauge", "simulated", "1: a worker is a simulated engine.", (), {(): float(roster.simulated)})
    yield series_of("gauge", "proved", "1: the route was proved, 0: it failed.", ("route",), {
        (proof.decode if proof.prefill is None else f"{proof.prefill}>{proof.decode}",): float(proof.proved)
        for proof in roster.proofs()
    })  # fmt: skip
    states = [("worker", name, state) for name, state in roster.breakers(now_s)]
    states += [("path", name, state) for name, state in roster.path_breakers(now_s)]
    yield series_of("gauge", "breaker_state", "0: closed, 1: half-open, 2: open.", ("of", "name"), {
        (kind, name): _STATES[state] for kind, name, state in states
    })  # fmt: skip
    yield series_of("gauge", "path_correction", "Reported time of transfers / predicted.", ("prefill", "decode"),
        roster.paths.corrections()
    )  # fmt: skip
    slots = desk.slots
    yield series_of("gauge", "link_waiting", "Prompts that wait for their place on the link.", by_worker, {
        (endpoint.id,): slots.waiting(endpoint.id) for endpoint in roster.endpoints if slots is not None
    })  # fmt: skip
