"""Predicted beside measured, over the runs of one or more results folders.

    .venv/bin/python -m benchmarks.prediction RESULTS... --fit-on PLACEMENT [--json]

Fits prefill and decode times on one placement's runs, replays the arrivals of every run on the simulator, and compares
transfer times, TTFT, attainment and the ranking of placements. Exit 0: the predictions hold; 1: one does not; others as
`hpcserve`'s own. `benchmarks/prediction/onebox` measures the runs.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from benchmarks.prediction.judge import judge
from benchmarks.prediction.table import page
from hpcserve.discovery import read_records
from hpcserve.errors import HpcserveError, NotFoundError
from hpcserve.nouns import Run


def runs_in(folder: Path) -> list[Run]:
    """The runs of a results folder; what cannot be read is told."""
    if not (folder / "runs").is_dir():
        raise NotFoundError(f"{folder} has no folder `runs`", remedy="give the results folder of `hpcserve sweep`")
    listing = read_records(folder, "runs", Run)
    for name, reason in listing.unreadable.items():
        print(f"warning: {folder}/runs/{name}.json is left out: {reason}", file=sys.stderr)
    return list(listing.records.values())


def main() -> int:
    """Judge and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.prediction", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="RESULTS", nargs="+", type=Path)
    parser.add_argument("--fit-on", required=True, metavar="PLACEMENT")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        judgement = judge([run for folder in asked.folders for run in runs_in(folder)], fitted_on=asked.fit_on)
    except HpcserveError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if asked.json:
        made = {**vars_of(judgement), "latency": judgement.latency.model_dump(by_alias=True), "holds": judgement.holds}
        print(json.dumps(made, indent=1))
    else:
        print(page(judgement), end="")
    return 0 if judgement.holds else 1


def vars_of(judgement: object) -> dict[str, object]:
    """Its fields as plain values, those of what is in it too."""
    if not dataclasses.is_dataclass(judgement) or isinstance(judgement, type):
        raise TypeError(judgement)
    return dataclasses.asdict(judgement)


if __name__ == "__main__":
    sys.exit(main())
