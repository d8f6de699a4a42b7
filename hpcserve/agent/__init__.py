"""The agent: one process per node that reports the node and keeps its workers, and on the head node the router, alive.

In: a job directory, the node's name, Slurm's variables. Out: `nodes/`, `plan.json`, `workers/`, `endpoints/`,
`heartbeats/`, `failed.json`, and an exit code: 0 told to stop and all ended, 3 the job gave up, 4 the node
has an agent already, else start it again.
May touch: this node's processes, ports and /proc; the job directory; its own workers by HTTP.
"""

from hpcserve.agent.command_line import GAVE_UP, NOT_ALONE, main

__all__ = ["GAVE_UP", "NOT_ALONE", "main"]
