"""Hands a job to Slurm or to this host, and says where it is.

In: Job, JobHandle, job directories. Out: JobHandle, SchedulerState, JobState. Touches: Slurm's commands, processes of
this host, files of the job directory, the router's /health.
"""

from hpcserve.scheduler.arrays import array_sizes, parse_max_array_size
from hpcserve.scheduler.environment import clean_environment
from hpcserve.scheduler.finding import FoundJob, find_job, list_jobs
from hpcserve.scheduler.job_state import job_state, router_answers
from hpcserve.scheduler.launcher import Launcher, SchedulerState
from hpcserve.scheduler.launchers import launcher_for
from hpcserve.scheduler.openings import estimated_start, idle_nodes, jobless_nodes

__all__ = [
    "FoundJob",
    "Launcher",
    "SchedulerState",
    "array_sizes",
    "clean_environment",
    "estimated_start",
    "find_job",
    "idle_nodes",
    "job_state",
    "jobless_nodes",
    "launcher_for",
    "list_jobs",
    "parse_max_array_size",
    "router_answers",
]
