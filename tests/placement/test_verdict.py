"""The verdict by arithmetic: a 70B model on three kinds of link, and each rule of no benefit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.errors import PlacementError
from hpcserve.fabric import fabric_of
from hpcserve.nouns import Mode, Nic, NicKind, Pool, Rate, Role, Service, Site, Slo, Verdict, Workload
from hpcserve.placement import place
from hpcserve.placement.verdict import cannot_be_separate, weight_of
from hpcserve.placement.verdict_rules import Situation, rules_against
from hpcserve.site import load_service, load_site
from tests.docs.pages import ROOT
from tests.placement.test_place import LLAMA_70B

H100 = load_site((ROOT / "site_configs" / "h100-ib.yaml").read_text(), source="h100-ib")
SERVICE = load_service((ROOT / "tests/golden/services/h100-ib.llama.yaml").read_text(), source="llama", site=H100)
PREFILL_MS = 390.3
"""Of 4096 tokens of Llama2-70B on 8 H100: median in the table published with Splitwise (ISCA 2024)."""


def with_one_nic(gb_per_s: float, kind: NicKind) -> Site:
    """The same nodes with one NIC for all eight GPUs, at its line rate."""
    node = H100.node_types["hgx-h100"]
    rate = Rate(nominal_gb_per_s=gb_per_s, efficiency=1.0, source="the line's own rate")
    nic = Nic(name="only", kind=kind, rate=rate, numa=0, gpus=tuple(range(8)))
    return H100.model_copy(update={"node_types": {"hgx-h100": node.model_copy(update={"nics": (nic,)})}})


def service(**changes: Any) -> Service:
    pools = tuple(Pool(role=role, workers=1, tensor_parallel=8) for role in (Role.PREFILL, Role.DECODE))
    load = Workload(input_tokens=4096, output_tokens=256, prefill_tokens_per_s=4096 / PREFILL_MS * 1e3)
    return SERVICE.model_copy(update={"mode": Mode.AUTO, "pools": pools, "workload": load, **changes})


def verdict(site: Site, /, **changes: Any) -> Verdict:
    return place(fabric=fabric_of(site), site=site, shape=LLAMA_70B, service=service(**changes)).verdict


SENTENCES = {
    "hidden": "separate prefill and decode: moving the KV takes 4.4 ms on the slowest path, 1.1% of the prefill's "
    "390.3 ms, under the limit of 10%",
    "visible": "serve aggregated, unless decode must not be disturbed: moving the KV takes 53.7 ms on the slowest "
    "path, 13.8% of the prefill's 390.3 ms, not under the limit of 10%",
    "longer than the prefill": "serve aggregated: moving the KV takes 429.5 ms on the slowest path, longer than the "
    "prefill itself, 390.3 ms",
}


@pytest.mark.parametrize(
    ("site", "transfer_ms", "weight"),
    [
        (H100, 4.415, "hidden"),
        (with_one_nic(25.0, NicKind.INFINIBAND), 53.687, "visible"),
        (with_one_nic(3.125, NicKind.ETHERNET), 429.497, "longer than the prefill"),
    ],
    ids=["eight NDR rails", "one HDR NIC", "25 GbE"],
)
def test_70b_on_three_links_gets_three_verdicts(site: Site, transfer_ms: float, weight: str) -> None:
    """1,342,177,280 bytes of KV at 8 x 38, 25 and 3.125 GB/s against 390 ms of prefill."""
    found = verdict(site)
    assert found.worst_transfer_ms == pytest.approx(transfer_ms, abs=0.001)
    assert (found.transfer, found.disaggregate, found.reasons[0]) == (weight, weight == "hidden", SENTENCES[weight])
    assert found.basis == "arithmetic"
    assert any(reason.startswith("a rule of thumb on one typical request, not simulated") for reason in found.reasons)


def test_the_ttft_that_is_left_is_said_and_so_is_a_miss() -> None:
    said = verdict(H100, slo=Slo(ttft_ms=1000.0, tpot_ms=50.0)).reasons
    assert any("with the transfer 394.7 ms; 605.3 ms are left of the TTFT limit of 1000 ms" in line for line in said)
    missed = verdict(H100, slo=Slo(ttft_ms=390.0, tpot_ms=50.0))
    assert any("; separate or not, the TTFT limit of 390 ms is missed: try more" in line for line in missed.reasons)
    assert missed.disaggregate  # the transfer is no reason against it


def test_a_transfer_that_alone_makes_the_ttft_late_speaks_for_aggregated_serving() -> None:
    """390.3 ms of prefill and 4.4 ms of transfer: 394.7 ms."""
    late = verdict(H100, slo=Slo(ttft_ms=394.0, tpot_ms=50.0))
    assert (late.transfer, late.disaggregate) == ("hidden", False)
    assert late.reasons[0] == (
        "serve aggregated: the prefill takes 390.3 ms of the TTFT limit of 394 ms, and the 4.4 ms of moving the KV on "
        "the slowest path would exceed it"
    )
    assert any("; only without the transfer is the TTFT limit of 394 ms met" in line for line in late.reasons)
    assert verdict(H100, slo=Slo(ttft_ms=395.0, tpot_ms=50.0)).disaggregate


def test_every_number_has_a_kind_and_a_source() -> None:
    numbers = {one.what: one for one in verdict(H100).evidence}
    assert numbers["transfer"].value == pytest.approx(4.415, abs=0.001)
    assert numbers["prefill"].value == pytest.approx(PREFILL_MS)
    assert numbers["TTFT limit"].source == "slo.ttft_ms"
    assert "UCX" in numbers["rate prefill-0 to decode-0, the slowest path"].source


def test_an_unknown_speed_is_no_claim_and_no_rule() -> None:
    unknown = verdict(H100, workload=Workload(input_tokens=4096, output_tokens=256, requests_per_s=0.001))
    assert (unknown.disaggregate, unknown.transfer, unknown.against) == (False, None, ())
    assert "of 4096 tokens takes more than 44.2 ms; workload.prefill_tokens_per_s" in unknown.reasons[0]


PLAIN = Situation(
    transfer_ms=10.0,
    kv_bytes=1_000_000_000,
    rank_paths=8,
    input_tokens=4096,
    cached_tokens=0,
    prefill_ms=400.0,
    whole_prefill_ms=400.0,
    tpot_limit_ms=50.0,
)


@pytest.mark.parametrize(
    ("changes", "rule", "words"),
    [
        ({"transfer_ms": 40.0}, "slow link", "takes 10.0% of the prefill's time, not under 10%"),
        ({"prefill_ms": 45.0, "transfer_ms": 4.0}, "short prompts", "no longer than the TPOT limit of 50.0 ms"),
        ({"decode_step_ms": 400.0}, "short prompts", "no longer than a decode step of 400.0 ms"),
        ({"requests_per_s": 0.9, "workers": 4}, "low load", "computes prompts 9.0% of the time"),
        ({"rank_paths": 1, "whole_prefill_ms": 200.0}, "small model", "would need 50 GB/s for each GPU"),
        ({"mixed_step_ms": 50.0}, "loose SLO", "there is no interference to remove"),
        ({"cached_tokens": 2048}, "prefix reuse first", "50.0% of the input is a cached prefix; only 2048 tokens"),
    ],
)
def test_each_rule_appears_when_it_applies(changes: dict[str, Any], rule: str, words: str) -> None:
    case = {field: getattr(PLAIN, field) for field in PLAIN.__dataclass_fields__}
    assert rules_against(PLAIN) == ()
    [found] = rules_against(Situation(**{**case, **changes}))
    assert found.rule == rule
    assert words in found.line


@pytest.mark.parametrize(
    "changes",
    [
        {"transfer_ms": 39.9},
        {"prefill_ms": 101.0},
        {"decode_step_ms": 399.0},
        {"requests_per_s": 1.0, "workers": 4},
        {"rank_paths": 1, "whole_prefill_ms": 264.0},
        {"mixed_step_ms": 50.1},
        {"cached_tokens": 2047},
    ],
)
def test_no_rule_applies_a_little_before_its_limit(changes: dict[str, Any]) -> None:
    case = {field: getattr(PLAIN, field) for field in PLAIN.__dataclass_fields__}
    assert rules_against(Situation(**{**case, **changes})) == ()


def test_one_gpu_is_a_rule_of_its_own() -> None:
    error = PlacementError("2 workers need 2 GPUs, and partition p has 1 (1 nodes)", remedy="use a larger partition")
    assert cannot_be_separate(error, gpus=1).against == ("one GPU",)
    assert cannot_be_separate(error, gpus=2).against == ()
    assert cannot_be_separate(error).reasons == (
        "serve aggregated: prefill and decode cannot be placed apart: " + error.message,
        error.remedy,
    )


def test_one_gpu_of_the_site_is_seen_by_place() -> None:
    node = H100.node_types["hgx-h100"]
    changes = {"gpu": node.gpu.model_copy(update={"count": 1}), "nics": node.nics[:1], "nvlink": ()}
    site = H100.model_copy(
        update={
            "node_types": {"hgx-h100": node.model_copy(update=changes)},
            "nodes": (H100.nodes[0].model_copy(update={"hosts": "h01"}),),
            "partitions": {"gpu": H100.partitions["gpu"].model_copy(update={"hosts": "h01"})},
            "switches": (H100.switches[0].model_copy(update={"hosts": "h01", "uplink": None}),),
        }
    )
    small = LLAMA_70B.model_copy(update={"weights_bytes": 1_000_000_000})
    pools = tuple(Pool(role=role, workers=1) for role in (Role.PREFILL, Role.DECODE, Role.AGGREGATED))
    plan = place(fabric=fabric_of(site), site=site, shape=small, service=service(pools=pools))
    assert (plan.mode, plan.verdict.against) == ("aggregated", ("one GPU",))


@given(st.floats(0.0001, 100.0))
def test_a_longer_transfer_never_weighs_less(share: float) -> None:
    order = ["hidden", "visible", "longer than the prefill"]
    assert order.index(weight_of(share)) <= order.index(weight_of(share * 1.5))
    assert (weight_of(share) == "hidden") == (share < 0.1)
