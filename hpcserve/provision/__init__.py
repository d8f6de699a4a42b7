"""The engine environment and the model, made ready on this machine; what the cluster's tools print, collected.

In: where to put them; which nodes. Out: EngineEnvironment, the model's folder, Collected. May touch: processes, files,
the network through pip, Slurm's commands.
"""

from hpcserve.provision.cache import cache_directory
from hpcserve.provision.collect import Collected, Printed, collect
from hpcserve.provision.collect_commands import commands_in_words
from hpcserve.provision.engine import EngineEnvironment, engine_prefix, find_engine, install_engine, tested_versions
from hpcserve.provision.model import MODEL_NAMES, fetch_model, model_directory
from hpcserve.provision.progress import Progress, Report

__all__ = [
    "MODEL_NAMES",
    "Collected",
    "EngineEnvironment",
    "Printed",
    "Progress",
    "Report",
    "cache_directory",
    "collect",
    "commands_in_words",
    "engine_prefix",
    "fetch_model",
    "find_engine",
    "install_engine",
    "model_directory",
    "tested_versions",
]
