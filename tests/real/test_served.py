"""What a user sees of a real service."""

import subprocess
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from hpcserve.nouns import Role
from tests.real.harness import Served, hpcserve

BLOCK_TOKENS = 32
KV_BYTES_PER_TOKEN = 23_040
BLOCK_BYTES = BLOCK_TOKENS * KV_BYTES_PER_TOKEN
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]


def client(served: Served, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.key, **options)


def rx_bytes(served: Served, node: str) -> dict[str, int]:
    """Bytes received by each interface of a node since it started, asked by a step of the job itself."""
    job = served.state().handle.id
    text = subprocess.run(
        ["srun", "--overlap", "--mem=0", f"--jobid={job}", "-N1", "-n1", "-w", node, "cat", "/proc/net/dev"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    rows = [line.split(":") for line in text.splitlines() if ":" in line]
    return {name.strip(): int(figures.split()[0]) for name, figures in rows}


def test_the_openai_client_gets_the_answer_and_the_kv_moved_exactly(served: Served) -> None:
    before = served.counters(Role.DECODE)
    answer = client(served).chat.completions.create(
        model=served.model,
        messages=QUESTION,
        max_tokens=24,
        temperature=0,
    )
    after = served.counters(Role.DECODE)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    blocks = -(-answer.usage.prompt_tokens // BLOCK_TOKENS)
    moved = after.xfer_bytes - before.xfer_bytes
    assert after.xfer_count - before.xfer_count == 1
    assert abs(moved - blocks * BLOCK_BYTES) <= BLOCK_BYTES
    assert served.counters(Role.PREFILL).xfer_bytes == 0, "prefill workers are read from, they do not read"


def test_streaming_gives_the_same_text_as_not_streaming(served: Served) -> None:
    whole = client(served).chat.completions.create(
        model=served.model,
        messages=QUESTION,
        max_tokens=24,
        temperature=0,
    )
    stream = client(served).chat.completions.create(
        model=served.model,
        messages=QUESTION,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    parts, usage = [], None
    for chunk in stream:
        usage = chunk.usage or usage
        parts += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(parts) == whole.choices[0].message.content
    assert usage == whole.usage


def test_kv_moves_on_the_data_interface_and_not_on_the_control_one(served: Served) -> None:
    node = served.plan.worker("decode-0").node
    before = rx_bytes(served, node)
    counters = served.counters(Role.DECODE)
    assert served.complete("The wind. " * 300, max_tokens=4).status_code == 200
    moved = served.counters(Role.DECODE).xfer_bytes - counters.xfer_bytes
    after = rx_bytes(served, node)
    assert moved > 20_000_000
    assert after["data0"] - before["data0"] >= moved
    assert after["ctl0"] - before["ctl0"] < moved / 20


def test_a_request_without_the_key_is_refused(served: Served) -> None:
    with pytest.raises(openai.AuthenticationError):
        client(served, max_retries=0).with_options(api_key="guess").models.list()


def test_models_lists_the_served_name_once(served: Served) -> None:
    assert [model.id for model in client(served).models.list()] == [served.model]


def test_status_shows_workers_and_proof(served: Served) -> None:
    text = hpcserve("status", served.directory)
    assert "ready" in text
    assert "prefill-0" in text
    assert "decode-0" in text
    state = served.state()
    assert state.url is not None
    assert not state.simulated
    assert {worker.phase for worker in state.workers} == {"ready"}
    assert (served.directory.stat().st_mode & 0o777) == 0o700
