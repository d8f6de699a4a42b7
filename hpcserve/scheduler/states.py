"""Slurm's words for states and pending reasons, and what they mean to somebody who waits for a service."""

from hpcserve.scheduler.launcher import Phase

__all__ = ["SLURM_PHASES", "phase_of", "reason_in_words"]

SLURM_PHASES: dict[str, Phase] = {
    # squeue(1), JOB STATE CODES, and sacct(1), of Slurm 22.05 to 25.11
    "BOOT_FAIL": "failed",
    "CANCELLED": "ended",
    "COMPLETED": "ended",
    "COMPLETING": "running",
    "CONFIGURING": "pending",
    "DEADLINE": "failed",
    "EXPEDITING": "pending",
    "FAILED": "failed",
    "LAUNCH_FAILED": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "PENDING": "pending",
    "POWER_UP_NODE": "pending",
    "PREEMPTED": "failed",
    "RECONFIG_FAIL": "failed",
    "REQUEUED": "pending",
    "REQUEUE_FED": "pending",
    "REQUEUE_HOLD": "pending",
    "RESIZING": "running",
    "RESV_DEL_HOLD": "pending",
    "REVOKED": "failed",
    "RUNNING": "running",
    "SIGNALING": "running",
    "SPECIAL_EXIT": "pending",
    "STAGE_OUT": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "TIMEOUT": "ended",
    "UPDATE_DB": "pending",
}

_REASONS = {
    # squeue(1), JOB REASON CODES
    "None": "Slurm has not looked at it yet",
    "Priority": "other jobs come first",
    "Resources": "waiting for nodes to become free",
    "BeginTime": "its start time has not come (a requeued job waits about two minutes)",
    "Dependency": "waiting for the job it depends on",
    "DependencyNeverSatisfied": "the job it depends on ended the wrong way: this one will never start",
    "JobHeldUser": "held by its owner: `scontrol release JOBID` lets it go",
    "JobHeldAdmin": "held by an administrator",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no new jobs now",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows a job: it will not start as it is",
    "PartitionTimeLimit": "it asks for more time than the partition allows: lower `time` in the service",
    "PartitionConfig": "the partition cannot give what it asks for",
    "ReqNodeNotAvail": "a node that it names is down, drained or reserved",
    "Reservation": "waiting for its reservation to begin",
    "Licenses": "waiting for a licence",
    "BadConstraints": "no node meets its constraints: it will not start as it is",
    "InvalidAccount": "the account is not known: correct `account` in the service",
    "InvalidQOS": "the QOS is not known",
    "JobLaunchFailure": "it could not be started on its nodes",
    "NodeDown": "a node that it needs is down",
    "FrontEndDown": "the front end is down",
    "Cleaning": "its last run is still being cleaned up",
    "QOSMaxSubmitJobPerUserLimit": "your QOS allows no more jobs in the queue",
    "TimeLimit": "its time was up",
    "NonZeroExitCode": "its script ended with an error",
}

_FAMILIES = (
    ("QOS", "a limit of the QOS is reached"),
    ("Assoc", "a limit of your account is reached"),
    ("Max", "a limit is reached"),
    ("ReqNodeNotAvail", _REASONS["ReqNodeNotAvail"]),
    ("Nodes required for job are DOWN", "nodes that it needs are down, drained or kept for other partitions"),
)


def phase_of(word: str) -> Phase:
    """What a state word of Slurm means; `unknown` for a word that this table does not have."""
    return SLURM_PHASES.get(word, "unknown")


def reason_in_words(reason: str) -> str:
    """A pending reason for people, with Slurm's own word behind it; a word that is not known is passed on alone."""
    plain = reason.strip("()")
    if not plain:
        return ""
    known = _REASONS.get(plain) or next((text for start, text in _FAMILIES if plain.startswith(start)), None)
    if known and plain == "None":  # Slurm's word for a job that it has not looked at
        return known
    return f"{known} ({plain})" if known else plain
