"""`hpcserve plan`: where the workers would go, and whether separating the phases pays."""

from pathlib import Path

import click

from hpcserve.cli.options import examples, json_option, print_record, site_option
from hpcserve.deploy import Planned, plan_service
from hpcserve.draw import paths_table, plan_map

__all__ = ["plan", "shown_plan"]


@click.command(epilog=examples("hpcserve plan chat.yaml --site onebox", "hpcserve plan chat.yaml --site onebox --json"))
@click.argument("service", type=click.Path(path_type=Path))
@site_option
@json_option
def plan(service: Path, site: str, as_json: bool) -> None:
    """Show where the workers of SERVICE would go, what every KV path costs, and the verdict; changes nothing."""
    planned = plan_service(service, site=site)
    if planned.model.trouble:
        click.echo(f"note: {planned.model.trouble}; whether the weights fit is not checked", err=True)
    if as_json:
        print_record(planned.plan)
    else:
        click.echo(shown_plan(planned), nl=False)


def shown_plan(planned: Planned) -> str:
    """The plan as a map, a table of paths and the verdict."""
    placed = planned.plan
    advice = "separate prefill and decode" if placed.verdict.disaggregate else "serve aggregated"
    lines = [f"Verdict: {advice}.", *(f"  {reason}" for reason in placed.verdict.reasons)]
    lines.append(f"Mode asked for: {placed.asked_mode.value}; served: {placed.mode}.")
    return f"{plan_map(placed, leaf_of=planned.fabric.leaf_of)}\n{paths_table(placed)}\n" + "\n".join(lines) + "\n"
