"""On a fabric of two leaves, a choice that knows the paths serves more than one that does not: simulated."""

from dataclasses import replace
from typing import Any

import pytest

from hpcserve.fabric import Link
from hpcserve.nouns import Slo
from hpcserve.simulate import Deployment, Flow, Lengths, Offered, find_goodput
from tests.simulate import made

NEAR_GB_PER_S, FAR_GB_PER_S = 10.0, 1.0
"""A token's KV is 1 MB: 200 tokens take 20 ms within a leaf and 200 ms across, where all share one uplink."""
TRAFFIC = Offered(rate=1.0, requests=300, lengths=[Lengths(200, 20)])
SLO = Slo(ttft_ms=600.0, tpot_ms=100.0)


def two_leaves() -> Deployment:
    """A prefill and a decode worker on each of two leaves."""
    whole = made.pairs(2, 2)
    uplink = Link("spine", FAR_GB_PER_S, "made")
    ports = [Link(f"port{number}", NEAR_GB_PER_S, "made") for number in range(2)]
    flows = {
        (f"prefill-{p}", f"decode-{d}"): (Flow(links=(ports[d],) if p == d else (uplink, ports[d]), share=1.0),)
        for p in range(2)
        for d in range(2)
    }
    return replace(whole, flows=flows)


def goodput(*, blind: bool, monkeypatch: pytest.MonkeyPatch) -> float:
    with monkeypatch.context() as patch:
        if blind:

            def alike(*_: Any, **__: Any) -> float:
                return 100.0

            patch.setattr("hpcserve.simulate.router._alone_ms", alike)
        found = find_goodput(two_leaves(), TRAFFIC, slo=SLO, lowest=0.5, highest=20.0)
    assert found.goodput.bound == "crossing"
    assert found.goodput.request_rate is not None
    return found.goodput.request_rate


def test_knowing_the_paths_serves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    aware = goodput(blind=False, monkeypatch=monkeypatch)
    blind = goodput(blind=True, monkeypatch=monkeypatch)
    assert aware > 1.2 * blind
