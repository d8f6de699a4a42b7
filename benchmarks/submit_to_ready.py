"""From `sbatch` to ready, less what the slowest engine itself needs to start.

    slurm/cluster exec .venv/bin/python -m benchmarks.submit_to_ready SERVICE --site SITE [--launcher L] [--repeat N]

For each repetition: submit, wait until the router has proved every worker, cancel. `engine` is the longest time from an
engine's start to its first healthy answer, from the agents' logs; `added` = ready - engine is what Slurm, agents,
placement, launch, proofs and router cost. Prints JSON: seconds, medians, ranges, n; simulated where the engine is.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

HPCSERVE = Path(sys.executable).with_name("hpcserve")
READY_WITHIN_S = 300


def run_json(*words: str | Path) -> dict[str, object]:
    """What a verb prints with --json."""
    done = subprocess.run([HPCSERVE, *words, "--json"], check=True, capture_output=True, text=True)
    decoded: dict[str, object] = json.loads(done.stdout)
    return decoded


def slowest_engine_s(directory: Path) -> float:
    """Seconds of the slowest engine's own start: from `started` to `healthy` in its agent's log."""
    times: dict[str, dict[str, datetime]] = {}
    for log in (directory / "logs").glob("agent.*.log"):
        for stamp, worker, what in re.findall(r"^(\S+) INFO (\S+): (started|healthy)\b", log.read_text(), re.MULTILINE):
            times.setdefault(worker, {}).setdefault(what, datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f%z"))
    return max((each["healthy"] - each["started"]).total_seconds() for each in times.values() if "healthy" in each)


def measure(service: Path, site: str, launcher: str) -> dict[str, float]:
    """One repetition, in seconds."""
    start_s = time.monotonic()
    directory = Path(str(run_json("submit", service, "--site", site, "--launcher", launcher)["directory"]))
    try:
        subprocess.run([HPCSERVE, "wait", directory, "--timeout", str(READY_WITHIN_S)], check=True, capture_output=True)
        ready_s = time.monotonic() - start_s
        engine_s = slowest_engine_s(directory)
    finally:
        subprocess.run([HPCSERVE, "cancel", directory], check=True, capture_output=True)
    return {"ready_s": ready_s, "engine_s": engine_s, "added_s": ready_s - engine_s}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", type=Path)
    parser.add_argument("--site", required=True)
    parser.add_argument("--launcher", choices=["slurm", "local"], default="slurm")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    rows = [measure(asked.service, asked.site, asked.launcher) for _ in range(asked.repeat)]
    figures = {
        name: {
            "median": round(statistics.median(row[name] for row in rows), 2),
            "range": [round(min(row[name] for row in rows), 2), round(max(row[name] for row in rows), 2)],
        }
        for name in rows[0]
    }
    simulated = "engine: sim" in asked.service.read_text()
    print(json.dumps({"n": len(rows), "simulated": simulated, **figures}, indent=1))


if __name__ == "__main__":
    main()
