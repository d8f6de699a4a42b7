"""The project's nouns: frozen, keyword-only, strictly typed values, one file each; made once, passed on.

In: nothing. Out: types. Touches: nothing.
"""

from hpcserve.nouns.allocation import Allocation, EngineFacts, GrantedGpu, GrantedNode
from hpcserve.nouns.base import FORMS, Name, Noun
from hpcserve.nouns.endpoint import Endpoint, Handoff, Heartbeat
from hpcserve.nouns.job import Job, JobFailure, JobFile, JobHandle, JobPhase, JobState, WorkerState
from hpcserve.nouns.model import ModelShape
from hpcserve.nouns.plan import Ask, PathCost, Plan, PlannedWorker, Rank, RouterSeat, Verdict
from hpcserve.nouns.report import (
    Goodput,
    InvalidRun,
    Percentiles,
    PlacementResult,
    RateResult,
    Report,
    TransferResult,
)
from hpcserve.nouns.router import PairProof, RouterAddress, RouterState
from hpcserve.nouns.run import Load, Run, Sample, Transfers, Validity
from hpcserve.nouns.service import Distance, Mode, Pool, Role, RouterSettings, Service, Slo, Workload
from hpcserve.nouns.site import (
    Gpu,
    Network,
    Networks,
    Nic,
    NicKind,
    NodeGroup,
    NodeType,
    NvlinkIsland,
    Partition,
    Paths,
    Rate,
    Runtime,
    RuntimeKind,
    Site,
    SlurmDialect,
    Switch,
    Transport,
)
from hpcserve.nouns.sweep import RatePoint, Sweep, SweepPlacement

__all__ = [
    "FORMS",
    "Allocation",
    "Ask",
    "Distance",
    "Endpoint",
    "EngineFacts",
    "Goodput",
    "Gpu",
    "GrantedGpu",
    "GrantedNode",
    "Handoff",
    "Heartbeat",
    "InvalidRun",
    "Job",
    "JobFailure",
    "JobFile",
    "JobHandle",
    "JobPhase",
    "JobState",
    "Load",
    "Mode",
    "ModelShape",
    "Name",
    "Network",
    "Networks",
    "Nic",
    "NicKind",
    "NodeGroup",
    "NodeType",
    "Noun",
    "NvlinkIsland",
    "PairProof",
    "Partition",
    "PathCost",
    "Paths",
    "Percentiles",
    "PlacementResult",
    "Plan",
    "PlannedWorker",
    "Pool",
    "Rank",
    "Rate",
    "RatePoint",
    "RateResult",
    "Report",
    "Role",
    "RouterAddress",
    "RouterSeat",
    "RouterSettings",
    "RouterState",
    "Run",
    "Runtime",
    "RuntimeKind",
    "Sample",
    "Service",
    "Site",
    "Slo",
    "SlurmDialect",
    "Sweep",
    "SweepPlacement",
    "Switch",
    "TransferResult",
    "Transfers",
    "Transport",
    "Validity",
    "Verdict",
    "WorkerState",
    "Workload",
]
