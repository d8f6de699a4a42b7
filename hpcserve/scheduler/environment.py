"""The environment that Slurm's commands and local jobs are started with."""

from collections.abc import Mapping

__all__ = ["clean_environment"]

_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
"""What finds the controller and proves who asks: set on purpose, on login nodes too."""

_OF_THE_CALLER = ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_")
"""Options in disguise: the INPUT ENVIRONMENT VARIABLES of sbatch(1), srun(1), squeue(1), sacct(1), scancel(1)."""

_OF_A_JOB = frozenset({"HPCSERVE_NODE", "HPCSERVE_HEAD", "HPCSERVE_NODES", "HPCSERVE_JOB"})
"""What a job's scripts set: inherited from another job, it would name that job's nodes."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer job, or a habit of the user's shell, would make of the new job.

    Inside a job SLURM_CPU_BIND pins everything to one core, two of SLURM_MEM_PER_* make srun refuse to start, and
    SLURM_ARRAY_JOB_ID names the parent.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not (name.startswith(_OF_THE_CALLER) or name in _OF_A_JOB)
    }
