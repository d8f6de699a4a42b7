"""Small sites of each shape, as an admin would write them; loading them also checks them."""

from typing import Any

import yaml

from hpcserve.nouns import Site
from hpcserve.site import load_site

__all__ = ["domains", "dragonfly", "rails", "site_of", "two_sockets"]


def rate(gb_per_s: float | None, source: str = "vendor") -> dict[str, Any]:
    if gb_per_s is None:
        return {"unknown": True, "source": source}
    return {"effective_gb_per_s": float(gb_per_s), "source": source}


def nic(number: int, gpus: list[int], gb_per_s: float | None = 40.0, **more: Any) -> dict[str, Any]:
    return {"name": f"mlx5_{number}:1", "kind": "infiniband", "rate": rate(gb_per_s, "NDR"), "gpus": gpus, **more}


def node_type(gpus: int, nics: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "cores": 8,
        "memory_gib": 64.0,
        "gpu": {"model": "drawn", "count": gpus, "memory_gib": 80.0, **more.pop("gpu", {})},
        "nics": nics,
        "host_path": rate(20.0, "PCIe"),
        **more,
    }


def site_of(types: dict[str, Any], nodes: list[tuple[str, str]], switches: list[dict[str, Any]], **more: Any) -> Site:
    plain = {
        "schema": "hpcserve.site/1",
        "name": "made",
        "description": "made for a test",
        "node_types": types,
        "nodes": [{"hosts": hosts, "type": kind} for hosts, kind in nodes],
        "partitions": {},
        "switches": switches,
        "networks": {"control": {"interface": "eth0"}, "data": {"interface": "ib0"}},
        "slurm": None,
        "transport": {"ucx": {"UCX_TLS": "rc"}},
        "runtimes": {"hpcserve": {"kind": "none"}},
        "paths": {"jobs": "/jobs", "models": "/models", "cache": "/cache"},
        **more,
    }
    return load_site(yaml.safe_dump(plain, sort_keys=False), source="made.yaml")


def rails() -> Site:
    """Two units of two nodes; GPU i's NIC is on rail i, each rail of a unit has a leaf, all leaves one spine."""
    kind = node_type(2, [nic(rail, [rail], rail=rail) for rail in range(2)])
    leaves = [
        {"name": f"u{unit}r{rail}", "hosts": f"n{unit}[1-2]", "rail": rail, "uplink": rate(60.0, "two links up")}
        for unit in (1, 2)
        for rail in (0, 1)
    ]
    return site_of(
        {"box": kind}, [("n1[1-2],n2[1-2]", "box")], [*leaves, {"name": "spine", "switches": "u1r[0-1],u2r[0-1]"}]
    )


def dragonfly() -> Site:
    """Two groups of three routers with a node each; direct links of 25 inside a group, of 30 between groups."""
    routers = [
        {"name": f"{group}{number}", "hosts": f"n{group}{number}"} for group in ("a", "b") for number in (1, 2, 3)
    ]
    groups = [{"name": f"g{group}", "switches": f"{group}[1-3]", "mesh": rate(25.0, "copper")} for group in ("a", "b")]
    return site_of(
        {"box": node_type(1, [nic(0, [0])])},
        [("na[1-3],nb[1-3]", "box")],
        [*routers, *groups, {"name": "all", "switches": "ga,gb", "mesh": rate(30.0, "optics")}],
    )


def domains() -> Site:
    """Four trays of two GPUs on one leaf, in two NVLink domains."""
    kind = node_type(2, [nic(0, [0, 1])])
    return site_of(
        {"tray": kind},
        [("t[1-4]", "tray")],
        [{"name": "leaf", "hosts": "t[1-4]"}],
        nvlink_domains=[
            {"name": "rack1", "hosts": "t[1-2]", "rate": rate(700.0, "NVLink 5"), "cluster_uuid": "7a", "clique": 0},
            {"name": "rack2", "hosts": "t[3-4]", "rate": rate(700.0, "NVLink 5"), "cluster_uuid": "7a", "clique": 1},
        ],
    )


def two_sockets(*, slot: float | None = None, nic_gb_per_s: float | None = 40.0) -> Site:
    """Two nodes whose one NIC hangs on NUMA node 0, with a GPU on each NUMA node."""
    more = {"slot": rate(slot, "PCIe 4.0 x16")} if slot is not None else {}
    kind = node_type(2, [nic(0, [0, 1], nic_gb_per_s, numa=0, **more)], gpu={"numa": [0, 1]})
    return site_of({"box": kind}, [("n[1-2]", "box")], [{"name": "leaf", "hosts": "n[1-2]"}])
