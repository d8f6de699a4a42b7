"""What nvidia-smi and lspci print -> plain values. Every function takes text and touches nothing."""

from hpcserve.doctor.evidence import FabricSeen, Gpu
from hpcserve.errors import InputError
from hpcserve.site.gpu_text import parse_matrix, parse_report

__all__ = ["GPU_QUERY", "bridges_with_acs", "fabric_seen", "gpus_seen", "nvlinks_seen"]

GPU_QUERY = "index,name,memory.total,memory.used,ecc.errors.uncorrected.volatile.total"
"""nvidia-smi --help-query-gpu; memory in MiB with `nounits`."""

_MIB_PER_GIB = 1024


def gpus_seen(text: str) -> tuple[Gpu, ...]:
    """Rows of `--query-gpu=GPU_QUERY --format=csv,noheader,nounits`; what is no such row is left out."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == GPU_QUERY.count(",") + 1 and fields[0].isdigit():
            found.append(
                Gpu(
                    index=int(fields[0]),
                    name=fields[1],
                    memory_gib=_gib(fields[2]),
                    used_gib=_gib(fields[3]),
                    uncorrected_errors=int(fields[4]) if fields[4].isdigit() else None,
                )
            )
    return tuple(found)


def _gib(mebibytes: str) -> float | None:
    return int(mebibytes) / _MIB_PER_GIB if mebibytes.isdigit() else None


def nvlinks_seen(text: str) -> frozenset[tuple[int, int]] | None:
    """Pairs of GPUs that `nvidia-smi topo -m` shows joined by NVLink, the lower index first; None: it is no matrix."""
    try:
        return parse_matrix(text, "nvidia-smi topo -m").nvlinks
    except InputError:
        return None


def fabric_seen(text: str) -> tuple[FabricSeen, ...]:
    """The section Fabric of each GPU in `nvidia-smi -q`; none where the driver prints no such section."""
    try:
        gpus = parse_report(text, "nvidia-smi -q").gpus
    except InputError:
        return ()
    return tuple(
        FabricSeen(
            state=gpu.fabric.state or "",
            cluster_uuid=gpu.fabric.cluster_uuid or "",
            clique="" if gpu.fabric.clique is None else str(gpu.fabric.clique),
        )
        for gpu in gpus
        if gpu.fabric is not None
    )


def bridges_with_acs(text: str) -> tuple[str, ...] | None:
    """Bridges of `lspci -vvv` whose ACS redirects (ReqRedir+ or SrcValid+ in ACSCtl); None where it was not shown.

    Without root lspci prints `Capabilities: <access denied>`.
    """
    found: list[str] = []
    device, shown = "", False
    for line in text.splitlines():
        if line[:1].strip():
            device = line.split()[0]
        elif "ACSCtl:" in line:
            shown = True
            if "ReqRedir+" in line or "SrcValid+" in line:
                found.append(device)
    if not shown and "<access denied>" in text:
        return None
    return tuple(dict.fromkeys(found))
