"""One job for each site and sample service, from texts alone: shipped sites, and one of this folder's own."""

import json
from dataclasses import dataclass
from pathlib import Path

from hpcserve.draw import Measured, paths_table, plan_map, site_tree, sketch_of
from hpcserve.engines import adapter_for, peer_gpus, transfer_rates
from hpcserve.fabric import Fabric, fabric_of
from hpcserve.model import shape_of
from hpcserve.nouns import Allocation, EngineFacts, GrantedGpu, GrantedNode, Job, Plan, Service, Site
from hpcserve.placement import place
from hpcserve.render import TEMPLATE_NAMES, render_job, render_worker
from hpcserve.site import hosts_of, load_service, load_site

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TEMPLATES = {name: (ROOT / "job_templates" / name).read_text(encoding="utf-8") for name in TEMPLATE_NAMES}
OWN_SITES = tuple(sorted(path.stem for path in (HERE / "own_sites").glob("*.yaml")))
SITES = tuple(sorted(path.stem for path in (ROOT / "site_configs").glob("*.yaml")))
CASES = tuple(sorted(path.stem for path in (HERE / "services").glob("*.yaml")))
KEYS = {"api.key": "a" * 64, "engine.key": "e" * 64}


def onebox_with(partitions: str) -> str:
    """The site of the one-machine cluster with other partitions, each line of them indented."""
    before, rest = (ROOT / "site_configs" / "onebox.yaml").read_text(encoding="utf-8").split("partitions:\n")
    return f"{before}partitions:\n{partitions}\n{rest[rest.index('switches:') :]}"


CONFIGS = {
    "smollm2": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "torch_dtype": "bfloat16",
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 8192,
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "torch_dtype": "bfloat16",
    },
}
CONFIGS["llama8b"] = CONFIGS["llama"] | {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
WEIGHTS_BYTES = {"smollm2": 269_060_552, "llama": 141_107_412_992, "llama8b": 16_060_522_496}


@dataclass(frozen=True, kw_only=True)
class Case:
    site: Site
    service: Service
    plan: Plan
    granted: Plan
    allocation: Allocation
    job: Job
    scripts: dict[str, str]
    """Everything that a person would read, by path in the job directory."""


def case(name: str) -> Case:
    site_name, _, _service = name.partition(".")
    sites = HERE / "own_sites" if site_name in OWN_SITES else ROOT / "site_configs"
    site_text = (sites / f"{site_name}.yaml").read_text(encoding="utf-8")
    service_text = (HERE / "services" / f"{name}.yaml").read_text(encoding="utf-8")
    site = load_site(site_text, source=f"{site_name}.yaml")
    service = load_service(service_text, source=f"{name}.yaml", site=site)
    shape = shape_of(
        json.dumps(CONFIGS[service.served_name]),
        name=service.served_name,
        source="config.json",
        weights_bytes=WEIGHTS_BYTES[service.served_name],
    )
    fabric = fabric_of(site)
    plan = place(fabric=fabric, site=site, shape=shape, service=service)
    directory = f"/shared/jobs/{service.name}-1"
    job = render_job(
        plan=plan,
        site=site,
        service=service,
        texts={"service.yaml": service_text, "site.yaml": site_text},
        templates=TEMPLATES,
        directory=directory,
        python_folder="/opt/hpcserve/bin",
        launcher="local" if site.slurm is None else "slurm",
        keys=KEYS,
    )
    allocation = _allocation(site, service, plan)
    granted = place(fabric=fabric, site=site, shape=shape, service=service, allocation=allocation, asked=plan)
    scripts = {
        file.path: file.text
        for file in job.files
        if not file.path.startswith(("templates/", "keys/")) and not file.path.endswith(".yaml")
    }
    scripts["plan.txt"] = _shown(plan, fabric)
    for worker in granted.workers:
        command = adapter_for(service.engine).command(
            worker=worker,
            service=service,
            site=site,
            node=allocation.node(worker.node),
            model_dir=f"/models/{service.served_name}",
            peers=peer_gpus(granted, worker),
            rates=transfer_rates(granted, allocation, worker),
        )
        file = render_worker(
            worker=worker,
            command=command,
            engine=service.engine,
            site=site,
            templates=TEMPLATES,
            directory=directory,
            why="\n".join(granted.verdict.reasons),
        )
        scripts[file.path] = file.text
    return Case(site=site, service=service, plan=plan, granted=granted, allocation=allocation, job=job, scripts=scripts)


def _shown(plan: Plan, fabric: Fabric) -> str:
    """The plan as a person reads it before anything is submitted."""
    reasons = "".join(f"{reason}\n" for reason in plan.verdict.reasons)
    return f"{plan_map(plan, leaf_of=fabric.leaves_named)}\n{paths_table(plan)}\n{reasons}"


def shown_site(name: str) -> str:
    """A shipped site as `hpcserve site show` prints it."""
    text = (ROOT / "site_configs" / f"{name}.yaml").read_text(encoding="utf-8")
    return site_tree(sketch_of(load_site(text, source=name)), Measured())


def _allocation(site: Site, service: Service, plan: Plan) -> Allocation:
    """The nodes that were asked for, as their agents would find them."""
    has_gpus = any(kind.gpu.model != "cpu" for kind in site.node_types.values())
    facts = EngineFacts(
        name=service.engine,
        version="0.32.0",
        platform="simulated" if service.engine == "sim" else "cuda" if has_gpus else "cpu",
        kv_connectors=("NixlConnector",),
        nixl_version="1.0.0",
    )
    nodes = []
    for number, name in enumerate(plan.nodes, start=1):
        kind = hosts_of(site)[name]
        gpus = tuple(
            GrantedGpu(index=index, uuid=f"GPU-{name}-{index}" if has_gpus else None) for index in range(kind.gpu.count)
        )
        nodes.append(
            GrantedNode(
                name=name,
                hostname=name,
                control_address=f"198.18.77.{number}",
                data_address=f"198.19.77.{number}",
                cores=tuple(range(kind.cores)),
                gpus=gpus,
                engine=facts,
                ports=tuple((20000 + 100 * block, 16) for block in range(kind.gpu.count + 1)),
                agent_pid=100 + number,
                generation="4242.0-0",
            )
        )
    return Allocation(nodes=tuple(nodes))
