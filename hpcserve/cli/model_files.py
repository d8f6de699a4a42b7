"""The files of a model as `hpcserve model show` finds and reads them; nothing is downloaded."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from hpcserve.deploy import FILE, FOLDER, what_is_there
from hpcserve.discovery import typed_path
from hpcserve.errors import NotFoundError
from hpcserve.model import WeightsCount, count_weights, header_bytes, index_bytes
from hpcserve.provision import cache_directory

__all__ = ["QUANTISATION", "find_config", "weights_of"]

QUANTISATION = "hf_quant_config.json"
_CONFIG = "config.json"
_WANTED = "a model's folder, its config.json, or a Hugging Face id was wanted"
_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]*/)?[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
"""ORGANISATION/NAME or NAME (huggingface_hub, validate_repo_id)."""
_SUFFIXES = (".json", ".yaml", ".safetensors")
_INDEX = "model.safetensors.index.json"
_LENGTH_BYTES = 8  # before a safetensors header (github.com/huggingface/safetensors, Format)
_LONGEST_HEADER = 100_000_000  # the limit of safetensors' own reader


def find_config(name: str) -> Path:
    """The config.json that PATH_OR_ID means: a path first, then hpcserve's models, then Hugging Face's cache.

    Raises NotFoundError where there is none, or something that is no file.
    """
    if not name:
        raise NotFoundError(f"nothing is named; {_WANTED}", remedy="name one: hpcserve model show ~/models/NAME")
    path = typed_path(name)
    there = what_is_there(path)
    if there == FOLDER:
        path /= _CONFIG
        there = what_is_there(path)
        if not there:
            raise NotFoundError(
                f"{path.parent} has no {_CONFIG}: it is no Hugging Face model", remedy="name the model's folder"
            )
    if there == FILE:
        return path
    if there:
        raise NotFoundError(f"{path}: {there}; {_WANTED}", remedy="save what it holds to a file first")
    own = cache_directory(os.environ) / "models" / name / _CONFIG
    if own.is_file():
        return own
    return _cached(name)


def _cached(name: str) -> Path:
    """The config.json of a Hugging Face id that was downloaded; raises NotFoundError."""
    if not _ID.fullmatch(name) or name.endswith(_SUFFIXES):
        raise NotFoundError(f"no file or folder {name}; {_WANTED}", remedy="check the path")
    hub = _hub(os.environ)
    cached = hub / f"models--{name.replace('/', '--')}"
    found = sorted(cached.glob(f"snapshots/*/{_CONFIG}"), key=lambda one: (one.stat().st_mtime, str(one)))
    main = cached / "refs" / "main"
    if main.is_file():
        current = cached / "snapshots" / main.read_text(encoding="utf-8", errors="replace").strip() / _CONFIG
        found = [current] if current.is_file() else found
    if not found:
        raise NotFoundError(
            f"no folder, file or cached model {name} (looked in {hub})",
            remedy=f"name a path, or fetch it first: huggingface-cli download {name} {_CONFIG}",
        )
    return found[-1]


def _hub(environment: Mapping[str, str]) -> Path:
    """Hugging Face's cache (huggingface_hub, Environment variables)."""
    if environment.get("HF_HUB_CACHE"):
        return typed_path(environment["HF_HUB_CACHE"])
    return typed_path(environment.get("HF_HOME") or "~/.cache/huggingface") / "hub"


def weights_of(config: Path, text: str) -> WeightsCount:
    """Bytes by the index, else by the files' headers, else by arithmetic."""
    index = config.with_name(_INDEX)
    size = index_bytes(index.read_text(encoding="utf-8", errors="replace")) if index.is_file() else None
    if size is not None:
        return WeightsCount(total_bytes=size, parameters=None, source=f"total_size of {_INDEX}")
    # nothing is read from a pipe that lies there
    files = sorted(path for path in config.parent.glob("*.safetensors") if path.is_file())
    sizes = [_tensor_bytes(file) for file in files]
    if sizes and all(sizes):
        return WeightsCount(
            total_bytes=sum(one or 0 for one in sizes), parameters=None, source="headers of *.safetensors"
        )
    return count_weights(text, source=str(config))


def _tensor_bytes(path: Path) -> int | None:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        return header_bytes(file.read(length).decode("utf-8", "replace")) if length <= _LONGEST_HEADER else None
