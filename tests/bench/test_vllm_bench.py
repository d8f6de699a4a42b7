import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from hpcserve.bench import Point, Target, offered_of
from hpcserve.bench.vllm_bench import bench_argv
from hpcserve.errors import ServiceError
from tests.synthetic import plan, service, site

_RECORDED = Path(__file__).parent / "recorded"


def _recorded(name: str) -> dict[str, Any]:
    """What vLLM 0.32's `vllm bench serve --save-detailed` wrote, on two cores, against SmolLM2-135M-Instruct."""
    made: dict[str, Any] = json.loads((_RECORDED / f"vllm_bench_0.32.{name}.json").read_bytes())
    return made


def test_the_samples_say_what_vllm_itself_computed_from_them() -> None:
    result = _recorded("ok")
    offered = offered_of(result)
    ttfts = [sample.ttft_ms for sample in offered.samples if sample.ttft_ms is not None]
    tpots = [sample.tpot_ms for sample in offered.samples if sample.tpot_ms is not None]
    assert sum(ttfts) / len(ttfts) == pytest.approx(result["mean_ttft_ms"])
    assert sum(tpots) / len(tpots) == pytest.approx(result["mean_tpot_ms"])
    assert sum(sample.output_tokens for sample in offered.samples) == result["total_output_tokens"]
    assert sum(sample.input_tokens for sample in offered.samples) == result["total_input_tokens"]
    assert offered.duration_s == result["duration"]


def test_the_rate_that_was_achieved_is_the_one_asked_for() -> None:
    offered = offered_of(_recorded("ok"))
    assert offered.achieved_rate == pytest.approx(2.0, rel=0.02)
    assert min(sample.start_s for sample in offered.samples) > 0
    assert max(offered.dispatch_delays_ms) < 1


def test_failed_requests_have_no_time_and_their_last_line_of_error() -> None:
    offered = offered_of(_recorded("failed"))
    answered, failed = offered.samples[0], offered.samples[1:]
    assert answered.ttft_ms == pytest.approx(323.2, abs=0.1)
    assert len(failed) == 11
    assert all(sample.ttft_ms is None and sample.tpot_ms is None and not sample.output_tokens for sample in failed)
    assert all("Cannot connect to host" in sample.error and "\n" not in sample.error for sample in failed)


@pytest.mark.parametrize("name", ["ttfts", "start_times", "errors"])
def test_a_result_that_is_not_whole_is_refused(name: str) -> None:
    result = _recorded("ok")
    with pytest.raises(ServiceError, match="do not hold 6 requests"):
        offered_of({**result, name: result[name][:-1]})
    with pytest.raises(ServiceError, match=f"lacks {name}"):
        offered_of({key: value for key, value in result.items() if key != name})


def _target() -> Target:
    directory = Path("/jobs/chat-1")
    return Target(
        directory=directory, url="http://10.0.0.1:8000", api_key="very-secret", plan=plan(), service=service(),
        site=site(), endpoints={},
    )  # fmt: skip


def test_the_command_offers_the_workload_and_never_shows_the_key() -> None:
    point = Point(
        id="near.rate-3", sweep="demo", placement="near", repetition=1, kind="rate", request_rate=3.0, requests=60,
        seed=7, environment={},
    )  # fmt: skip
    argv = bench_argv(
        point=point,
        target=_target(),
        tokenizer=Path("/models/tiny"),
        result=Path("/jobs/chat-1/bench/x.json"),
        warm_ups=1,
    )
    options = dict(itertools.pairwise(argv))
    assert argv[:5] == ("bash", "runtimes/vllm.sh", "vllm", "bench", "serve")
    assert (options["--random-prefix-len"], options["--random-input-len"]) == ("480", "32")
    assert options["--random-output-len"] == "16"
    assert (options["--request-rate"], options["--num-prompts"], options["--seed"]) == ("3", "60", "7")
    assert "very-secret" not in " ".join(argv)
    assert "very-secret" not in repr(_target())
