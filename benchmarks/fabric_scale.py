"""How the fabric grows: seconds to build, microseconds for a path, seconds to share among many flows.

Run: `.venv/bin/python benchmarks/fabric_scale.py [--most-nodes 4096]`. It prints one line for each size, on a
rail-optimised fabric of 8 GPUs and 8 rails a node, 32 nodes a unit, and the growth from each size to the next. No test
judges by it.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hpcserve.fabric import Fabric, GpuAt, fabric_of
from hpcserve.site import load_site

T = TypeVar("T")

RAILS = 8
UNIT = 32
REPEATS = 5
PATHS = 20_000
FLOWS = 4_096


def main() -> None:
    """Measure 64, 256, 1024, ... nodes."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--most-nodes", type=int, default=4096)
    most = asked.parse_args().most_nodes
    print(
        f"{'nodes':>6} {'GPUs':>7} {'load ms':>9} {'build ms':>9} {'path us (n=5: least, median)':>30} {'share ms':>9}"
    )
    last: tuple[float, float] | None = None
    nodes = 64
    while nodes <= most:
        text = site_text(nodes)
        load_s, site = best(partial(load_site, text, source="made"), times=1)
        build_s, fabric = best(partial(fabric_of, site), times=REPEATS)
        pairs = random_pairs(fabric, PATHS)
        paths_s = [timed(partial(every_path, fabric, pairs))[0] / PATHS for _ in range(REPEATS)]
        share_s, _ = best(partial(fabric.share, pairs[:FLOWS]), times=1)
        path_s = statistics.median(paths_s)
        print(
            f"{nodes:>6} {nodes * RAILS:>7} {load_s * 1e3:>9.1f} {build_s * 1e3:>9.1f}"
            f" {min(paths_s) * 1e6:>20.2f} {path_s * 1e6:>9.2f} {share_s * 1e3:>9.1f}"
            + ("" if last is None else f"   x4 nodes: build x{build_s / last[0]:.1f}, path x{path_s / last[1]:.2f}")
        )
        last = (build_s, path_s)
        nodes *= 4


def every_path(fabric: Fabric, pairs: list[tuple[GpuAt, GpuAt]]) -> None:
    """Ask for the path of each pair."""
    for a, b in pairs:
        fabric.path(a, b)


def site_text(nodes: int) -> str:
    """A site of `nodes` nodes in units of 32, one leaf for each rail of a unit, all leaves under one spine."""
    nics = "\n".join(
        f"      - {{name: 'mlx5_{rail}:1', kind: infiniband, rail: {rail}, gpus: [{rail}],"
        " rate: {effective_gb_per_s: 38.0, source: made}}"
        for rail in range(RAILS)
    )
    leaves = "\n".join(
        f"  - {{name: u{unit}r{rail}, rail: {rail}, hosts: 'n[{unit * UNIT:05}-{unit * UNIT + UNIT - 1:05}]',"
        " uplink: {effective_gb_per_s: 608.0, source: made}}"
        for unit in range(nodes // UNIT)
        for rail in range(RAILS)
    )
    below = ",".join(f"u{unit}r[0-{RAILS - 1}]" for unit in range(nodes // UNIT))
    return f"""\
schema: hpcserve.site/1
name: made
description: made to be measured
node_types:
  box:
    cores: 96
    memory_gib: 1024.0
    gpu: {{model: made, count: {RAILS}, memory_gib: 80.0}}
    nics:
{nics}
    nvlink: [{{gpus: [0, 1, 2, 3, 4, 5, 6, 7], rate: {{effective_gb_per_s: 378.0, source: made}}}}]
    host_path: {{effective_gb_per_s: 51.0, source: made}}
nodes:
  - {{hosts: 'n[00000-{nodes - 1:05}]', type: box}}
partitions: {{}}
switches:
{leaves}
  - {{name: spine, switches: '{below}'}}
networks: {{control: {{interface: eth0}}, data: {{interface: ib0}}}}
slurm: null
transport: {{ucx: {{}}}}
runtimes: {{hpcserve: {{kind: none}}}}
paths: {{jobs: /jobs, models: /models, cache: /cache}}
"""


def random_pairs(fabric: Fabric, count: int) -> list[tuple[GpuAt, GpuAt]]:
    """Pairs of GPUs of two nodes, the same ones in every run."""
    draw = random.Random(count)  # noqa: S311 - no secret
    nodes = fabric.nodes
    pairs: list[tuple[GpuAt, GpuAt]] = []
    while len(pairs) < count:
        a, b = draw.choice(nodes), draw.choice(nodes)
        if a != b:
            pairs.append((GpuAt(a, draw.randrange(RAILS)), GpuAt(b, draw.randrange(RAILS))))
    return pairs


def best(work: Callable[[], T], *, times: int) -> tuple[float, T]:
    """The least time of several runs, and what the last one made."""
    runs = [timed(work) for _ in range(times)]
    return min(seconds for seconds, _ in runs), runs[-1][1]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of processor time of one run, without the garbage collector, and what it made."""
    gc.collect()
    gc.disable()
    started = time.process_time()
    made = work()
    seconds = time.process_time() - started
    gc.enable()
    return seconds, made


if __name__ == "__main__":
    main()
