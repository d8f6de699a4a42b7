"""Two or three nodes all alike on rails, every small shape of service: exact, whatever may change places."""

from itertools import product

import pytest

from hpcserve.fabric import fabric_of
from hpcserve.nouns import Nic, NicKind, NvlinkIsland, Pool, Rate, Role, Site
from hpcserve.placement import place
from hpcserve.placement.bound import Bound, bound_of
from hpcserve.placement.candidate import Candidate
from hpcserve.placement.demand import workers_of
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import Prices
from tests.placement.brute import Brute, placed
from tests.placement.test_place import H100, LLAMA_70B, pools, service
from tests.strategies import Case

_SHAPES = [
    (prefill, prefill_ranks, decode, decode_ranks)
    for prefill, decode in ((1, 1), (2, 1), (1, 2), (2, 2))
    for prefill_ranks, decode_ranks in product((1, 2, 4), repeat=2)
    if prefill * prefill_ranks + decode * decode_ranks <= 8 and prefill_ranks + decode_ranks < 8
]


def site(rails: int, *, linked: bool) -> Site:
    """Three nodes of four GPUs, a leaf for each rail; two of the nodes in one unit, one in another."""
    rate = Rate(effective_gb_per_s=38.0, source="made")
    kind = H100.node_types["hgx-h100"]
    island = NvlinkIsland(gpus=(0, 1, 2, 3), rate=Rate(effective_gb_per_s=378.0, source="made"))
    kind = kind.model_copy(
        update={
            "gpu": kind.gpu.model_copy(update={"count": 4}),
            "nics": tuple(
                Nic(name=f"n{gpu}", kind=NicKind.INFINIBAND, rate=rate, rail=gpu % rails, gpus=(gpu,))
                for gpu in range(4)
            ),
            "nvlink": (island,) if linked else (),
            "host_path": Rate(effective_gb_per_s=10.0, source="made"),
        }
    )
    leaf = H100.switches[0].model_copy(update={"uplink": rate})
    return H100.model_copy(
        update={
            "node_types": {"made": kind},
            "nodes": (H100.nodes[0].model_copy(update={"hosts": "h[01-03]", "type": "made"}),),
            "partitions": {"gpu": H100.partitions["gpu"].model_copy(update={"hosts": "h[01-03]"})},
            "switches": (
                *(
                    leaf.model_copy(update={"name": f"{unit}r{rail}", "hosts": hosts, "rail": rail})
                    for unit, hosts in (("a", "h[01-02]"), ("b", "h03"))
                    for rail in range(rails)
                ),
                H100.switches[2].model_copy(update={"switches": f"ar[0-{rails - 1}],br[0-{rails - 1}]"}),
            ),
        }
    )


def bound_for(case: Case) -> Bound:
    """What the search would know without looking."""
    fabric = fabric_of(case.site)
    workers = workers_of(case.service, "disaggregated")
    candidates = [
        Candidate(name=name, gpus=(0, 1, 2, 3), cores=(0,), partition=case.service.partition) for name in fabric.nodes
    ]
    ground = Ground(fabric, candidates, workers=len(workers))
    tokens = case.service.workload.input_tokens
    prices = Prices(fabric, case.shape, tokens=tokens, distance=case.service.distance, ground=ground)
    return bound_of(workers, ground, prices)


@pytest.mark.parametrize("shape", [(2, 2, 2, 2), (3, 2, 3, 2), (4, 1, 4, 1)])
def test_the_bound_of_rails_is_met_by_mirrored_nodes(shape: tuple[int, int, int, int]) -> None:
    """Half of the nodes with prefill on the first rails, half on the last: no traffic less is possible."""
    made = site(4, linked=True)
    prefill, prefill_ranks, decode, decode_ranks = shape
    found = place(
        fabric=fabric_of(made),
        site=made,
        shape=LLAMA_70B.model_copy(update={"weights_bytes": None}),
        service=service(made, pools=pools(prefill, prefill_ranks, decode, decode_ranks)),
    )
    assert found.assignment is not None
    assert found.assignment.traffic_ms == found.assignment.traffic_at_least_ms


@pytest.mark.parametrize("rails", [1, 2, 4])
@pytest.mark.parametrize("linked", [True, False])
def test_every_small_shape_is_placed_at_the_least_cost(rails: int, linked: bool) -> None:
    made = site(rails, linked=linked)
    fabric = fabric_of(made)
    shape = LLAMA_70B.model_copy(update={"weights_bytes": None})
    for prefill, prefill_ranks, decode, decode_ranks in _SHAPES:
        pools = (
            Pool(role=Role.PREFILL, workers=prefill, tensor_parallel=prefill_ranks),
            Pool(role=Role.DECODE, workers=decode, tensor_parallel=decode_ranks),
        )
        case = Case(site=made, shape=shape, service=service(made, pools=pools))
        brute = Brute(case, fabric)
        if brute.count() > 4_000:
            continue
        plan = place(fabric=fabric, site=made, shape=shape, service=case.service)
        best = brute.best()
        assert best is not None
        assert brute.cost(placed(plan)) == best, case.service.pools
        bound = bound_for(case)
        assert bound.slowest_ns <= best[1], case.service.pools
        assert bound.traffic_ns <= best[2], case.service.pools
        assert bound.busiest_ns <= best[4], case.service.pools
