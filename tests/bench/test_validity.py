from dataclasses import replace
from typing import Any

import pytest

from hpcserve.bench import BusyLimits, Evidence, judge
from hpcserve.nouns import Load, Sample, Slo, Transfers

_PER_TOKEN, _BLOCK = 23_040.0, 32
_LIMITS = BusyLimits()


def _sample(**changes: Any) -> Sample:
    made = Sample(start_s=0.0, input_tokens=512, output_tokens=16, ttft_ms=300.0, tpot_ms=50.0)
    return made.model_copy(update=changes)


def _load(kind: str = "rate") -> Load:
    return Load.model_validate(
        {
            "kind": kind,
            "request_rate": 2.0 if kind == "rate" else None,
            "requests": 10,
            "input_tokens": 512,
            "cached_prefix_tokens": 480,
            "output_tokens": 16,
            "seed": 1,
            "generator": "test",
        }
    )


def _moved(requests: int = 10, **changes: Any) -> Transfers:
    made = Transfers(count=requests, bytes=int(requests * 512 * _PER_TOKEN), failed=0, seconds=1.0)
    return made.model_copy(update=changes)


_SOUND = Evidence(
    load=_load(),
    slo=Slo(ttft_ms=1000.0, tpot_ms=150.0),
    samples=(_sample(),) * 10,
    transfers=_moved(),
    kv_bytes_per_token=_PER_TOKEN,
    block_tokens=_BLOCK,
    generations_before={"decode-0": "a"},
    generations_after={"decode-0": "a"},
    achieved_rate=2.0,
)


def test_a_sound_run_is_valid() -> None:
    validity = judge(_SOUND, _LIMITS)
    assert validity.valid
    assert validity.reasons == ()


def test_warm_ups_are_accounted_for() -> None:
    warmed = replace(_SOUND, warm_ups=2, transfers=_moved(12))
    assert judge(warmed, _LIMITS).valid


def test_an_aggregated_run_needs_no_transfer() -> None:
    assert judge(replace(_SOUND, transfers=None, kv_bytes_per_token=None), _LIMITS).valid


_BLOCK_BYTES = int(_BLOCK * _PER_TOKEN)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"samples": (_sample(),) * 9}, "9 requests were recorded of 10"),
        ({"samples": (_sample(error="HTTP 503"), *(_sample(),) * 9)}, "1 requests failed: HTTP 503"),
        ({"samples": (_sample(ttft_ms=None), *(_sample(),) * 9)}, "1 requests failed: no token came"),
        ({"samples": (_sample(output_tokens=0, ttft_ms=None, error="x"),) * 10}, "no output token came"),
        ({"transfers": _moved(count=0, bytes=0)}, "0 KV transfers for 10 answered requests"),
        ({"transfers": _moved(count=9)}, "9 KV transfers for 10 answered requests"),
        ({"transfers": None}, "no worker counts transfers"),
        ({"transfers": _moved(failed=1)}, "1 KV transfers failed"),
        ({"transfers": _moved(bytes=_moved().bytes - 10 * _BLOCK_BYTES - 1)}, "bytes of KV moved"),
        ({"transfers": _moved(bytes=_moved().bytes + 10 * _BLOCK_BYTES + 1)}, "bytes of KV moved"),
        ({"cached_tokens": 9 * 480, "transfers": _moved(bytes=8 * 512)}, "4320 of 5120 prompt tokens in their own"),
        ({"load": _load("alone"), "transfers": _moved(count=11)}, "11 KV transfers for 10 requests, one each"),
        ({"generations_after": {"decode-0": "b"}}, "started again during the run: decode-0"),
        ({"generations_after": {}}, "started again during the run: decode-0"),
        ({"achieved_rate": 1.79}, "requests came at 1.79/s, 2/s were to be offered"),
        ({"achieved_rate": 2.21}, "requests came at 2.21/s"),
        ({"others_before": 0.3}, "too busy to measure: 30% of its cores were in use before"),
        ({"others_during": 0.3}, "too busy to measure: others used 30% of its cores in the run"),
        ({"others_after": 0.3}, "too busy to measure: 30% of its cores were in use after"),
        ({"steal": 0.06}, "too busy to measure: 6% of its time was given to others"),
        ({"dispatch_delays_ms": [0.0] * 8 + [80.0] * 2}, "too busy to measure: requests were sent 80 ms late"),
        ({"failures": ("vllm bench serve\nended with 1",)}, "vllm bench serve ended with 1"),
    ],
)
def test_each_defect_makes_the_run_invalid_and_is_named(changes: dict[str, Any], reason: str) -> None:
    validity = judge(replace(_SOUND, **changes), _LIMITS)
    assert not validity.valid
    assert any(reason in told for told in validity.reasons), validity.reasons


@pytest.mark.parametrize(
    "changes",
    [
        {"transfers": _moved(bytes=_moved().bytes - 10 * _BLOCK_BYTES)},
        {"achieved_rate": 1.81},
        {"others_before": 0.25, "others_during": 0.25, "others_after": 0.25},
        {"steal": 0.05},
        {"dispatch_delays_ms": [50.0] * 10},
        {"dispatch_delays_ms": [0.0] * 99 + [900.0]},
    ],
)
def test_what_lies_within_the_limits_is_valid(changes: dict[str, Any]) -> None:
    assert judge(replace(_SOUND, **changes), _LIMITS).valid


def test_every_reason_is_told_at_once() -> None:
    bad = replace(_SOUND, samples=(), transfers=_moved(count=0, bytes=0), others_before=0.9, achieved_rate=9.0)
    assert len(judge(bad, _LIMITS).reasons) == 4
