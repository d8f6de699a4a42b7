"""The examples of docs/placement.md, by the whole of `place`."""

from pathlib import Path

import pytest

from hpcserve.nouns import Mode, Nic, Rate, Site, Workload
from tests.placement.test_place import H100, LLAMA_70B, plan, pools

PAGE = Path(__file__).parents[2] / "docs" / "placement.md"
LOAD = Workload(input_tokens=4096, output_tokens=100, prefill_tokens_per_s=4096 / 0.390)


def one_nic(gb_per_s: float) -> Site:
    """h100-ib with one NIC for all GPUs of a node."""
    kind = H100.node_types["hgx-h100"]
    nic: Nic = kind.nics[0].model_copy(
        update={"gpus": tuple(range(8)), "rate": Rate(effective_gb_per_s=gb_per_s, source="made")}
    )
    return H100.model_copy(update={"node_types": {"hgx-h100": kind.model_copy(update={"nics": (nic,)})}})


@pytest.mark.parametrize(
    ("site", "ms", "share", "mode", "row"),
    [
        (H100, 4.415, 0.011, "disaggregated", "4.4 ms | 1.1 % | separate prefill and decode"),
        (one_nic(25.0), 53.69, 0.138, "aggregated", "53.7 ms | 13.8 % | serve aggregated, unless"),
        (one_nic(3.125), 429.5, 1.101, "aggregated", "429 ms | 110 % | serve aggregated: moving"),
    ],
    ids=["eight NDR rails", "one HDR NIC", "25 Gbit/s Ethernet"],
)
def test_three_paths_give_three_verdicts(site: Site, ms: float, share: float, mode: str, row: str) -> None:
    found = plan(site, LLAMA_70B, pools=pools(1, 8, 1, 8), mode=Mode.AUTO, workload=LOAD)
    assert found.verdict.worst_transfer_ms == pytest.approx(ms, rel=1e-3)
    assert found.verdict.prefill_ms == pytest.approx(390)
    assert (found.verdict.worst_transfer_ms or 0) / 390 == pytest.approx(share, rel=0.05)
    assert found.mode == mode
    said = row.rpartition("| ")[2].partition(":")[0].partition(",")[0]
    assert found.verdict.reasons[0].startswith(said)
    assert row in PAGE.read_text(encoding="utf-8")
