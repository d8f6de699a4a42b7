"""TTFT by queueing formulas: a quick look, no substitute for simulation.

Requests come as a Poisson process at `request_rate` (requests/s) and are served one at a time in order. Times are
milliseconds. Where work comes faster than it is done, the wait is infinite.
"""

from collections.abc import Sequence
from math import fsum, inf

from hpcserve.latency.step import Chunk, LatencyModel

__all__ = [
    "busy_share",
    "constant_service_wait_ms",
    "general_service_wait_ms",
    "quick_ttft_ms",
    "split_layers_ttft_ms",
    "split_operators_ttft_ms",
]

_MS_PER_S = 1e3


def busy_share(request_rate: float, service_ms: float) -> float:
    """Share of the time that one server is busy; 1 and above: it falls behind for ever."""
    if request_rate < 0 or service_ms < 0:
        raise ValueError(f"{request_rate} requests/s of {service_ms} ms are no load")
    return request_rate * service_ms / _MS_PER_S


def constant_service_wait_ms(request_rate: float, service_ms: float) -> float:
    """Mean wait before service where every service takes the same time (M/D/1): R D^2 / (2 (1 - R D)).

    Source: Pollaczek (1930), Khinchine (1932); as used for prefill by DistServe (Zhong et al., OSDI 2024), section 3.1.
    """
    return general_service_wait_ms(request_rate, mean_ms=service_ms, mean_square_ms2=service_ms**2)


def general_service_wait_ms(request_rate: float, *, mean_ms: float, mean_square_ms2: float) -> float:
    """Mean wait before service (M/G/1): R E[S^2] / (2 (1 - R E[S])), the Pollaczek-Khinchine formula.

    `mean_square_ms2` is the mean of the squared service times, at least the square of their mean.
    """
    if mean_square_ms2 < mean_ms**2 * (1 - 1e-12):
        raise ValueError(f"a mean square of {mean_square_ms2} is less than the square of the mean, {mean_ms}")
    busy = busy_share(request_rate, mean_ms)
    if busy >= 1:
        return inf
    return request_rate / _MS_PER_S * mean_square_ms2 / (2 * (1 - busy))


def split_layers_ttft_ms(request_rate: float, service_ms: float) -> float:
    """Mean TTFT of a prefill cut into two pipeline stages of equal length: D + R D^2 / (4 (2 - R D)).

    The pipeline takes the whole time D for a request and lets one in every D / 2. DistServe, section 3.1, equation 2.
    """
    busy = busy_share(request_rate, service_ms)
    if busy >= 2:  # noqa: PLR2004 - two stages do twice the work
        return inf
    return service_ms + busy * service_ms / (4 * (2 - busy))


def split_operators_ttft_ms(request_rate: float, service_ms: float, speed_up: float) -> float:
    """Mean TTFT of a prefill on two GPUs that share every operator, `speed_up` times as fast as on one.

    D / K + R D^2 / (2 K (K - R D)), DistServe, section 3.1, equation 3.
    """
    if speed_up <= 0:
        raise ValueError(f"a speed-up of {speed_up} is none")
    return service_ms / speed_up + constant_service_wait_ms(request_rate, service_ms / speed_up)


def quick_ttft_ms(
    model: LatencyModel,
    *,
    input_tokens: Sequence[int],
    request_rate: float,
    prefill_workers: int = 1,
    cached_prefix_tokens: int = 0,
    transfer_ms: float = 0.0,
) -> float:
    """Mean TTFT of disaggregated serving: wait for a prefill worker, its step, the KV transfer, a first decode step.

    `input_tokens` are the lengths of typical requests, each as likely as the other; `request_rate` is of the whole
    service and is dealt out evenly. One request a step: batching, and transfers in each other's way, are left to the
    simulation. Raises ValueError for no lengths or no workers.
    """
    if not input_tokens or prefill_workers < 1:
        raise ValueError("at least one length and one prefill worker are needed")
    services, firsts = [], []
    for tokens in input_tokens:
        cached = min(cached_prefix_tokens, tokens - 1)
        services.append(model.prefill_ms((Chunk(tokens - cached, cached),)))
        firsts.append(model.decode_ms(1, tokens))
    count = len(services)
    mean_ms = fsum(services) / count
    wait_ms = general_service_wait_ms(
        request_rate / prefill_workers, mean_ms=mean_ms, mean_square_ms2=fsum(one**2 for one in services) / count
    )
    return wait_ms + mean_ms + transfer_ms + fsum(firsts) / count
