"""What pairing by the fabric is worth: TTFT with the router's choice and with taking turns, on a service that is up.

    benchmarks/pairing/onebox [--rates 1 2.5] [--requests 40] [--rounds 3]

The service has one prefill worker and two decode workers, one of them across a slower link. Both ways send a prefill
and a decode leg to the same engines: `router` by the service's router, `turns` from here, each decode worker taking
every second prompt. Prompts begin with the same tokens, which the prefill worker keeps, and end with some that no other
has: prefill is short and the whole KV moves. Poisson arrivals, drawn for each rate and round, the same for both ways,
which take turns at who is first. Prints JSON: TTFT in ms of each way, rate and round, the share of requests within some
limits of TTFT, and who served; `ratios` are router / turns within one round. A run in which a request got no token has
no times, but `invalid` with what came instead, and no ratio; the exit status is then 1.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from hpcserve.discovery import read_records
from hpcserve.engines.handoff import decode_body, prefill_body, read_answer, read_body
from hpcserve.nouns import Endpoint, Role

_PREFIX = [1000 + place * 37 % 40000 for place in range(480)]
_OWN_TOKENS = 32
_OUTPUT_TOKENS = 16
_WARM = 8
_LIMITS_MS = (300, 500, 1000)

Way = Literal["router", "turns"]


@dataclass(frozen=True, kw_only=True)
class Service:
    """Where requests go, and with which keys."""

    router_url: str
    key: str
    engine_key: str
    prefill: Endpoint
    decodes: tuple[Endpoint, ...]


def service_of(job: Path) -> Service:
    """A service that is up, from its job directory."""
    endpoints = sorted(read_records(job, "endpoints", Endpoint).records.values(), key=lambda endpoint: endpoint.id)
    (prefill,) = (endpoint for endpoint in endpoints if endpoint.role == Role.PREFILL)
    return Service(
        router_url=json.loads((job / "router.json").read_text())["url"],
        key=(job / "keys" / "api.key").read_text().strip(),
        engine_key=(job / "keys" / "engine.key").read_text().strip(),
        prefill=prefill,
        decodes=tuple(endpoint for endpoint in endpoints if endpoint.role == Role.DECODE),
    )


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One request: its time to first token, and which decode worker gave it; or what came instead of a token."""

    ttft_ms: float = 0.0
    decode: str = ""
    failed: str = ""


class NoTokenError(Exception):
    """A request got no token; says what came instead."""


async def first_token(client: httpx.AsyncClient, url: str, key: str, body: bytes) -> tuple[float, str]:
    """When the first token of a stream came, by `perf_counter`, and the route by the router; reads to the end.

    Raises NoTokenError, also where the stream broke after its first token.
    """
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    first_s = 0.0
    async with client.stream("POST", f"{url}/v1/completions", headers=headers, content=body) as answer:
        if answer.status_code != httpx.codes.OK:
            raise NoTokenError(f"status {answer.status_code}")
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise NoTokenError("an error in the stream")
                if not first_s and any(choice["text"] for choice in event["choices"]):
                    first_s = time.perf_counter()
    if not first_s:
        raise NoTokenError("a stream without text")
    return first_s, answer.headers.get("x-hpcserve-route", "")


async def _tried(
    client: httpx.AsyncClient, service: Service, *, way: Way, number: int, prompt: Sequence[int]
) -> Answered:
    try:
        return await _ask(client, service, way=way, number=number, prompt=prompt)
    except NoTokenError as error:
        return Answered(failed=str(error))
    except httpx.HTTPError as error:
        return Answered(failed=type(error).__name__)


