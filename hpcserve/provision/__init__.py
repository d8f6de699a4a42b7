"""The engine environment and the model, made ready on this machine.

In: where to put them. Out: EngineEnvironment, the model's folder. May touch: processes, files, the network through pip.
"""

from hpcserve.provision.cache import cache_directory
from hpcserve.provision.engine import EngineEnvironment, engine_prefix, find_engine, install_engine
from hpcserve.provision.model import MODEL_NAMES, fetch_model, model_directory
from hpcserve.provision.progress import Progress, Report

__all__ = [
    "MODEL_NAMES",
    "EngineEnvironment",
    "Progress",
    "Report",
    "cache_directory",
    "engine_prefix",
    "fetch_model",
    "find_engine",
    "install_engine",
    "model_directory",
]
