"""Requests for a long time, a worker killed now and then: right answers or clean errors, the router's memory flat."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcserve.nouns import Role
from tests.real.harness import (
    Reference,
    Served,
    assert_right_or_clean_error,
    kill_group,
    router_pid,
    tokens_of,
)
from tests.real.test_faults import PROMPTS, TOKENS

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SOAK_S = float(os.environ.get("HPCSERVE_SOAK_S", "1200"))
KILL_EVERY_S = 180
MOST_GROWTH = 1.25


def rss_kib(pid: int) -> int:
    """Resident memory of a process, KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_requests_for_a_long_time(served: Served) -> None:
    references: list[Reference] = [
        tokens_of(served.complete_on(Role.DECODE, prompt, max_tokens=TOKENS, logprobs=2)) for prompt in PROMPTS
    ]

    def ask(number: int) -> bool:
        place = number % len(PROMPTS)
        answer = served.complete(PROMPTS[place], max_tokens=TOKENS, logprobs=2, timeout_s=180)
        return assert_right_or_clean_error(answer, references[place])

    router, right, asked, kills = router_pid(served.directory), 0, 0, 0
    with ThreadPoolExecutor(4) as pool:
        right += sum(pool.map(ask, range(len(PROMPTS))))
        early_kib = rss_kib(router)
        end = time.monotonic() + SOAK_S
        kill_at = time.monotonic() + KILL_EVERY_S
        while time.monotonic() < end:
            right += sum(pool.map(ask, range(len(PROMPTS))))
            asked += len(PROMPTS)
            if time.monotonic() > kill_at:
                role = (Role.DECODE, Role.PREFILL)[kills % 2]
                kill_group(served.endpoints()[role].pid)
                kills, kill_at = kills + 1, time.monotonic() + KILL_EVERY_S
    served.heal(within_s=180)
    assert router_pid(served.directory) == router
    assert rss_kib(router) < MOST_GROWTH * early_kib
    assert right >= asked - 8 * kills
