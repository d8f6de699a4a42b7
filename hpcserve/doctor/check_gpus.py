"""Checks of the GPUs of a node, and of NVLink in it and across nodes."""

import re
from collections.abc import Iterator

from hpcserve.doctor.evidence import Evidence, Wanted
from hpcserve.doctor.fabric_words import has_gpus
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning
from hpcserve.nouns import NvlinkDomain
from hpcserve.site import expand_hosts

__all__ = ["gpu_errors", "gpu_leftovers", "gpus", "nvlink", "nvlink_domain"]

_MEMORY_SHARE = 0.9
"""ECC and the driver keep some of the memory that a data sheet gives."""

_LEFT_GIB = 2.0
"""An idle GPU with persistence and MPS uses well below 1 GiB."""

_NO_GPU = "the site file gives this node no GPU"
_ZERO_UUID = "00000000-0000-0000-0000-000000000000"


def gpus(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether the node has as many GPUs as the site file says, of that model and memory."""
    if not has_gpus(wanted):
        yield not_applicable(_NO_GPU)
        return
    kind = wanted.kind.gpu
    if seen.gpus_unseen:
        yield warning(
            f"the GPUs were not seen: {seen.gpus_unseen}",
            why="whether they are as the site file says is not known; each start of an engine waits as long",
            remedy="switch persistence mode on (nvidia-persistenced); see `nvidia-smi` on that node",
        )
        return
    if seen.gpu_trouble:
        yield failure(
            f"the GPUs cannot be asked: {seen.gpu_trouble}",
            why="no worker can start",
            remedy="see `nvidia-smi` on that node; drain it where the driver is not well",
        )
        return
    expected = _expected(seen, kind.count)
    if len(seen.gpus) not in expected:
        yield failure(
            f"{len(seen.gpus)} GPUs, the site file says {kind.count}",
            why="workers are placed on GPUs that are not there",
            remedy="see `nvidia-smi -L` and the kernel's log (Xid); or `gpu.count` and how the site asks for GPUs",
        )
    other = sorted({gpu.name for gpu in seen.gpus if not _is_model(kind.model, gpu.name)})
    if other:
        yield warning(
            f"{', '.join(other)}, the site file says {kind.model}",
            why="memory, speed and NVLink rates of the plan are those of another GPU",
            remedy="correct `gpu.model` in the site file",
        )
    short = [
        gpu for gpu in seen.gpus if gpu.memory_gib is not None and gpu.memory_gib < _MEMORY_SHARE * kind.memory_gib
    ]
    if short:
        yield failure(
            f"GPU {', '.join(str(gpu.index) for gpu in short)} has {short[0].memory_gib:.0f} GiB, the site file says"
            f" {kind.memory_gib:g}",
            why="weights and KV that were planned for it do not fit",
            remedy="correct `gpu.memory_gib`, or see whether it is cut into MIG instances",
        )
    if len(seen.gpus) in expected and not other and not short:
        yield fine("GPUs are as the site file says")


def _expected(seen: Evidence, count: int) -> set[int]:
    """How many GPUs may be seen: all, or those that Slurm granted where it hides the others (ConstrainDevices)."""
    granted = seen.environment.get("SLURM_GPUS_ON_NODE", "")
    return {count, int(granted)} if granted.isdigit() and 0 < int(granted) <= count else {count}


def _is_model(named: str, printed: str) -> bool:
    """Whether `h100-sxm` may be what nvidia-smi calls `NVIDIA H100 80GB HBM3`: the word with the number decides."""
    words, seen = (re.findall(r"[a-z0-9]+", text.lower()) for text in (named, printed))
    numbered = [word for word in words if any(letter.isdigit() for letter in word)]
    return (numbered or words)[0] in seen if words else True


def gpu_errors(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """GPUs whose memory has had errors that ECC could not correct."""
    bad = [gpu for gpu in seen.gpus if gpu.uncorrected_errors]
    for gpu in bad:
        yield failure(
            f"GPU {gpu.index} has had {gpu.uncorrected_errors} uncorrected memory errors since it was reset",
            why="the engine on it dies sooner or later, or computes wrong tokens",
            remedy="drain the node, reset the GPU, replace it where they come back",
        )
    if not bad:
        yield _good(seen, wanted, "no uncorrected memory errors")


def gpu_leftovers(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """GPUs whose memory is in use before anything was started."""
    used = [gpu for gpu in seen.gpus if (gpu.used_gib or 0) > _LEFT_GIB]
    if used:
        yield warning(
            "; ".join(f"GPU {gpu.index} has {gpu.used_gib:.0f} GiB in use" for gpu in used),
            why="what a dead engine's peer still maps stays taken: the next engine finds no room",
            remedy="end what uses it (`nvidia-smi`); where nothing does, restart the peers or reset the GPU",
        )
    else:
        yield _good(seen, wanted, "the GPUs' memory is free")


def _good(seen: Evidence, wanted: Wanted, what: str) -> Said:
    """That nothing was found, as far as there was something to look at."""
    if not has_gpus(wanted):
        return not_applicable(_NO_GPU)
    return not_applicable("the GPUs were not seen") if seen.gpus_unseen else fine(what)


def nvlink(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether GPUs that the site file puts into one island are joined by NVLink."""
    islands = wanted.kind.nvlink
    if not islands:
        yield not_applicable("the site file gives this node no NVLink")
        return
    if seen.nvlinks is None or len(seen.gpus) != wanted.kind.gpu.count:
        yield not_applicable("`nvidia-smi topo -m` could not be asked about all GPUs")
        return
    missing = [
        (one, other)
        for island in islands
        for at, one in enumerate(sorted(island.gpus))
        for other in sorted(island.gpus)[at + 1 :]
        if (one, other) not in seen.nvlinks
    ]
    if missing:
        rate = next((_rate(island.rate.gb_per_s) for island in islands if not island.rate.unknown), "NVLink's rate")
        yield failure(
            "no NVLink between GPUs " + ", ".join(f"{one}-{other}" for one, other in missing[:8]),
            why=f"tensor parallelism and KV between them go over PCIe instead of {rate}",
            remedy="see `nvidia-smi nvlink -s` and the fabric manager; or correct `nvlink` in the site file",
        )
    else:
        yield fine("NVLink joins the GPUs that the site file says")


def _rate(gb_per_s: float) -> str:
    return f"{gb_per_s:.3g} GB/s"


def nvlink_domain(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether the node's GPUs are in the NVLink domain of the site file, registered, and may import memory of peers."""
    domain = _domain_of(wanted)
    if domain is None:
        yield not_applicable("the site file puts this node into no NVLink domain")
        return
    if seen.nvlink_fabric is None:
        yield not_applicable("nvidia-smi did not tell of the NVLink fabric in time")
        return
    why = "KV across nodes of the domain fails, or goes over the NICs instead of NVLink"
    if not seen.nvlink_fabric:
        yield failure(
            "nvidia-smi tells of no NVLink fabric",
            why=why,
            remedy="see the fabric manager and the driver; or correct `nvlink_domains` in the site file",
        )
        return
    wrong = False
    for index, gpu in enumerate(seen.nvlink_fabric):
        if gpu.state.lower() != "completed" or gpu.cluster_uuid in {"", _ZERO_UUID}:
            wrong = True
            yield failure(
                f"GPU {index}: fabric state {gpu.state or 'unknown'}, cluster UUID {gpu.cluster_uuid or 'none'}",
                why=why,
                remedy="see the fabric manager (`nvidia-smi -q`, section Fabric)",
            )
        elif _differs(domain.cluster_uuid, gpu.cluster_uuid) or _differs(domain.clique, gpu.clique):
            wrong = True
            yield failure(
                f"GPU {index} is in clique {gpu.clique} of {gpu.cluster_uuid}, the site file says {domain.name}",
                why=why,
                remedy="correct `nvlink_domains` in the site file (`hpcserve site import`)",
            )
    if not seen.imex_channel:
        wrong = True
        yield failure(
            "no IMEX channel (/dev/nvidia-caps-imex-channels)",
            why=why,
            remedy="start nvidia-imex on all nodes of the domain and create channel 0 (Slurm: switch/nvidia_imex)",
        )
    if not wrong:
        yield fine(f"NVLink domain {domain.name} is as the site file says")


def _domain_of(wanted: Wanted) -> NvlinkDomain | None:
    return next((one for one in wanted.site.nvlink_domains if wanted.node in expand_hosts(one.hosts)), None)


def _differs(said: object, seen: str) -> bool:
    return said is not None and str(said).lower() != seen.lower()
