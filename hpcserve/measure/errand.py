"""What a measuring job is told, and what it writes: seats, tasks in rounds, readings."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns import Noun

__all__ = [
    "ERRAND_FILE",
    "PROGRESS_FILE",
    "READINGS_FOLDER",
    "START_S",
    "Errand",
    "Flow",
    "Progress",
    "Reading",
    "Seat",
    "Task",
]

ERRAND_FILE = "measure.json"
PROGRESS_FILE = "measure.progress.json"
READINGS_FOLDER = "readings"
START_S = 120.0
"""Importing NIXL, and PyTorch for GPUs, from a shared file system that all nodes ask at once: how long a rank waits for
its NIXL process, and how much of an attempt's time limit is for that."""

Index = Annotated[int, Field(ge=0)]


class Seat(Noun):
    """One NIC of one node, and the GPU whose memory is read through it."""

    node: str
    gpu: Index
    nic: str
    place: Index
    """Which of the node's ranks sits here, counted from 0 (SLURM_LOCALID)."""
    in_gpu_memory: bool
    env: dict[str, str]
    """What NIXL's process is given: transports, the NIC, the site's own settings."""

    @property
    def name(self) -> str:
        """`node01:mlx5_0:1`, for people and as the name of NIXL's agent."""
        return f"{self.node}:{self.nic}"


class Flow(Noun):
    """One read: the seat at `reader` pulls from the one at `source`; numbers of seats of the errand."""

    source: Index
    reader: Index


class Task(Noun):
    """Flows that run at the same time: one for a pair alone, several that fill links together."""

    flows: Annotated[tuple[Flow, ...], Field(min_length=1)]
    links: tuple[str, ...] = ()
    """The links that all of several flows pass, which together they fill; none for a pair alone."""


class Errand(Noun):
    """Everything that the ranks need to know, and all of them the same."""

    schema_: Annotated[Literal["hpcserve.measure/1"], Field(alias="schema")] = "hpcserve.measure/1"
    site: str
    scope: str
    """Which pairs are measured, in words."""
    backend: Literal["UCX", "LIBFABRIC"]
    seats: tuple[Seat, ...]
    rounds: tuple[tuple[Task, ...], ...]
    """Tasks of one round run at once and share no link and no seat."""
    block_bytes: Annotated[int, Field(gt=0)]
    blocks: Annotated[int, Field(gt=0)]
    """Blocks of one read, as a prefill's KV is pulled."""
    buffer_bytes: Annotated[int, Field(gt=0)]
    seconds: Annotated[float, Field(gt=0)]
    """How long each flow reads, after it is connected."""
    within_s: Annotated[float, Field(gt=0)]
    """After this a flow is given up."""
    pause_us: Annotated[float, Field(ge=0)]
    """Between two looks at a transfer, where the processes of several nodes share cores; 0 elsewhere."""

    @property
    def places(self) -> int:
        """Ranks of each node."""
        return max(seat.place for seat in self.seats) + 1

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that are measured, in order."""
        return tuple(dict.fromkeys(seat.node for seat in self.seats))


class Reading(Noun):
    """What one flow of one task gave; a line of `readings/NODE.PLACE.jsonl`, written the moment it ended."""

    round: Index
    task: Index
    flow: Flow
    attempt: int
    error: str = ""
    """Why there are no figures."""
    batch_bytes: Index = 0
    batches_s: tuple[tuple[float, float], ...] = ()
    """Start and end of each read, in seconds since the round began."""
    latency_us: float | None = None
    """Median of small reads."""
    transport: str | None = None
    """What UCX says it reads with."""
    device: str | None = None
    """The NIC, by the name UCX gives it."""
    nic_bytes: int | None = None
    """What the NIC's own counter says came in meanwhile; None where it has none."""
    moved_bytes: Index = 0
    """All that was read meanwhile, warm-up included."""
    nixl: str = ""

    @property
    def rates_gb_per_s(self) -> tuple[float, ...]:
        """One-way GB/s of each read."""
        return tuple(self.batch_bytes / (end - start) / 1e9 for start, end in self.batches_s if end > start)


class Progress(Noun):
    """How far the ranks are; written by the first of them."""

    attempt: int
    done: Index
    of: Index
    text: str
