"""What stands before each command that runs in a container of the site: Apptainer's words, or Pyxis's by srun."""

from collections.abc import Iterable

from hpcserve.errors import PlacementError
from hpcserve.nouns import Runtime, RuntimeKind, Site
from hpcserve.render.shell import ShellText, home_path, quoted, words

__all__ = ["container_words"]

# Pyxis enters a container from srun. The step overlaps the agent's, on its node and on the cores that the worker was
# bound to; it has all CPUs and GPUs of the job there (srun(1), --exact and --gres), so the worker's own GPUs are said
# again inside. What an image sets goes before what comes from outside, except for the names in --container-env (pyxis
# wiki, Usage; Pyxis 0.20 or later); names only, as arguments can be read by everybody on the node.
_PYXIS = """\
image=$1 mounts=$2; shift 2
keep=$(printf "%s," "${!UCX_@}" "${!FI_@}" "${!NIXL_@}" "${!VLLM_@}" "${!NCCL_@}" "${!GLOO_@}" "${!OMP_@}" \
"${!HPCSERVE_@}")
own=()
if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then own=(env "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"); fi
cores=$(taskset -p $$)
exec srun --overlap --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" --mem=0 --gpu-bind=none \
--cpu-bind="mask_cpu:0x${cores##* }" --container-image="$image" --container-mounts="$mounts" --container-mount-home \
--container-env="${keep%,}" "${own[@]}" "$@"
"""


def container_words(runtime: Runtime, *, site: Site, folders: Iterable[str]) -> ShellText:
    """The words before a command: it sees `folders`, the runtime's `mounts`, the GPUs and the user's home.

    Empty for a runtime that is no container. Raises PlacementError for Pyxis where there is no Slurm, or a folder whose
    name it cannot carry.
    """
    mounts = [*dict.fromkeys(folders), *runtime.mounts]
    if runtime.path is None:
        return ShellText("")
    if runtime.kind == RuntimeKind.APPTAINER:
        # The home directory is mounted by Apptainer itself (apptainer.conf: `mount home = yes`).
        binds = [f"--bind {_mount(mount)}" for mount in mounts]
        return ShellText(" ".join([words(["apptainer", "exec", *_gpu_flag(site)]), *binds, home_path(runtime.path)]))
    if runtime.kind == RuntimeKind.PYXIS:
        if site.slurm is None:
            raise PlacementError(
                f"site {site.name} has no Slurm, and Pyxis enters containers by srun",
                remedy="use kind apptainer or venv",
            )
        return ShellText(
            " ".join(
                [
                    words(["bash", "-c", _PYXIS, "pyxis"]),
                    home_path(runtime.path),
                    ",".join(_pyxis_mount(mount) for mount in mounts) or "''",
                ]
            )
        )
    return ShellText("")


def _mount(mount: str) -> ShellText:
    """`/scratch` or `/from:/to` as one shell word."""
    return ShellText(":".join(home_path(part) if part.startswith("~") else quoted(part) for part in mount.split(":")))


def _pyxis_mount(mount: str) -> ShellText:
    """The same as Pyxis's list takes it: always from and to."""
    if "," in mount:
        raise PlacementError(
            f"`{mount}` holds a comma, which Pyxis takes as the end of a mount", remedy="use another folder"
        )
    return _mount(mount if ":" in mount else f"{mount}:{mount}")


def _gpu_flag(site: Site) -> tuple[str, ...]:
    """Apptainer's option for the site's GPUs (apptainer exec(1): `--nv` NVIDIA, `--rocm` AMD); none for CPU slots."""
    models = {kind.gpu.model.lower() for kind in site.node_types.values()}
    if models == {"cpu"}:
        return ()
    if any(model.startswith(("amd", "mi", "instinct")) for model in models):
        return ("--rocm",)
    return ("--nv",)
