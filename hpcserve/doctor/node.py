"""`python -m hpcserve.doctor.node`: the checks of one compute node, started by srun; its report goes into `nodes/`."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpcserve.discovery import write_record
from hpcserve.doctor.catalogue import NODE, examine
from hpcserve.doctor.evidence import Wanted
from hpcserve.doctor.finding import Finding, NodeReport, Severity
from hpcserve.doctor.look_at_node import look_at_engine, look_at_node, with_disks
from hpcserve.doctor.meeting import meet
from hpcserve.site import hosts_of, load_site

__all__ = ["main"]

_ENGINE_S = 240.0
"""PyTorch from a cold parallel filesystem takes a minute and more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where a report was written, whatever it says."""
    parser = argparse.ArgumentParser(prog="python -m hpcserve.doctor.node", description="Looks at one node.")
    parser.add_argument("--directory", type=Path, required=True, help="where login node and compute nodes meet")
    parser.add_argument("--node", default=os.environ.get("SLURMD_NODENAME", ""), help="its name, as in the site file")
    parser.add_argument("--tested", action="append", default=[], help="PACKAGE=VERSION that hpcserve was tested with")
    parser.add_argument("--alone", action="store_true", help="there is no login node to meet")
    given = parser.parse_args(arguments)
    site = load_site((given.directory / "site.yaml").read_text(encoding="utf-8"), source="site.yaml")
    tested = dict(pair.split("=", 1) for pair in given.tested)
    wanted = Wanted(site=site, node=given.node, tested=tested)
    started_s = time.monotonic()
    findings = look(wanted, given.directory, alone=given.alone)
    report = NodeReport(node=given.node, findings=findings, took_s=time.monotonic() - started_s)
    write_record(given.directory / "nodes" / f"{given.node}.json", report)
    return 0


def look(wanted: Wanted, directory: Path, *, alone: bool) -> tuple[Finding, ...]:
    """Every check of this node."""
    if wanted.node not in hosts_of(wanted.site):
        return (
            Finding(
                check="node",
                severity=Severity.FAILURE,
                what="the site file does not name this node",
                nodes=(wanted.node,),
                why="nothing can be placed on it",
                remedy="add it under `nodes` in the site file",
            ),
        )
    shared = None if alone else meet(directory, wanted.node)
    seen = look_at_node(wanted, environment=os.environ, quick=False)
    disk = wanted.kind.local_disk
    seen = with_disks(seen, wanted.site, {"local_disk": (disk.path, True)} if disk is not None else None)
    engines = tuple(
        look_at_engine(name, wanted, script=directory / "runtimes" / f"{name}.sh", timeout_s=_ENGINE_S)
        for name in wanted.site.runtimes
        if name != "hpcserve"
    )
    return examine(NODE, replace(seen, shared=shared, engines=engines), wanted)


if __name__ == "__main__":
    sys.exit(main())
