"""What Slurm's commands say on the login node. May touch: those commands; submits nothing (`sbatch --test-only`)."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcserve.doctor.command import Ran, run_command
from hpcserve.doctor.evidence import PartitionTry, SlurmSeen
from hpcserve.errors import InputError
from hpcserve.nouns import Site, SlurmDialect
from hpcserve.site import expand_hosts, hosts_of
from hpcserve.site.slurm_text import parse_show_config

__all__ = ["job_options", "look_at_slurm", "parse_configuration", "parse_states"]

_COMMANDS = ("sbatch", "srun", "scontrol", "sinfo")
_ASK_S = 30.0


def look_at_slurm(site: Site, *, account: str | None, environment: Mapping[str, str]) -> SlurmSeen:
    """Configuration, states of nodes, and whether each partition takes a job of one node for one minute."""
    missing = tuple(command for command in _COMMANDS if shutil.which(command) is None)
    nothing: dict[str, str] = {}
    if missing or site.slurm is None:
        return SlurmSeen(missing=missing, configuration=nothing, config_trouble="", node_states=nothing, tries=())
    config = _configuration(environment)
    if config.trouble:
        return SlurmSeen(
            missing=(), configuration=nothing, config_trouble=config.trouble, node_states=nothing, tries=()
        )
    states = run_command(("sinfo", "--noheader", "--Node", "--format=%N %t"), timeout_s=_ASK_S, environment=environment)
    return SlurmSeen(
        missing=(),
        configuration=parse_configuration(config.output),
        config_trouble="",
        node_states=parse_states(states.output),
        tries=tuple(
            _tried(site, site.slurm, partition, account=account, environment=environment)
            for partition in site.partitions
        ),
    )


def _configuration(environment: Mapping[str, str]) -> Ran:
    """What `scontrol show config` prints; not asked where SLURM_CONF names no file, as it would look for a minute."""
    named = environment.get("SLURM_CONF")
    if named and not Path(named).exists():
        return Ran(output="", trouble=f"SLURM_CONF is {named}, which is not there")
    return run_command(("scontrol", "show", "config"), timeout_s=_ASK_S, environment=environment)


def parse_configuration(text: str) -> dict[str, str]:
    """The settings that `scontrol show config` prints; none in a text that has none."""
    try:
        return dict(parse_show_config(text, "scontrol show config").settings)
    except InputError:
        return {}


def parse_states(text: str) -> dict[str, str]:
    """`NODE STATE` lines of sinfo; a node of several partitions has one state."""
    return {words[0]: words[1] for line in text.splitlines() if len(words := line.split()) > 1}


def job_options(site: Site, dialect: SlurmDialect, partition: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """How a job asks for all GPUs of these nodes in this site's dialect; the same words for sbatch and srun."""
    kinds = [hosts_of(site)[name] for name in nodes]
    count = min(kind.gpu.count for kind in kinds)
    gres = {kind.gpu.gres for kind in kinds}
    of_type = f":{next(iter(gres))}" if len(gres) == 1 and None not in gres else ""
    options = [f"--partition={partition}", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"]
    if dialect.gpu_request == "gres":
        options.append(f"--gres=gpu{of_type}:{count}")
    elif dialect.gpu_request == "gpus-per-node":
        options.append(f"--gpus-per-node={of_type[1:]}{':' if of_type else ''}{count}")
    said = site.partitions[partition].exclusive
    if dialect.exclusive if said is None else said:
        options += ["--exclusive", "--mem=0"]
    options += ["--ntasks-per-node=1", "--cpus-per-task=1"]
    return (*options, *(word for line in dialect.directives for word in shlex.split(line)))


def _tried(
    site: Site, dialect: SlurmDialect, partition: str, *, account: str | None, environment: Mapping[str, str]
) -> PartitionTry:
    first = expand_hosts(site.partitions[partition].hosts)[0]
    # any node of the partition will do: naming one that is down would be refused for that alone
    options = tuple(word for word in job_options(site, dialect, partition, (first,)) if "--nodelist" not in word)
    options += (f"--account={account}",) if account else ()
    asked = run_command(
        ("sbatch", "--test-only", "--time=1", *options, "--wrap=true"), timeout_s=_ASK_S, environment=environment
    )
    refusal = asked.trouble.replace("allocation failure: ", "") if asked.trouble else ""
    return PartitionTry(partition=partition, options=options, refusal=" ".join(refusal.split()))
