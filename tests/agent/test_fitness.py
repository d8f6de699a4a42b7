"""A node that is unfit refuses itself, and a job goes on without it as far as it has spares."""

import asyncio
from pathlib import Path

import pytest

from hpcserve.agent.fitness import refusal_of, unfit_nodes
from hpcserve.agent.life import fresh_generation
from hpcserve.discovery import await_records, write_record
from hpcserve.errors import ServiceError
from hpcserve.nouns import EngineFacts, GrantedNode, NodeRefusal, Service, Site
from hpcserve.site import load_site
from tests.synthetic import service

LIFE = "42.0"

ELSEWHERE = """
schema: hpcserve.site/1
name: elsewhere
description: a node on networks that this host has no address on
node_types:
  slot:
    cores: 8
    memory_gib: 15.0
    gpu: {model: cpu, count: 1, memory_gib: 15.0}
    nics:
      - name: lo
        kind: ethernet
        rate: {nominal_gb_per_s: 0.1, efficiency: 0.9, source: invented}
        gpus: [0]
    host_path: {nominal_gb_per_s: 0.1, efficiency: 0.9, source: invented}
nodes:
  - {hosts: "n[1-3]", type: slot}
partitions: {}
switches:
  - {name: leaf, hosts: "n[1-3]"}
networks:
  control: {subnet: 198.51.100.0/24}
  data: {interface: lo}
slurm: null
transport:
  ucx: {UCX_TLS: tcp}
runtimes:
  hpcserve: {kind: none}
paths: {jobs: /var/tmp/j, models: /var/tmp/m, cache: /var/tmp/c}
"""


@pytest.fixture
def site() -> Site:
    return load_site(ELSEWHERE, source="site.yaml")


def _service(spares: int) -> Service:
    return service().model_copy(update={"spares": spares})


def _refusal(job: Path, site: Site, *, life: str = LIFE, spares: int = 1) -> NodeRefusal | None:
    (job / "nodes").mkdir(exist_ok=True)
    return asyncio.run(refusal_of(job, "n1", life, site=site, service=_service(spares), environment={}))


def _reported(job: Path, name: str) -> None:
    (job / "nodes").mkdir(exist_ok=True)
    node = GrantedNode(
        name=name,
        hostname=name,
        control_address="127.0.0.1",
        data_address="127.0.0.1",
        cores=(0,),
        gpus=(),
        engine=EngineFacts(name="sim", version="1", platform="simulated", kv_connectors=(), nixl_version=None),
        ports=(),
        agent_pid=1,
        generation=fresh_generation(LIFE),
    )
    write_record(job / "nodes" / f"{name}.json", node)


def _refused(job: Path, name: str, life: str = LIFE) -> None:
    (job / "refused").mkdir(exist_ok=True)
    write_record(job / "refused" / f"{name}.json", NodeRefusal(node=name, life=life, reasons=("gpus: 7 of 8",)))


def test_an_unfit_node_is_recorded_with_what_is_wrong_and_stays_so_for_this_life(tmp_path: Path, site: Site) -> None:
    first = _refusal(tmp_path, site)
    assert first is not None
    assert first.reasons[0].startswith("networks: no address on the control network (198.51.100.0/24)")
    assert _refusal(tmp_path, site) == first
    assert unfit_nodes(tmp_path, LIFE, spare=1) == ("n1",)
    assert unfit_nodes(tmp_path, "43.0", spare=0) == ()


def test_without_spares_the_job_fails_at_once_with_the_finding(tmp_path: Path, site: Site) -> None:
    with pytest.raises(ServiceError, match=r"n1 is unfit to serve: networks: no address .* `spares: 1`"):
        _refusal(tmp_path, site, spares=0)


def test_a_node_whose_workers_run_already_is_not_judged_again(tmp_path: Path, site: Site) -> None:
    _reported(tmp_path, "n1")
    assert _refusal(tmp_path, site) is None
    assert _refusal(tmp_path, site, life="43.0") is not None


def test_more_unfit_nodes_than_spares_are_named_with_their_reasons(tmp_path: Path) -> None:
    _refused(tmp_path, "n1")
    _refused(tmp_path, "n2")
    _refused(tmp_path, "n3", life="41.0")
    assert unfit_nodes(tmp_path, LIFE, spare=2) == ("n1", "n2")
    with pytest.raises(ServiceError, match=r"2 granted nodes are unfit, 1 were to spare: n1: gpus.*n2: gpus"):
        unfit_nodes(tmp_path, LIFE, spare=1)


def test_the_head_awaits_the_fit_nodes_only(tmp_path: Path) -> None:
    _reported(tmp_path, "n1")
    _reported(tmp_path, "n3")
    _refused(tmp_path, "n2")
    found = asyncio.run(
        await_records(
            tmp_path,
            "nodes",
            ("n1", "n2", "n3"),
            GrantedNode,
            deadline_s=60,
            excused=lambda: unfit_nodes(tmp_path, LIFE, spare=1),
        )
    )
    assert set(found) == {"n1", "n3"}
    with pytest.raises(ServiceError, match="0 were to spare"):
        asyncio.run(
            await_records(
                tmp_path,
                "nodes",
                ("n1", "n2", "n3"),
                GrantedNode,
                deadline_s=60,
                excused=lambda: unfit_nodes(tmp_path, LIFE, spare=0),
            )
        )
