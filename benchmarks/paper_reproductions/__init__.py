"""What the simulator says beside what papers print: `python -m benchmarks.paper_reproductions`."""
