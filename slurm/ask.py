"""Ask a running service one question through the official `openai` client, and show that the KV really moved.

Usage: ask.py JOB_DIRECTORY QUESTION. Exits 9 where the answer came but the proof did not.
"""

import sys
import time
from pathlib import Path

import httpx
from openai import OpenAI

from hpcserve.engines import EngineCounters, adapter_for
from hpcserve.nouns import Endpoint, Plan, Role, RouterAddress
from hpcserve.site import load_service
from hpcserve.wire import decode_record

COUNTERS_WITHIN_S = 15
"""An idle vLLM adds finished transfers to its counters with its next statistics, up to ten seconds later."""


def main(directory: Path, question: str) -> int:
    """Ask, print the answer, the verdict and the proof; the exit code."""
    plan = decode_record(Plan, (directory / "plan.json").read_bytes())
    service = load_service((directory / "service.yaml").read_text(), source="service.yaml", site=None)
    router = decode_record(RouterAddress, (directory / "router.json").read_bytes()).url
    key = (directory / "keys" / "api.key").read_text().strip()
    decode = next(worker for worker in workers(directory) if worker.role is Role.DECODE)
    block_size = decode.handoff.block_size if decode.handoff else 1
    kv_bytes_per_token = plan.paths[0].kv_bytes // service.workload.input_tokens

    client = OpenAI(base_url=f"{router}/v1", api_key=key)
    before = counters(decode)
    print(f"Question: {question}")
    answer = client.chat.completions.create(
        model=decode.model, messages=[{"role": "user", "content": question}], max_tokens=24, temperature=0
    )
    print(f"Answer:   {answer.choices[0].message.content}")
    tokens = answer.usage.prompt_tokens if answer.usage else 0
    expected = -(-tokens // block_size) * block_size * kv_bytes_per_token
    until_s = time.monotonic() + COUNTERS_WITHIN_S
    while (after := counters(decode)).xfer_count == before.xfer_count and time.monotonic() < until_s:
        time.sleep(0.5)
    moved = int(after.xfer_bytes - before.xfer_bytes)
    print(f"Verdict:  {'disaggregate' if plan.verdict.disaggregate else 'serve aggregated'}")
    for reason in plan.verdict.reasons:
        print(f"          {reason}")
    print(
        f"Proof:    NIXL moved {moved:,} bytes to {decode.id} in {after.xfer_count - before.xfer_count:g} transfer; "
        f"{tokens} prompt tokens in blocks of {block_size} are {expected:,} bytes"
    )
    if abs(moved - expected) > block_size * kv_bytes_per_token:
        print("The KV of this request did not move as it should have.", file=sys.stderr)
        return 9
    return 0


def workers(directory: Path) -> list[Endpoint]:
    """The live workers of a job."""
    return [decode_record(Endpoint, path.read_bytes()) for path in sorted((directory / "endpoints").glob("*.json"))]


def counters(worker: Endpoint) -> EngineCounters:
    """A worker's counters now."""
    answer = httpx.get(f"{worker.url}/metrics", timeout=10, trust_env=False).raise_for_status()
    return adapter_for(worker.engine).read_counters(answer.text)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
