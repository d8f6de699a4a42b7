"""That our router knows exactly what engines hold, by its own metrics: else a figure would be another mode's."""

import re
import time
import urllib.request
from collections.abc import Iterator, Mapping

from benchmarks.router.machine import ENGINE_KEY, Machine

__all__ = ["held_exact", "judge", "look", "until_exact", "warm"]

_WITHIN_S = 60.0
_PROMPTS = 128
"""That the load has."""
_MOST_PASSES = 20
_GOOD_PASSES = 2
_NEARLY_ALL = 0.99
"""Of the prompts in a run; one may be told of while it is asked for."""
_FIGURE = re.compile(r'hpcserve_router_(kv_\w+)(?:\{(?:known="(\w+)"|[^}]*)\})? (\S+)')


def look(port: int) -> Mapping[str, float]:
    """The router's figures on KV now, summed over workers; prompts by `known` as `kv_prompts_total known`."""
    headers = {"Authorization": f"Bearer {ENGINE_KEY}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    found: dict[str, float] = {}
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - http, of this machine
        for line in answer.read().decode().splitlines():
            match = _FIGURE.fullmatch(line)
            if match is not None:
                name = f"{match[1]} {match[2]}" if match[2] else match[1]
                found[name] = found.get(name, 0.0) + float(match[3])
    return found


def until_exact(port: int) -> None:
    """Wait until events are believed of all workers, and each was probed. Raises TimeoutError."""
    end_s = time.monotonic() + _WITHIN_S
    while not (look(port).get("kv_exact") == 1 and look(port).get("kv_index_blocks", 0) > 0):
        if time.monotonic() > end_s:
            raise TimeoutError(f"the router on port {port} does not get exact: {look(port)}")
        time.sleep(0.2)
    time.sleep(2)  # the other workers' probes


def warm(machine: Machine, port: int, prompt_bytes: int, *, seeds: Iterator[int] | None) -> None:
    """Send the load's prompts until all are known, twice in a row. Raises ValueError where they do not get known.

    `seeds`: of prompts that differ each time, of the same messages; None: always the same prompts.
    """
    known, good = 0.0, 0
    for _ in range(_MOST_PASSES):
        before = look(port)
        options = ("-o", str(_PROMPTS), *(() if seeds is None else ("-m", str(next(seeds)))))
        machine.load(port, connections=8, seconds=120.0, prompt_bytes=prompt_bytes, options=options)
        known = _grown(before, look(port), "kv_prompts_total known")
        good = good + 1 if known == _PROMPTS else 0
        if good == _GOOD_PASSES:
            return
    raise ValueError(f"only {known:.0f} of {_PROMPTS} prompts are known after {_MOST_PASSES} passes")


def held_exact(port: int, before: Mapping[str, float], *, known: int | None = None) -> None:
    """Raises ValueError unless the router was exact since it was looked at; `known` as in `judge`."""
    judge(before, look(port), known=known)


def judge(before: Mapping[str, float], now: Mapping[str, float], *, known: int | None = None) -> None:
    """Raises ValueError unless these two looks show exact knowledge.

    `known`: of how many prompts all tokens must have been known; None: of all, and hits must have been predicted.
    """
    if now.get("kv_exact") != 1:
        raise ValueError(f"the router's exact mode ended: {now}")
    prompts = {name: _grown(before, now, name) for name in now if name.startswith("kv_prompts_total")}
    found = prompts.get("kv_prompts_total known", 0.0)
    if known is not None:
        if found != known:
            raise ValueError(f"{known} prompts should have been known: {prompts}")
        return
    if not found or found < _NEARLY_ALL * sum(prompts.values()):
        raise ValueError(f"prompts were not known token by token: {prompts}")
    if not _grown(before, now, "kv_predicted_tokens_total"):
        raise ValueError("the index predicted no hits")


def _grown(before: Mapping[str, float], now: Mapping[str, float], name: str) -> float:
    return now.get(name, 0.0) - before.get(name, 0.0)
