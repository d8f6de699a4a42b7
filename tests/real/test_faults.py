"""Workers, agents and the router are killed, and a link is cut, under requests whose right answers were recorded before."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from hpcserve.nouns import Role
from tests.real.harness import Served, kill_group, wait_for

REQUESTS = 20
TOKENS = 12
PROMPTS = [
    f"Entry {number} of the log. " + "The weather was calm and the ship went on. " * (4 + 3 * (number % 5)) + f"On day {number} we"
    for number in range(REQUESTS)
]
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Greedy tokens of one prompt, with the two best log-probabilities at each place."""

    tokens: list[str]
    best_two: list[list[float]]


def tokens_of(answer: dict[str, Any]) -> Reference:
    logprobs = answer["choices"][0]["logprobs"]
    return Reference(
        tokens=logprobs["tokens"],
        best_two=[sorted(places.values(), reverse=True)[:2] for places in logprobs["top_logprobs"]],
    )


@pytest.fixture(scope="module")
def references(served: Served) -> list[Reference]:
    """The aggregated answers, from the decode worker alone."""
    return [tokens_of(served.complete_on(Role.DECODE, prompt, max_tokens=TOKENS, logprobs=2)) for prompt in PROMPTS]


def assert_right_or_clean_error(answer: httpx.Response, reference: Reference) -> bool:
    """Whether the answer is right; fails where it is neither right nor an OpenAI-style error."""
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["message"]
        assert {"type", "code"} <= error.keys()
        return False
    found = tokens_of(answer.json()).tokens
    for place, (token, wanted) in enumerate(zip(found, reference.tokens, strict=True)):
        if token != wanted:
            best, second = reference.best_two[place]
            assert best == second, f"token {place} is {token!r}, not {wanted!r}, and the two were no tie"
            break
    return True


def ask_all_during(served: Served, fault: Callable[[], None], *, fault_after: int = 5) -> list[httpx.Response]:
    """All prompts, four at a time; the fault strikes once `fault_after` were answered."""
    answered = threading.Semaphore(0)

    def ask(prompt: str) -> httpx.Response:
        answer = served.complete(prompt, max_tokens=TOKENS, logprobs=2, timeout_s=180)
        answered.release()
        return answer

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, prompt) for prompt in PROMPTS]
        for _ in range(fault_after):
            answered.acquire(timeout=120)
        fault()
        return [each.result() for each in asked]


def cold_start_s(served: Served, worker: str) -> float:
    """How long the worker's own last start took, from its agent's words."""
    log = (served.directory / "logs" / f"agent.{served.plan.worker(worker).node}.log").read_text()
    found = re.findall(rf"{worker}: ready after ([\d.]+) s", log)
    assert found, f"the agent's log does not say when {worker} was ready:\n{log[-2000:]}"
    return float(found[0])


def assert_all_right_or_clean(answers: list[httpx.Response], references: list[Reference], *, at_least: int) -> None:
    right = sum(map(assert_right_or_clean_error, answers, references))
    assert right >= at_least


@pytest.mark.parametrize("role", [Role.DECODE, Role.PREFILL])
def test_kill_a_worker(served: Served, references: list[Reference], role: Role) -> None:
    endpoint = served.endpoints()[role]
    answers = ask_all_during(served, lambda: kill_group(endpoint.pid))
    assert_all_right_or_clean(answers, references, at_least=REQUESTS - 4)
    took = served.heal(within_s=3 * cold_start_s(served, endpoint.id) + 1)
    assert served.endpoints()[role].generation != endpoint.generation
    print(f"{role} whole again after {took:.1f} s")  # noqa: T201 - a figure for the reader of the test run


