"""What the simulator says beside what papers print: queueing formulas, KV on links, DistServe, Splitwise's pools.

    .venv/bin/python -m benchmarks.paper_reproductions [queues links distserve splitwise]

DistServe needs its measured runs, a folder of `*.exp` files (`--distserve-runs`),
simdistserve/benchmarks/alignment/data-ground-truth/opt-13b-sharegpt at commit 20a1633e of github.com/LLMServe/DistServe
(Apache-2.0). Splitwise needs `--splitwise-table`, data/perf_model.csv of github.com/Mutinifni/splitwise-sim (MIT), and
`--azure-code`, AzureLLMInferenceTrace_code.csv of github.com/Azure/AzurePublicDataset (CC-BY 4.0). docs/simulation.md
has the numbers and the reasons for the distance.
"""

import argparse
from pathlib import Path

from benchmarks.paper_reproductions.distserve import distserve_artefact, distserve_measured, distserve_table_3
from benchmarks.paper_reproductions.links import links
from benchmarks.paper_reproductions.queues import queues
from benchmarks.paper_reproductions.splitwise import splitwise_pools

PARTS = ("queues", "links", "distserve", "splitwise")


def main() -> None:
    """Print the parts that are asked for."""
    asked = argparse.ArgumentParser(
        prog="python -m benchmarks.paper_reproductions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked.add_argument("parts", nargs="*", default=["queues", "links"], help=f"of: {', '.join(PARTS)}")
    asked.add_argument("--distserve-runs", type=Path)
    asked.add_argument("--splitwise-table", type=Path)
    asked.add_argument("--azure-code", type=Path)
    asked.add_argument("--requests", type=int, default=300_000, help="of each queueing run")
    options = asked.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        asked.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if "queues" in options.parts:
        queues(options.requests)
    if "links" in options.parts:
        links()
    if "distserve" in options.parts:
        runs = options.distserve_runs or asked.error("--distserve-runs is needed for distserve")
        distserve_artefact(runs)
        distserve_measured(runs)
        distserve_table_3(runs)
    if "splitwise" in options.parts:
        if not (options.splitwise_table and options.azure_code):
            asked.error("--splitwise-table and --azure-code are needed for splitwise")
        splitwise_pools(options.splitwise_table, options.azure_code)


if __name__ == "__main__":
    main()
