"""`hpcserve plan`: where the workers would go, and whether separating the phases pays."""

from dataclasses import replace
from pathlib import Path

import click

from hpcserve.cli.options import (
    examples,
    json_option,
    latency_option,
    measured_option,
    print_record,
    site_option,
)
from hpcserve.cli.plan_allocations import outlook_of
from hpcserve.cli.plan_page import pools_text, shown_plan
from hpcserve.deploy import Planned, check_place, plan_service, write_whole
from hpcserve.draw import comparison_table, evidence_table, outlook_table, plan_svg
from hpcserve.render import with_options

__all__ = ["plan"]

_SVG_REMEDY = "name a file that can be written with --svg"


@click.command(
    epilog=examples(
        "hpcserve plan chat.yaml --site onebox",
        "hpcserve plan chat.yaml --site onebox --explain",
        "hpcserve plan chat.yaml --site onebox --latency tp1.json --latency tp2.json --compare",
        "hpcserve plan chat.yaml --site onebox --latency tp1.json --gpus 8 --svg plan.svg",
        "hpcserve plan chat.yaml --site onebox --allocations",
    )
)
@click.argument("service", type=click.Path(path_type=Path))
@site_option
@measured_option
@latency_option
@click.option("--compare", is_flag=True, help="Also simulate other shapes of as many GPUs, and print all as a table.")
@click.option("--gpus", type=click.IntRange(min=1), help="Choose mode, tensor_parallel and counts for so many GPUs.")
@click.option("--explain", is_flag=True, help="Print every number that the verdict rests on, with its source.")
@click.option(
    "--allocations", is_flag=True, help="Also say what the allocations that Slurm may make would give; it is asked."
)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the plan to FILE.")
@json_option
def plan(
    *,
    service: Path,
    site: str,
    measured: Path | None,
    latency: tuple[str, ...],
    compare: bool,
    gpus: int | None,
    explain: bool,
    allocations: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Show where the workers of SERVICE would go, what every KV path costs, and the verdict.

    Nothing is changed. With --latency the verdict is simulated under the SLO. --json prints the plan; with --compare
    the comparison, which has the plan in it, with --allocations what Slurm may grant.
    """
    if (compare or gpus is not None) and not latency:
        raise click.UsageError("--compare and --gpus simulate: give at least one --latency, see `hpcserve latency`")
    if as_json and compare and allocations:
        raise click.UsageError("--json prints one document: --compare or --allocations")
    if svg is not None:
        check_place(svg, remedy=_SVG_REMEDY)
    planned = plan_service(service, site=site, measured=measured, latency=latency, gpus=gpus, alternatives=compare)
    planned = _as_slurm_is_asked(planned)
    if planned.model.trouble:
        click.echo(f"note: {planned.model.trouble}; whether the weights fit is not checked", err=True)
    if svg is not None:
        drawing = plan_svg(planned.plan, leaf_of=planned.fabric.leaves_named)
        write_whole(svg, drawing.encode(), remedy=_SVG_REMEDY)
    found = outlook_of(planned) if allocations else None
    if as_json and found is not None:
        print_record(found)
        return
    if as_json:
        print_record(planned.comparison if compare and planned.comparison is not None else planned.plan)
        return
    pages = [shown_plan(planned)]
    if compare and planned.comparison is not None:
        pages.append(comparison_table(planned.comparison))
    if found is not None:
        sources = planned.comparison.sources if planned.comparison is not None else ()
        pages.append(outlook_table(found, sources=sources))
    if gpus is not None:
        pages.append(pools_text(planned.service))
    if explain:
        pages.append(evidence_table(planned.plan.verdict))
    click.echo("\n".join(pages), nl=False)


def _as_slurm_is_asked(planned: Planned) -> Planned:
    """With the options of sbatch in the plan, where there is a partition to ask; PlacementError where it cannot be."""
    if planned.site.slurm is None or planned.service.partition is None:
        return planned
    plan = with_options(planned.plan, site=planned.site, service=planned.service)
    comparison = planned.comparison and planned.comparison.model_copy(update={"plan": plan})
    return replace(planned, plan=plan, comparison=comparison)
