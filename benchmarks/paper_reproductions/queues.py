"""Queueing formulas: DistServe (Zhong et al., OSDI 2024), section 3.1."""

import math

from benchmarks.paper_reproductions.shared import EASY, linear, title
from hpcserve.latency import constant_service_wait_ms, split_layers_ttft_ms, split_operators_ttft_ms
from hpcserve.nouns import Role
from hpcserve.simulate import Deployment, Lengths, Offered, Outcome, Scheduling, Worker, simulate

__all__ = ["queues"]


def queues(requests: int) -> None:
    """Mean TTFT of Poisson arrivals at one prefill worker, uniform prompts; the three formulas of section 3.1."""
    title(f"M/D/1: mean TTFT in ms, {requests} requests a line")
    print(f"{'case':<34} {'R/s':>5} {'formula':>9} {'simulated':>10} {'TTFT':>8} {'wait':>8}")
    cases = [
        (
            f"one GPU, D = {service_ms:g} ms",
            rate,
            service_ms,
            1,
            service_ms + constant_service_wait_ms(rate, service_ms),
        )
        for service_ms, rates in ((250.0, (1.0, 2.0, 3.0)), (72.15, (5.6, 11.0)))
        for rate in rates
    ]
    cases += [("two stages, D = 250 ms", rate, 250.0, 2, split_layers_ttft_ms(rate, 250.0)) for rate in (1.0, 3.0, 6.0)]
    cases += [
        ("two GPUs an operator, K = 1.7", rate, 250.0 / 1.7, 1, split_operators_ttft_ms(rate, 250.0, 1.7))
        for rate in (1.0, 3.0, 5.0)
    ]
    for name, rate, service_ms, stages, formula_ms in cases:
        outcome = prefill_queue(service_ms, rate=rate, stages=stages, requests=requests)
        got = outcome.mean_ttft_ms or math.nan
        print(
            f"{name:<34} {rate:>5g} {formula_ms:>9.2f} {got:>10.2f} {got / formula_ms - 1:>+8.2%}"
            f" {(got - service_ms) / (formula_ms - service_ms) - 1:>+8.2%}",
            flush=True,
        )


def prefill_queue(service_ms: float, *, rate: float, stages: int, requests: int) -> Outcome:
    """One prefill worker that takes one prompt at a time."""
    model = linear(prefill_ms_per_token=service_ms / 100)
    worker = Worker(id="p", role=Role.PREFILL, latency=model, scheduling=Scheduling(token_budget=100), stages=stages)
    deployment = Deployment(
        workers=(worker, Worker(id="d", role=Role.DECODE, latency=model)),
        flows={("p", "d"): ()},
        first_token_by=Role.PREFILL,
    )
    return simulate(
        deployment, Offered(rate=rate, requests=requests, lengths=[Lengths(100, 1)]), slo=EASY, warm_up=1000
    )
