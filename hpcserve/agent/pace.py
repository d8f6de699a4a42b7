"""How long the agent waits for what."""

from dataclasses import dataclass

__all__ = ["Pace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """All of the agent's waits, in seconds."""

    nodes_s: float = 600.0
    """For every node's report. Entering a container on a cold parallel filesystem alone can take minutes."""
    plan_s: float = 900.0
    """For the head node's plan; longer than the head waits for the nodes, so that its reason is the one that shows."""
    plan_poll_s: float = 0.5
    """Between two looks for it, from every node but the head."""
    facts_s: float = 300.0
    """For the installed engine to say what it is."""
    start_s: float = 3600.0
    """From a worker's start to its first healthy answer: hundreds of GB of weights come from a shared filesystem."""
    proof_s: float = 300.0
    """For the completion that proves a worker; the first one may compile kernels."""
    poll_s: float = 0.25
    """Between two questions to a worker that starts or drains."""
    health_s: float = 5.0
    """Between two questions to a worker that serves; its death is seen at once and without asking."""
    hang_s: float = 120.0
    """A worker that answers no question about its health for so long hangs, and is ended and started again."""
    notice_s: float = 1.5
    """For the router, which polls every second, to see that a worker drains."""
    drain_s: float = 20.0
    """For requests in flight when the agent is told to stop. Slurm's KillWait is 30 s unless a site sets it."""
    terminate_s: float = 10.0
    """Between SIGTERM and SIGKILL to a worker's processes."""
    watch_s: float = 1.0
    """Between two looks for `failed.json`."""
    gone_s: float = 60.0
    """A job directory that has been absent for so long (nfs(5): `acdirmax`) was removed, and the job ends."""
