"""`hpcserve doctor`: what is wrong with a site before a job finds out."""

from pathlib import Path

import click

from hpcserve.cli.options import Figure, examples, jobs_dir_option, json_option, print_record, site_option
from hpcserve.deploy import order_doctor
from hpcserve.doctor import DoctorReport, Severity, shown_findings, survey
from hpcserve.site import HostListError, expand_hosts, fold_hosts

__all__ = ["doctor"]

WARNINGS = 10
FAILURES = 11
"""Above the exit codes of errors: the look itself succeeded, and this is what it found."""

_EXIT_CODES = {Severity.WARNING: WARNINGS, Severity.FAILURE: FAILURES}


@click.command(
    epilog=examples(
        "hpcserve doctor --site onebox",
        "hpcserve doctor --site onebox --nodes node[01-02] --all",
        "hpcserve doctor --site onebox --json",
    )
    + "\n\n\b\nExit codes: 0 nothing to complain of, 10 warnings, 11 failures; others as for every command."
)
@site_option
@click.option("--nodes", metavar="HOSTLIST", help="Compute nodes to look at.  [default: all that take jobs]")
@click.option("--account", help="Slurm account of the short job.")
@click.option(
    "--wait",
    "wait_s",
    type=Figure(min=1, max=1e6),
    default=120.0,
    show_default=True,
    help="Seconds to wait for nodes to be free, and as long again for their answers.",
)
@click.option("--all", "every", is_flag=True, help="Show what is right as well.")
@jobs_dir_option
@json_option
def doctor(
    *,
    site: str,
    nodes: str | None,
    account: str | None,
    wait_s: float,
    every: bool,
    jobs_dir: Path | None,
    as_json: bool,
) -> int:
    """Look for what breaks or slows down serving: here, in Slurm and, by a short job, on compute nodes."""
    order = order_doctor(site, nodes=_names(nodes), account=account, jobs_dir=jobs_dir, wait_s=wait_s)
    report = survey(order, report=lambda text: click.echo(text, err=True))
    if as_json:
        print_record(report)
    else:
        click.echo(_shown(report, every=every), nl=False)
    return _EXIT_CODES.get(report.severity, 0)


def _names(nodes: str | None) -> tuple[str, ...]:
    try:
        return () if nodes is None else tuple(dict.fromkeys(expand_hosts(nodes)))
    except HostListError as error:
        raise click.BadParameter(f"{nodes!r} is no host list such as node[01-04]: {error}") from None


def _shown(report: DoctorReport, *, every: bool) -> str:
    looked = f"compute nodes {fold_hosts(report.nodes)}" if report.nodes else "no compute node"
    counts = {severity: sum(one.severity == severity for one in report.findings) for severity in Severity}
    told = f"failures: {counts[Severity.FAILURE]}, warnings: {counts[Severity.WARNING]}"
    return f"{shown_findings(report.findings, every=every)}Site {report.site}, {report.login} and {looked}: {told}.\n"
