"""A data link is cut in mid-transfer for longer than the lease, while the prefill worker reuses the blocks.

The control run, with the lease rule off, shows the wrong tokens that the rule prevents.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from hpcserve.nouns import Role
from tests.real.harness import (
    ROOT,
    SERVICE,
    Parts,
    Reference,
    Served,
    assert_right_or_clean_error,
    cancel,
    router_pid,
    submit,
    tokens_of,
    wait_for,
)

pytestmark = pytest.mark.timeout(900)

CUT_S = 45
LEASE_S = 12
TOKENS = 12
# 34 MB of KV, some 7 s on a link of 40 Mbit/s: time enough to cut it in the middle
LONG_PROMPT = "The harbour was full of ships from the north. " * 140
SLOW = "40mbit"


def link(node: str, *words: str) -> None:
    """Change a data link of the cluster that these tests run in."""
    cluster = ROOT / "slurm" / "cluster"
    subprocess.run(
        [cluster, "--name", os.environ["HPCSERVE_TEST_CLUSTER"], "link", node, *words], check=True, timeout=30
    )


@pytest.fixture(scope="module")
def short_lease(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose prefill worker has little room for KV and a short lease."""
    text = SERVICE.read_text()
    text = text.replace("name: smollm2\n", f"name: short-lease\nkv_lease_s: {LEASE_S}\n", 1)
    text = text.replace(
        "  - role: prefill\n    workers: 1\n",
        "  - role: prefill\n    workers: 1\n"
        f'    args: ["--kv-cache-memory-bytes", "{128 * 32 * 23040}", "--max-model-len", "2048"]\n',
    )
    text += "router:\n  lease_rule: false\n"
    path = tmp_path_factory.mktemp("lease") / "short-lease.yaml"
    path.write_text(text)
    service = submit(parts, path, model="smollm2")
    node = service.plan.worker("prefill-0").node
    link(node, "--rate", SLOW)
    yield service
    link(node, "--rate", "1gbit")
    cancel(service.directory)


def answer_of_a_cut_handoff(service: Served) -> httpx.Response:
    """One long request whose KV is cut off on its way, with the prefill worker busy until the link is back."""
    node = service.plan.worker("prefill-0").node
    stop = threading.Event()

    def keep_prefill_busy() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            service.complete_on(Role.PREFILL, f"Noise {time.monotonic_ns()}. " + f"word{number} " * 450, max_tokens=1)

    with ThreadPoolExecutor(2) as pool:
        before = service.counters(Role.PREFILL).prompt_tokens
        asked = pool.submit(service.complete, LONG_PROMPT, max_tokens=TOKENS, logprobs=2, timeout_s=240)
        wait_for("the prefill", lambda: service.counters(Role.PREFILL).prompt_tokens > before, within_s=60, every_s=0.1)
        time.sleep(1)
        link(node, "--down")
        busy = pool.submit(keep_prefill_busy)
        try:
            time.sleep(CUT_S)
        finally:
            link(node, "--up")
        answer = asked.result()
        stop.set()
        busy.result()
    return answer


@pytest.fixture(scope="module")
def reference(short_lease: Served) -> Reference:
    return tokens_of(short_lease.complete_on(Role.DECODE, LONG_PROMPT, max_tokens=TOKENS, logprobs=2))


def test_without_the_lease_rule_the_answer_is_wrong(short_lease: Served, reference: Reference) -> None:
    answer = answer_of_a_cut_handoff(short_lease)
    assert answer.status_code == 200, "the engines themselves notice nothing"
    assert tokens_of(answer.json()).tokens != reference.tokens
    short_lease.heal(within_s=180)


def test_with_the_lease_rule_the_answer_is_right(short_lease: Served, reference: Reference) -> None:
    written = short_lease.directory / "service.yaml"
    written.write_text(written.read_text().replace("lease_rule: false", "lease_rule: true"))
    os.kill(router_pid(short_lease.directory), signal.SIGKILL)
    time.sleep(2)
    short_lease.heal(within_s=60)
    assert assert_right_or_clean_error(answer_of_a_cut_handoff(short_lease), reference)
    short_lease.heal(within_s=180)
    again = short_lease.complete(LONG_PROMPT, max_tokens=TOKENS, logprobs=2)
    assert assert_right_or_clean_error(again, reference)


def test_two_services_at_once_share_no_port_and_no_file(served: Served, short_lease: Served) -> None:
    ports, files = [], []
    for service in (served, short_lease):
        plan = service.plan
        ports.append(
            {(worker.node, worker.port) for worker in plan.workers}
            | {(worker.node, worker.side_channel_port) for worker in plan.workers}
            | {(plan.router.node, plan.router.port)}
        )
        files.append(files_of(service, below=service.directory.parent))
    assert not ports[0] & ports[1]
    assert not files[0] & files[1]
    for service, opened in zip((served, short_lease), files, strict=True):
        assert opened
        assert all(path.is_relative_to(service.directory) for path in opened)


def files_of(service: Served, *, below: Path) -> set[Path]:
    """Files below a folder that the service's processes have open."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and mark_of(entry) == str(service.directory):
            for descriptor in (entry / "fd").iterdir():
                try:
                    path = descriptor.readlink()
                except OSError:
                    continue
                if path.is_relative_to(below):
                    found.add(path)
    return found


def mark_of(process: Path) -> str | None:
    """The job that a process belongs to, as its environment says."""
    try:
        words = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((word[13:].decode() for word in words if word.startswith(b"HPCSERVE_JOB=")), None)
