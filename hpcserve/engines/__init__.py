"""Per engine: argv, environment, capability of what is installed, handoff, metric names, failures in words.

In: nouns (service, site, planned worker, granted node) and texts that engines print. Out: `EngineCommand`, `Handoff`,
`EngineCounters`, complaints, sentences. May touch: nothing; `vllm_facts.py` is a script for the engine's own Python.
"""

from hpcserve.engines.adapter import Adapter, EngineCommand, adapter_for, peer_gpus, transfer_rates
from hpcserve.engines.command import keeps_prefixes
from hpcserve.engines.counters import EngineCounters, read_counters
from hpcserve.engines.failures import explain_failure
from hpcserve.engines.netdevices import PortState, kv_net_devices
from hpcserve.engines.words import option_count, option_value

__all__ = [
    "Adapter",
    "EngineCommand",
    "EngineCounters",
    "PortState",
    "adapter_for",
    "explain_failure",
    "keeps_prefixes",
    "kv_net_devices",
    "option_count",
    "option_value",
    "peer_gpus",
    "read_counters",
    "transfer_rates",
]
