"""The project's nouns: frozen, keyword-only, strictly typed values, one file each; made once, passed on.

In: nothing. Out: types. Touches: nothing.
"""

from hpcserve.nouns.allocation import Allocation, EngineFacts, GrantedGpu, GrantedNode
from hpcserve.nouns.base import FORMS, Name, Noun
from hpcserve.nouns.comparison import Alternative, Comparison
from hpcserve.nouns.dialect import Partition, SlurmDialect
from hpcserve.nouns.endpoint import Endpoint, Handoff, Heartbeat
from hpcserve.nouns.job import Job, JobFailure, JobFile, JobHandle, JobPhase, JobState, NodeRefusal, WorkerState
from hpcserve.nouns.latency import (
    CurvePoint,
    DecodeCurve,
    DecodeLine,
    LatencyFile,
    PrefillCurve,
    PrefillLine,
    Residual,
)
from hpcserve.nouns.learnt import Learnt
from hpcserve.nouns.measurement import ClassMeasured, End, LinkMeasured, Measurement, Outlier, PairMeasured
from hpcserve.nouns.model import KvDtype, LayerGroup, LayerKind, LayerState, ModelShape
from hpcserve.nouns.node_type import MOST_GPUS_PER_NODE, Gpu, LocalDisk, Nic, NicKind, NodeType, NvlinkIsland
from hpcserve.nouns.outlook import Chance, Granted, Outlook
from hpcserve.nouns.plan import Ask, Assignment, PathCost, Plan, PlannedWorker, Rank, RouterSeat
from hpcserve.nouns.rate import Rate
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
from hpcserve.nouns.runtime import Runtime, RuntimeKind, Transport
from hpcserve.nouns.service import Distance, Mode, Pool, Role, RouterSettings, Service, Slo, Workload
from hpcserve.nouns.site import Network, Networks, NodeGroup, Paths, Site
from hpcserve.nouns.sweep import RatePoint, Sweep, SweepPlacement
from hpcserve.nouns.switches import Block, NvlinkDomain, Switch
from hpcserve.nouns.verdict import Evidence, NoBenefit, TransferWeight, Verdict

__all__ = [
    "FORMS",
    "MOST_GPUS_PER_NODE",
    "Allocation",
    "Alternative",
    "Ask",
    "Assignment",
    "Block",
    "Chance",
    "ClassMeasured",
    "Comparison",
    "CurvePoint",
    "DecodeCurve",
    "DecodeLine",
    "Distance",
    "End",
    "Endpoint",
    "EngineFacts",
    "Evidence",
    "Goodput",
    "Gpu",
    "Granted",
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
    "KvDtype",
    "LatencyFile",
    "LayerGroup",
    "LayerKind",
    "LayerState",
    "Learnt",
    "LinkMeasured",
    "Load",
    "LocalDisk",
    "Measurement",
    "Mode",
    "ModelShape",
    "Name",
    "Network",
    "Networks",
    "Nic",
    "NicKind",
    "NoBenefit",
    "NodeGroup",
    "NodeRefusal",
    "NodeType",
    "Noun",
    "NvlinkDomain",
    "NvlinkIsland",
    "Outlier",
    "Outlook",
    "PairMeasured",
    "PairProof",
    "Partition",
    "PathCost",
    "Paths",
    "Percentiles",
    "PlacementResult",
    "Plan",
    "PlannedWorker",
    "Pool",
    "PrefillCurve",
    "PrefillLine",
    "Rank",
    "Rate",
    "RatePoint",
    "RateResult",
    "Report",
    "Residual",
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
    "TransferWeight",
    "Transfers",
    "Transport",
    "Validity",
    "Verdict",
    "WorkerState",
    "Workload",
]
