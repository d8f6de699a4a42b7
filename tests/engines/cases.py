"""Workers whose commands are held by golden files: `python -m tests.engines.cases` writes the files anew."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcserve.engines import EngineCommand, adapter_for, peer_gpus
from hpcserve.nouns import (
    EngineFacts,
    GrantedGpu,
    GrantedNode,
    PlannedWorker,
    Pool,
    Rank,
    Role,
    Service,
    Site,
)
from hpcserve.site import load_site
from tests import synthetic

GOLDEN = Path(__file__).with_name("golden")
SITES = Path(__file__).parents[2] / "site_configs"
CPU = EngineFacts(
    name="vllm", version="0.32.0+cpu", platform="cpu", kv_connectors=("NixlConnector",), nixl_version="1.5.2"
)
CUDA = EngineFacts(
    name="vllm",
    version="0.32.0",
    platform="cuda",
    kv_connectors=("NixlConnector", "MultiConnector"),
    nixl_version="1.5.1",
    kv_options=("kv_load_failure_policy", "kv_lease_duration"),
)
SIM = EngineFacts(
    name="sim", version="0.1.0", platform="simulated", kv_connectors=("NixlConnector",), nixl_version=None
)


def node(name: str, engine: EngineFacts, *, gpus: int = 0, cores: int = 8) -> GrantedNode:
    """A granted node; with GPUs it has their UUIDs."""
    return GrantedNode(
        name=name,
        hostname=f"{name}.cluster",
        control_address="10.10.0.3",
        data_address="10.20.0.3",
        cores=tuple(range(cores)),
        gpus=tuple(GrantedGpu(index=index, uuid=f"GPU-{index:08d}-aaaa") for index in range(gpus)),
        engine=engine,
        ports=((21000, 8),),
        agent_pid=77,
        generation="g1",
    )


def worker(role: Role, node_name: str, *, gpus: tuple[int, ...], nics: tuple[str, ...]) -> PlannedWorker:
    """A worker with ports."""
    return PlannedWorker(
        id=f"{role.value}-0",
        role=role,
        ranks=(Rank(node=node_name, gpus=gpus, nics=nics, cores=(0, 1, 2, 3)),),
        tensor_parallel=len(gpus),
        port=21000,
        side_channel_port=21001,
    )


def service(**changes: Any) -> Service:
    """A service with arguments and variables at both places."""
    pools = (
        Pool(role=Role.PREFILL, workers=1, args=("--max-num-seqs", "8")),
        Pool(role=Role.DECODE, workers=1, args=("--no-enable-prefix-caching",), env={"OMP_NUM_THREADS": "3"}),
    )
    return synthetic.service(
        served_name="the model's name",
        args=("--max-model-len", "4096"),
        env={"VLLM_LOGGING_LEVEL": "INFO"},
        pools=pools,
        kv_lease_s=20,
        **changes,
    )


@functools.cache
def site(name: str) -> Site:
    """A shipped site."""
    path = SITES / f"{name}.yaml"
    return load_site(path.read_text(encoding="utf-8"), source=str(path))


def commands() -> Mapping[str, EngineCommand]:
    """The command of every case."""
    onebox, h100 = site("onebox"), site("h100-ib")
    vllm, sim = adapter_for("vllm"), adapter_for("sim")
    model = "/models/a model"
    cpu_prefill = worker(Role.PREFILL, "node01", gpus=(0,), nics=("data0",))
    cpu_decode = worker(Role.DECODE, "node03", gpus=(0,), nics=("data0",))
    aggregated = worker(Role.AGGREGATED, "node02", gpus=(0,), nics=("data0",))
    gpu_prefill = worker(Role.PREFILL, "h01", gpus=(2, 3), nics=("mlx5_2:1", "mlx5_3:1"))
    gpu_decode = worker(Role.DECODE, "h01", gpus=(0, 1), nics=("mlx5_0:1", "mlx5_1:1"))
    plan = synthetic.plan().model_copy(update={"workers": (gpu_prefill, gpu_decode)})
    return {
        "vllm-cpu-prefill": vllm.command(
            worker=cpu_prefill, service=service(), site=onebox, node=node("node01", CPU), model_dir=model
        ),
        "vllm-cpu-decode": vllm.command(
            worker=cpu_decode, service=service(), site=onebox, node=node("node03", CPU), model_dir=model
        ),
        "vllm-cpu-aggregated": vllm.command(
            worker=aggregated, service=service(), site=onebox, node=node("node02", CPU), model_dir=model
        ),
        "vllm-gpu-prefill": vllm.command(
            worker=gpu_prefill,
            service=service(),
            site=h100,
            node=node("h01", CUDA, gpus=8),
            model_dir=model,
            peers=peer_gpus(plan, gpu_prefill),
        ),
        "sim-decode": sim.command(
            worker=cpu_decode,
            service=service(engine="sim"),
            site=onebox,
            node=node("node03", SIM),
            model_dir=model,
            rates={"10.20.0.1:21001": 0.0239},
        ),
    }


def golden_text(command: EngineCommand) -> str:
    """The text of a golden file: one word or variable a line."""
    return json.dumps(command.model_dump(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, made in commands().items():
        (GOLDEN / f"{name}.json").write_text(golden_text(made), encoding="utf-8")
