"""The simulated engine: vLLM's HTTP API, P/D handshake and metrics without a model; whatever it produces says so.

In: argv shaped like `vllm serve` and vLLM's variables. Out: an HTTP server whose tokens prove which KV they came from.
May touch: sockets, clock, environment, its own process. Started as `python -m hpcserve.simengine serve MODEL ...`.
"""

from hpcserve.simengine.server import run, version
from hpcserve.simengine.settings import Settings, read_settings

__all__ = ["Settings", "read_settings", "run", "version"]
