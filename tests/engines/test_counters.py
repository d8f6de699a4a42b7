from pathlib import Path

import pytest

from hpcserve.engines import EngineCounters, read_counters
from hpcserve.errors import ServiceError

RECORDED = (Path(__file__).with_name("recorded") / "vllm-0.32-decode.metrics").read_text(encoding="utf-8")


def test_recorded_decode_engine() -> None:
    assert read_counters(RECORDED) == EngineCounters(
        xfer_count=7,
        xfer_bytes=11_796_480,
        xfer_seconds=0.035317,
        xfer_failed=0,
        kv_expired=0,
        late_notices=0,
        external_hit_tokens=406,
        local_hit_tokens=128,
        prompt_tokens=550,
        generation_tokens=53,
        running=0,
        waiting=0,
        block_size=32,
    )


def test_room_for_kv_is_blocks_times_their_size_over_all_engines() -> None:
    config = next(line for line in RECORDED.splitlines() if line.startswith("vllm:cache_config_info"))
    told = config.replace('engine="0"', 'engine="0",num_gpu_blocks="1000"')
    assert read_counters(RECORDED.replace(config, told)).kv_room_tokens == 32_000
    both = told + "\n" + told.replace('engine="0"', 'engine="1"')
    assert read_counters(RECORDED.replace(config, both)).kv_room_tokens == 64_000
    unsettled = told.replace('"1000"', '"None"')
    assert read_counters(RECORDED.replace(config, unsettled)).kv_room_tokens is None


def test_engines_of_one_server_are_added() -> None:
    doubled = RECORDED + RECORDED.replace('engine="0"', 'engine="1"')
    assert read_counters(doubled).xfer_count == 14


def test_without_a_connector_transfers_are_zero() -> None:
    text = "\n".join(line for line in RECORDED.splitlines() if "nixl" not in line and "external" not in line)
    counters = read_counters(text)
    assert (counters.xfer_count, counters.xfer_bytes, counters.external_hit_tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lack vllm:prompt_tokens_total"),
        ("<html>502</html>", "lack vllm:prompt_tokens_total"),
        (RECORDED.replace("vllm:num_requests_running", "vllm:other"), "lack vllm:num_requests_running"),
        ("vllm:num_requests_running{ NaN", "cannot be read"),
        ("vllm:num_requests_running NaN", "is nan"),
    ],
)
def test_what_is_no_engines_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        read_counters(text)
