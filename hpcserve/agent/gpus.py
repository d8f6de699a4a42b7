"""Which of a node's GPUs were granted, numbered as the site numbers them."""

from collections.abc import Mapping, Sequence

from hpcserve.errors import ServiceError
from hpcserve.nouns import GrantedGpu, Noun

__all__ = ["SMI_COMMAND", "SeenGpu", "granted_gpus", "granted_slots", "seen_gpus"]

SMI_COMMAND = ("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader,nounits")

_STEP_GPUS = "SLURM_STEP_GPUS"
_JOB_GPUS = "SLURM_JOB_GPUS"
"""srun(1), sbatch(1): the numbers of the GPUs on this node that the step or job was given, of all that the node has."""

_FIELDS = 3


class SeenGpu(Noun):
    """One GPU as nvidia-smi shows it; it counts from 0 over the GPUs that it is allowed to see."""

    index: int
    uuid: str
    bus_id: str


def seen_gpus(smi_output: str) -> tuple[SeenGpu, ...]:
    """The rows that nvidia-smi printed, in its order (by PCI bus); raises ServiceError with the line that is none."""
    found = []
    for line in smi_output.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != _FIELDS or not fields[0].isdigit():
            raise ServiceError(f"nvidia-smi said {line.strip()!r}", remedy="see what nvidia-smi prints on that node")
        found.append(SeenGpu(index=int(fields[0]), uuid=fields[1], bus_id=fields[2]))
    return tuple(found)


def _granted_numbers(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """The numbers that Slurm granted on this node, None where it does not say (no Slurm, or whole nodes)."""
    text = environment.get(_STEP_GPUS) or environment.get(_JOB_GPUS)
    if not text:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return None
        numbers += range(int(first), int(last or first) + 1)
    return tuple(sorted(numbers))


def granted_slots(environment: Mapping[str, str], *, count: int) -> tuple[GrantedGpu, ...]:
    """CPU slots: of the node's `count`, those that Slurm granted as GPUs, or all where it does not count them."""
    numbers = _granted_numbers(environment)
    on_node = environment.get("SLURM_GPUS_ON_NODE", "")
    if numbers is None:
        numbers = tuple(range(min(count, int(on_node)) if on_node.isdigit() else count))
    return tuple(GrantedGpu(index=number, uuid=None) for number in numbers if number < count)


def granted_gpus(seen: Sequence[SeenGpu], environment: Mapping[str, str], *, count: int) -> tuple[GrantedGpu, ...]:
    """The granted GPUs of a node that has `count`, by the node's own numbers.

    Where Slurm constrains devices (cgroup.conf, ConstrainDevices), nvidia-smi sees the granted ones only and counts
    them from 0; where it does not, it sees all. Both are by PCI bus, which is how Slurm numbers them (gres.conf,
    AutoDetect). Raises ServiceError where what is seen cannot be what was granted.
    """
    numbers = _granted_numbers(environment)
    if numbers is None or len(seen) == count:
        wanted = numbers if numbers is not None else _visible(seen, environment)
        return tuple(
            GrantedGpu(index=gpu.index, uuid=gpu.uuid, bus_id=gpu.bus_id) for gpu in seen if gpu.index in wanted
        )
    if len(seen) != len(numbers):
        raise ServiceError(
            f"Slurm granted {len(numbers)} GPUs of this node, nvidia-smi sees {len(seen)}, the site file says {count}",
            remedy="compare `nvidia-smi -L` inside a job with node_types in the site file",
        )
    return tuple(
        GrantedGpu(index=number, uuid=gpu.uuid, bus_id=gpu.bus_id) for number, gpu in zip(numbers, seen, strict=True)
    )


def _visible(seen: Sequence[SeenGpu], environment: Mapping[str, str]) -> tuple[int, ...]:
    """Indexes that CUDA_VISIBLE_DEVICES leaves, by index or UUID; all where it is not set."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return tuple(gpu.index for gpu in seen)
    named = [word.strip() for word in text.split(",")]
    return tuple(gpu.index for gpu in seen if str(gpu.index) in named or gpu.uuid in named)