def test_kill_prefill_between_its_answer_and_the_pull(served: Served, references: list[Reference]) -> None:
    prefill, decode = served.endpoints()[Role.PREFILL], served.endpoints()[Role.DECODE]
    cold_s = cold_start_s(served, prefill.id)
    for number in range(3):
        finished = served.counters(Role.PREFILL).prompt_tokens
        kill_group(decode.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(served.complete, PROMPTS[number], max_tokens=TOKENS, logprobs=2, timeout_s=120)
            if number == 0:
                wait_for(
                    "the prefill worker's answer",
                    lambda finished=finished: served.counters(Role.PREFILL).prompt_tokens > finished,
                    within_s=30,
                )
                time.sleep(0.5)
                kill_group(prefill.pid)
            kill_group(decode.pid, signal.SIGCONT)
            assert_right_or_clean_error(asked.result(), references[number])
    served.heal(within_s=3 * cold_s + 1)


def test_kill_an_agent(served: Served, references: list[Reference]) -> None:
    generations = {endpoint.id: endpoint.generation for endpoint in served.endpoints().values()}
    node = served.plan.worker("decode-0").node
    agent = json.loads((served.directory / "nodes" / f"{node}.json").read_text())["agent_pid"]
    answers = ask_all_during(served, lambda: os.kill(agent, signal.SIGKILL))
    assert_all_right_or_clean(answers, references, at_least=REQUESTS)
    wait_for(
        "another agent on the node",
        lambda: json.loads((served.directory / "nodes" / f"{node}.json").read_text())["agent_pid"] != agent,
        within_s=30,
    )
    served.heal(within_s=30)
    assert {endpoint.id: endpoint.generation for endpoint in served.endpoints().values()} == generations


def test_kill_the_router(served: Served, references: list[Reference]) -> None:
    address = json.loads((served.directory / "router.json").read_text())
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.key) as client, ThreadPoolExecutor(4) as pool:

        def ask(prompt: str) -> dict[str, Any]:
            answer = client.completions.create(
                model=served.model, prompt=prompt, temperature=0, max_tokens=TOKENS, logprobs=2
            )
            return answer.model_dump()

        asked = [pool.submit(ask, prompt) for prompt in PROMPTS]
        time.sleep(1)
        os.kill(address["pid"], signal.SIGKILL)
        answers = [each.result() for each in asked]
    for answer, reference in zip(answers, references, strict=True):
        assert_right_or_clean_error(httpx.Response(200, json=answer), reference)
    again = json.loads((served.directory / "router.json").read_text())
    assert again["url"] == address["url"]
    assert again["pid"] != address["pid"]
    served.heal(within_s=30)


def link(node: str, *words: str) -> None:
    """Change a data link of the cluster that these tests run in."""
    cluster = Path(__file__).parents[2] / "slurm" / "cluster"
    subprocess.run([cluster, "--name", os.environ["HPCSERVE_TEST_CLUSTER"], "link", node, *words], check=True, timeout=30)


def test_cut_a_data_link_for_45_s_in_mid_transfer(served: Served, references: list[Reference]) -> None:
    """Prefill is kept busy meanwhile, so that it reuses the blocks of the late handoff."""
    node = served.plan.worker("prefill-0").node
    long_prompt = "The harbour was full of ships from the north. " * 150
    reference = tokens_of(served.complete_on(Role.DECODE, long_prompt, max_tokens=TOKENS, logprobs=2))
    stop = threading.Event()

    def keep_prefill_busy() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            served.complete_on(Role.PREFILL, f"Noise {number}. " + f"word{number} " * 900, max_tokens=1)

    with ThreadPoolExecutor(2) as pool:
        started = served.counters(Role.PREFILL).prompt_tokens
        asked = pool.submit(served.complete, long_prompt, max_tokens=TOKENS, logprobs=2, timeout_s=180)
        wait_for("the prefill", lambda: served.counters(Role.PREFILL).prompt_tokens > started, within_s=60, every_s=0.02)
        link(node, "--down")
        busy = pool.submit(keep_prefill_busy)
        try:
            time.sleep(45)
        finally:
            link(node, "--up")
            stop.set()
        busy.result()
        answer = asked.result()
    assert_right_or_clean_error(answer, reference)
    served.heal(within_s=120)
    assert all(
        assert_right_or_clean_error(served.complete(prompt, max_tokens=TOKENS, logprobs=2), right)
        for prompt, right in zip(PROMPTS[:3], references[:3], strict=True)
    )
