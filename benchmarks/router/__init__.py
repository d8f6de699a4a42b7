"""Routers side by side on the same fake engines: `python -m benchmarks.router`."""
