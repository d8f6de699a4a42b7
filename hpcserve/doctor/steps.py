"""One srun for a partition's nodes that are free, one for those that may become so; their reports."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcserve.discovery import VISIBILITY_S, log_tail, read_records
from hpcserve.doctor.finding import NodeReport
from hpcserve.doctor.look_at_slurm import job_options
from hpcserve.doctor.meeting import answer_pings
from hpcserve.doctor.node_states import Standing, standing
from hpcserve.doctor.order import Order
from hpcserve.doctor.silence import Asked
from hpcserve.nouns import SlurmDialect
from hpcserve.site import expand_hosts, hosts_of

__all__ = ["STEP_MINUTES", "Step", "await_reports", "sleepers", "start_steps"]

STEP_MINUTES = 10
_POLL_S = 0.2
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One srun and the nodes that it was given."""

    nodes: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    log: Path


def start_steps(order: Order, dialect: SlurmDialect, states: Mapping[str, str]) -> list[Step]:
    """The steps by which all nodes of the order are asked that take jobs; those asleep only where they are named."""
    steps: list[Step] = []
    taken: set[str] = set()
    later = {Standing.BUSY, Standing.ASLEEP} if order.nodes else {Standing.BUSY}
    for partition in order.site.partitions:
        names = [name for name in _wanted(order, partition) if name not in taken and name in states]
        for group in ({Standing.FREE}, later):
            those = [name for name in names if standing(states[name]) in group]
            taken |= set(those)
            # a job asks for one number of GPUs on all of its nodes
            for kind in dict.fromkeys(hosts_of(order.site)[name].gpu for name in those):
                alike = tuple(name for name in those if hosts_of(order.site)[name].gpu == kind)
                steps.append(_start(order, dialect, partition, alike, number=len(steps)))
    return steps


def sleepers(order: Order, states: Mapping[str, str]) -> tuple[str, ...]:
    """Nodes that are not asked, as Slurm would have to wake them and nobody named them."""
    if order.nodes:
        return ()
    names = dict.fromkeys(name for partition in order.site.partitions for name in _wanted(order, partition))
    return tuple(name for name in names if name in states and standing(states[name]) == Standing.ASLEEP)


def _wanted(order: Order, partition: str) -> list[str]:
    members = expand_hosts(order.site.partitions[partition].hosts)
    return [name for name in members if not order.nodes or name in order.nodes]


def _start(order: Order, dialect: SlurmDialect, partition: str, nodes: tuple[str, ...], *, number: int) -> Step:
    log = order.directory / f"step{number}.out"
    options = (
        "--job-name=hpcserve-doctor",
        f"--time={STEP_MINUTES}",
        f"--immediate={max(1, int(order.wait_s))}",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        *((f"--account={order.account}",) if order.account else ()),
    )
    with log.open("wb") as out:
        process = subprocess.Popen(
            ("srun", *job_options(order.site, dialect, partition, nodes), *options, *order.command()),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(order.environment),
            start_new_session=True,
        )
    return Step(nodes=nodes, process=process, log=log)


def await_reports(
    order: Order, steps: Sequence[Step], *, report: Callable[[str], None]
) -> tuple[dict[str, NodeReport], tuple[Asked, ...]]:
    """Reports by node, in the site's order, and how each step went, once all have ended or the time is up.

    Steps that have not ended by then are ended. Where one ended well its nodes have written their reports: these are
    then waited for as long as a listing of a shared directory may be old.
    """
    wanted = [name for step in steps for name in step.nodes]
    end_s = time.monotonic() + order.answers_within_s
    over_s: float | None = None
    met: set[str] = set()
    told = -1
    reports: dict[str, NodeReport] = {}
    late: list[Step] = []
    try:
        while True:
            running = [step for step in steps if step.process.poll() is None]
            answer_pings(order.directory, met)
            reports = read_records(order.directory, "nodes", NodeReport).records
            if len(reports) != told and wanted:
                told = len(reports)
                report(f"{told} of {len(wanted)} nodes have answered")
            now_s = time.monotonic()
            if not running:
                over_s = now_s if over_s is None else over_s
                due = {name for step in steps if step.process.poll() == 0 for name in step.nodes}
                if due <= set(reports) or now_s - over_s > VISIBILITY_S:
                    break
            elif now_s > end_s:
                late = running
                break
            time.sleep(_POLL_S)
        # before the late ones are ended: what srun prints of that explains nothing
        asked = tuple(
            Asked(
                nodes=step.nodes,
                said=log_tail(step.log),
                late_s=order.answers_within_s if step in late else None,
                begun=frozenset(met & set(step.nodes)),
            )
            for step in steps
        )
    finally:
        for step in steps:
            if step.process.poll() is None:
                _end(step.process)
    return {name: reports[name] for name in wanted if name in reports}, asked


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End srun, and with it its job."""
    process.terminate()
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