async def _ask(
    client: httpx.AsyncClient, service: Service, *, way: Way, number: int, prompt: Sequence[int]
) -> Answered:
    asked = {"model": service.prefill.model, "prompt": prompt, "max_tokens": _OUTPUT_TOKENS, "temperature": 0}
    text = json.dumps({**asked, "ignore_eos": True, "stream": True}).encode()
    began_s = time.perf_counter()
    if way == "router":
        first_s, route = await first_token(client, service.router_url, service.key, text)
        return Answered(ttft_ms=(first_s - began_s) * 1000, decode=route.rpartition(">")[2])
    decode = service.decodes[number % len(service.decodes)]
    body = read_body(text)
    headers = {"Authorization": f"Bearer {service.engine_key}", "Content-Type": "application/json"}
    url = f"{service.prefill.url}/v1/completions"
    answer = await client.post(url, headers=headers, content=prefill_body(body))
    handed = read_answer(answer.content).transfer
    if handed is None:
        raise NoTokenError(f"status {answer.status_code} and no handoff of the prefill leg")
    first_s, _ = await first_token(client, decode.url, service.engine_key, decode_body(body, handed))
    return Answered(ttft_ms=(first_s - began_s) * 1000, decode=decode.id)


async def _load(service: Service, *, way: Way, gaps_s: Sequence[float], seed: str) -> list[Answered]:
    dice = random.Random(seed)  # noqa: S311 - prompts
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=120, trust_env=False) as client:
        tasks = []
        for number, gap_s in enumerate(gaps_s):
            await asyncio.sleep(gap_s)
            prompt = [*_PREFIX, *(dice.randrange(1000, 40000) for _ in range(_OWN_TOKENS))]
            tasks.append(asyncio.create_task(_tried(client, service, way=way, number=number, prompt=prompt)))
        return list(await asyncio.gather(*tasks))


def row(answered: Sequence[Answered], *, way: Way, rate: float, number: int) -> dict[str, Any]:
    """What is shown of one way at one rate in one round."""
    case = {"way": way, "rate": rate, "round": number, "n": len(answered)}
    failed = Counter(each.failed for each in answered if each.failed)
    if failed:
        return case | {
            "invalid": f"{failed.total()} of {len(answered)} requests got no token",
            "instead": dict(sorted(failed.items())),
        }
    times = [each.ttft_ms for each in answered]
    return case | {
        "mean_ms": round(statistics.mean(times), 1),
        "p50_ms": round(statistics.median(times), 1),
        "p90_ms": round(statistics.quantiles(times, n=10, method="inclusive")[-1], 1),
        "within": {f"{limit} ms": round(sum(one <= limit for one in times) / len(times), 3) for limit in _LIMITS_MS},
        "decodes": dict(sorted(Counter(each.decode for each in answered).items())),
        "load_average": round(os.getloadavg()[0], 1),
    }


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Router / turns of each round where both are valid: by rate, of the mean, the median and the 90th percentile."""
    found: dict[str, dict[str, list[float]]] = {}
    by_case = {(each["rate"], each["round"], each["way"]): each for each in rows if "invalid" not in each}
    for rate, number, way in by_case:
        if way == "router" and (rate, number, "turns") in by_case:
            ours, blind = by_case[rate, number, "router"], by_case[rate, number, "turns"]
            for name in ("mean_ms", "p50_ms", "p90_ms"):
                found.setdefault(f"{rate:g}/s", {}).setdefault(name, []).append(round(ours[name] / blind[name], 3))
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.pairing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", type=Path, help="job directory of a service of one prefill worker that is up")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.5], help="requests per second")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    words = parser.parse_args()
    if words.requests < 2:  # noqa: PLR2004 - of one there is no 90th percentile
        parser.error("--requests must be 2 or more")
    service = service_of(words.job)
    rows = []
    ways: tuple[Way, Way] = ("router", "turns")
    for way in ways:
        asyncio.run(_load(service, way=way, gaps_s=[1.0] * _WARM, seed=f"warm {way}"))
    for number in range(words.rounds):
        for rate in words.rates:
            dice = random.Random(f"{number} {rate}")  # noqa: S311 - arrivals
            gaps_s = [dice.expovariate(rate) for _ in range(words.requests)]
            for way in ways if number % 2 else reversed(ways):
                answered = asyncio.run(_load(service, way=way, gaps_s=gaps_s, seed=f"{number} {rate} {way}"))
                rows.append(row(answered, way=way, rate=rate, number=number))
    sys.stdout.write(json.dumps({"rows": rows, "ratios": ratios(rows)}, indent=1) + "\n")
    return int(any("invalid" in each for each in rows))


if __name__ == "__main__":
    sys.exit(main())
