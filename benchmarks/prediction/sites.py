"""The sites that the four placements are measured on, made from a site file so that its rates stay the only ones.

    .venv/bin/python -m benchmarks.prediction.sites FOLDER --site SITE --slowed NODE --beside NODE --mbit-per-s RATE

Writes `FOLDER/site.yaml`, with two GPUs a node, and `FOLDER/slowed.yaml`: two nodes of it, one with a slower NIC.
"""

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import yaml

from hpcserve.deploy import find_site, read_text, write_whole
from hpcserve.errors import HpcserveError, InputError, Mistake
from hpcserve.site import expand_hosts, fold_hosts, load_site

__all__ = ["pair_with_slow_node", "two_slots"]

_GPUS = 2
_SLOW = "slowed"
_GB_PER_MBIT = 1 / 8000


def two_slots(text: str) -> str:
    """A site file with room for prefill and decode on every node."""
    site = yaml.safe_load(text)
    for node_type in site["node_types"].values():
        _set_gpus(node_type)
    return _checked(site)


def pair_with_slow_node(text: str, *, slowed: str, beside: str, gb_per_s: float) -> str:
    """The same site, of two nodes only, every NIC of one of them at this rate: no other path can be chosen.

    `gb_per_s` is nominal; the efficiency stays the site's. Raises InputError where the site has no such nodes.
    """
    site = yaml.safe_load(text)
    names = {beside, slowed}
    types = {node: group["type"] for group in site["nodes"] for node in expand_hosts(group["hosts"])}
    if missing := sorted(names - types.keys()):
        raise InputError([_mistake(f"no node {', '.join(missing)}", "two nodes of the site were wanted")])
    for node_type in site["node_types"].values():
        _set_gpus(node_type)
    slow = site["node_types"][_SLOW] = copy.deepcopy(site["node_types"][types[slowed]])
    for nic in slow["nics"]:
        nic["rate"] = {**nic["rate"], "nominal_gb_per_s": gb_per_s}
    site["name"] = f"{site['name']}-{_SLOW}"
    site["nodes"] = [{"hosts": beside, "type": types[beside]}, {"hosts": slowed, "type": _SLOW}]
    for partition in site["partitions"].values():
        partition["hosts"] = fold_hosts(sorted(names & set(expand_hosts(partition["hosts"]))))
    kept = []
    for switch in site["switches"]:
        if "hosts" in switch:
            switch["hosts"] = fold_hosts(sorted(names & set(expand_hosts(switch["hosts"]))))
        if switch.get("hosts", switch.get("switches")):
            kept.append(switch)
    site["switches"] = kept
    return _checked(site)


def _set_gpus(node_type: dict[str, Any]) -> None:
    node_type["gpu"]["count"] = _GPUS
    for nic in node_type["nics"]:
        nic["gpus"] = list(range(_GPUS))


def _checked(site: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(site, sort_keys=False, allow_unicode=True)
    load_site(text, source="site.yaml")
    return text


def _mistake(found: str, wanted: str) -> Mistake:
    return Mistake(file="site.yaml", line=1, column=1, found=found, wanted=wanted, remedy="name others")


def main() -> int:
    """Write both; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--site", required=True)
    parser.add_argument("--slowed", required=True, metavar="NODE")
    parser.add_argument("--beside", required=True, metavar="NODE")
    parser.add_argument("--mbit-per-s", required=True, type=float)
    asked = parser.parse_args()
    try:
        text = read_text(find_site(asked.site))
        rate = asked.mbit_per_s * _GB_PER_MBIT
        slowed = pair_with_slow_node(text, slowed=asked.slowed, beside=asked.beside, gb_per_s=rate)
        for name, made in (("site.yaml", two_slots(text)), ("slowed.yaml", slowed)):
            write_whole(asked.folder / name, made.encode(), remedy="name another folder")
    except HpcserveError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
