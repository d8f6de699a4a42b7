import pytest

from hpcserve.fabric import fabric_of
from hpcserve.nouns import Rank, Role
from hpcserve.simulate import Deployment, Failure, Lengths, Offered, Scheduling, Worker, deployment_of, simulate
from tests import synthetic
from tests.simulate import made

LATENCY = {role: made.latency() for role in Role}


def kv_bytes(tokens: int, ranks: int) -> int:
    return tokens * 23_040 // ranks


@pytest.mark.parametrize(("node", "transfer_ms"), [("node02", 98.7), ("node03", 491.5)])
def test_a_plans_transfer_takes_what_the_plan_says(node: str, transfer_ms: float) -> None:
    plan = synthetic.plan(decode_node=node)
    deployment = deployment_of(plan, fabric=fabric_of(synthetic.site()), latency=LATENCY, kv_bytes=kv_bytes)
    outcome = simulate(
        deployment, Offered(rate=1.0, requests=1, lengths=[Lengths(512, 16)]), slo=made.EASY, keep_records=True
    )
    (record,) = outcome.records
    assert record.transferred_at_ms is not None
    assert record.prefilled_at_ms is not None
    assert record.transferred_at_ms - record.prefilled_at_ms == pytest.approx(transfer_ms, rel=0.001)
    assert deployment.gpus == 2
    assert deployment.prefill_ms == plan.verdict.prefill_ms


def test_ranks_send_side_by_side() -> None:
    """Two ranks on one node share its port: each has half the bytes and half the rate."""
    plan = synthetic.plan()
    wide = [
        worker.model_copy(
            update={"tensor_parallel": 2, "ranks": (Rank(node=worker.node, gpus=(0, 1), nics=("data0",), cores=(0,)),)}
        )
        for worker in plan.workers
    ]
    deployment = deployment_of(
        plan.model_copy(update={"workers": tuple(wide)}),
        fabric=fabric_of(synthetic.site()),
        latency=LATENCY,
        kv_bytes=kv_bytes,
        scheduling={Role.PREFILL: Scheduling(token_budget=64)},
        decode_step_ms=7.0,
    )
    assert len(deployment.flows["prefill-0", "decode-0"]) == 2
    assert deployment.workers[0].scheduling.token_budget == 64
    assert deployment.decode_step_ms == 7.0
    outcome = simulate(deployment, Offered(rate=1.0, requests=1, lengths=[Lengths(512, 16)]), slo=made.EASY)
    assert outcome.transfer_ms.p50 == pytest.approx(98.7, rel=0.003)


def test_stages_send_their_layers_kv_side_by_side() -> None:
    """Two stages of one rank on one node share its port; three tenths of the KV are the first one's."""
    plan = synthetic.plan()
    staged = plan.model_copy(
        update={
            "workers": tuple(
                worker.model_copy(
                    update={"ranks": tuple(worker.ranks[0].model_copy(update={"gpus": (gpu,)}) for gpu in (0, 1))}
                )
                for worker in plan.workers
            )
        }
    )
    deployment = deployment_of(
        staged, fabric=fabric_of(synthetic.site()), latency=LATENCY, kv_bytes=kv_bytes, stage_shares=(0.3, 0.7)
    )
    assert [flow.share for flow in deployment.flows["prefill-0", "decode-0"]] == [0.3, 0.7]
    assert [(worker.gpus, worker.stages) for worker in deployment.workers] == [(2, 2), (2, 1)]
    outcome = simulate(deployment, Offered(rate=1.0, requests=1, lengths=[Lengths(512, 16)]), slo=made.EASY)
    assert outcome.transfer_ms.p50 == pytest.approx(98.7, rel=0.003)
    with pytest.raises(ValueError, match="zip"):
        deployment_of(staged, fabric=fabric_of(synthetic.site()), latency=LATENCY, kv_bytes=kv_bytes)


def test_an_aggregated_plan() -> None:
    deployment = deployment_of(
        synthetic.aggregated_plan(), fabric=fabric_of(synthetic.site()), latency=LATENCY, kv_bytes=kv_bytes
    )
    outcome = simulate(deployment, Offered(rate=1.0, requests=3, lengths=[Lengths(100, 2)]), slo=made.EASY)
    assert outcome.ok == 3
    assert outcome.links == ()


def test_deployments_that_cannot_be() -> None:
    plain = made.worker("a", Role.AGGREGATED)
    for wrong in (
        lambda: Deployment(workers=()),
        lambda: Deployment(workers=(plain, plain)),
        lambda: Deployment(workers=(plain,), failures=(Failure(worker="b", at_ms=0.0),)),
        lambda: Scheduling(token_budget=0),
        lambda: Worker(id="a", role=Role.AGGREGATED, latency=made.latency(), stages=2),
    ):
        with pytest.raises(ValueError, match=r"wanted|no workers"):
            wrong()
