"""The whole look: this host, Slurm, and by a short Slurm step each compute node. May touch: Slurm, files, processes."""

import os
import socket
from collections.abc import Callable

from hpcserve.discovery import read_records, remove_tree
from hpcserve.doctor.catalogue import LOGIN, SLURM, examine
from hpcserve.doctor.command import run_command
from hpcserve.doctor.evidence import SlurmSeen, Wanted
from hpcserve.doctor.finding import DoctorReport, Finding, NodeReport, Severity, worst
from hpcserve.doctor.fold import folded
from hpcserve.doctor.look_at_node import look_at_login
from hpcserve.doctor.look_at_slurm import look_at_slurm
from hpcserve.doctor.meeting import FOLDERS
from hpcserve.doctor.order import Order
from hpcserve.doctor.silence import Asked, unheard
from hpcserve.doctor.steps import STEP_MINUTES, await_reports, sleepers, start_steps
from hpcserve.errors import HpcserveError
from hpcserve.site import expand_hosts, fold_hosts, hosts_of

__all__ = ["survey"]


def survey(order: Order, *, report: Callable[[str], None]) -> DoctorReport:
    """Everything that was found, the same of several nodes as one; `report` is told in words how far it is.

    Raises HpcserveError where no directory for it can be made.
    """
    login = socket.gethostname()
    wanted = Wanted(site=order.site, node=login, tested=order.tested)
    report("looking at this host and at Slurm" if order.site.slurm else "looking at this host")
    dialect = order.site.slurm
    here = look_at_login(order.site, environment=os.environ) if dialect is not None else None
    found = list(examine(LOGIN, here, wanted)) if here is not None else []
    _make(order)
    try:
        if dialect is None:
            found.append(_said(login, Severity.NOT_APPLICABLE, "the site has no Slurm: only this host was looked at"))
            reports, asked = _alone(order, report=report)
        else:
            slurm = look_at_slurm(order.site, account=order.account, environment=order.environment)
            found += examine(SLURM, slurm, wanted)
            reports, asked = await_reports(order, start_steps(order, dialect, slurm.node_states), report=report)
            found += _not_asked(order, slurm, login)
    finally:
        for line in remove_tree(order.directory):
            report(f"warning: {line}; remove it later")
    for step in asked:
        found += unheard(step, reports, wait_s=order.wait_s)
    for name in reports:
        found += reports[name].findings
    findings = folded(found)
    return DoctorReport(
        site=order.site.name, login=login, nodes=tuple(reports), severity=worst(findings), findings=findings
    )


def _make(order: Order) -> None:
    """The directory of this look, mode 0700, with what the nodes need."""
    directory = order.directory
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
        for name in FOLDERS:
            (directory / name).mkdir(mode=0o700)
        (directory / "site.yaml").write_text(order.site_text, encoding="utf-8")
        for file in order.runtimes:
            path = directory / file.path
            path.write_text(file.text, encoding="utf-8")
            path.chmod(file.mode)
    except OSError as error:
        remove_tree(directory)
        raise HpcserveError(
            f"{directory} cannot be written: {error.strerror}", remedy="correct `paths.jobs`, or make room there"
        ) from None


def _alone(order: Order, *, report: Callable[[str], None]) -> tuple[dict[str, NodeReport], tuple[Asked, ...]]:
    """This host as a node of a site without Slurm: all of its names are this host, of which one look is enough."""
    name = (order.nodes or tuple(hosts_of(order.site)))[0]
    report("asking the engines of this host")
    limit_s = STEP_MINUTES * 60.0
    ran = run_command(order.command("--alone", "--node", name), timeout_s=limit_s)
    printed = f"{ran.output}\n{ran.complaints or ran.trouble}".splitlines()
    asked = Asked(
        nodes=(name,),
        said=tuple(line for line in printed if line.strip()),
        late_s=limit_s if ran.late else None,
        begun=frozenset({name}),
    )
    return read_records(order.directory, "nodes", NodeReport).records, (asked,)


def _not_asked(order: Order, slurm: SlurmSeen, login: str) -> list[Finding]:
    """Nodes that were named and that no partition of the site has; those that are asleep."""
    known = {name for partition in order.site.partitions.values() for name in expand_hosts(partition.hosts)}
    lost = [name for name in order.nodes if name not in known]
    found = []
    if lost:
        found.append(_said(login, Severity.FAILURE, f"no partition of the site file has {fold_hosts(lost)}"))
    if asleep := sleepers(order, slurm.node_states):
        found.append(_said(login, Severity.NOT_APPLICABLE, f"{fold_hosts(asleep)} is powered down: --nodes wakes it"))
    if slurm.missing or not slurm.node_states:
        found.append(_said(login, Severity.NOT_APPLICABLE, "no compute node was looked at, as Slurm cannot be asked"))
    return found


def _said(node: str, severity: Severity, what: str) -> Finding:
    bad = severity == Severity.FAILURE
    return Finding(
        check="nodes",
        severity=severity,
        what=what,
        nodes=(node,),
        why="they were not looked at" if bad else "",
        remedy="correct --nodes or the site file" if bad else "",
    )
