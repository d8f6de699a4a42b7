"""The directory of a model: found, and whole, before anything is submitted."""

import json
from dataclasses import dataclass
from pathlib import Path

from hpcserve.deploy.places import read_text
from hpcserve.discovery import typed_path
from hpcserve.errors import InputError, Mistake, NotFoundError
from hpcserve.nouns import Service, Site

__all__ = ["ModelFiles", "model_directory", "read_model"]

_INDEX = "model.safetensors.index.json"
_QUANTISATION = "hf_quant_config.json"
_LENGTH_BYTES = 8
_REMEDY = "fetch the model again (`hpcserve model fetch`, `huggingface-cli download`), or correct `model`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """What is read of a model before it is placed."""

    directory: Path
    config_text: str
    weights_bytes: int | None
    """Bytes of the safetensors files; None where they are not whole, or there are none."""
    trouble: str
    """Why no engine could load the weights; empty where they are whole, or none are needed (the simulated engine)."""
    quantisation_text: str | None = None
    """Of `hf_quant_config.json`, which may say in what type the KV is kept; None where there is none."""

    def require_whole(self) -> None:
        """Raises NotFoundError where an engine could not load the weights.

        A worker that finds half a model dies on its node minutes later; what a broken download left is found here.
        """
        if self.trouble:
            raise NotFoundError(self.trouble, remedy=_REMEDY)


def model_directory(service: Service, site: Site) -> Path:
    """Where the service's model lies: absolute, under `~`, or relative to the site's `paths.models`."""
    return typed_path(site.paths.models) / typed_path(service.model)


def read_model(service: Service, site: Site) -> ModelFiles:
    """The model's config and the state of its weights; raises NotFoundError where there is no config to plan with."""
    directory = model_directory(service, site)
    config = directory / "config.json"
    if not directory.is_dir():
        raise NotFoundError(f"no model directory {directory}", remedy=_REMEDY)
    if not config.is_file():
        raise NotFoundError(f"{directory} has no config.json: it is no Hugging Face model", remedy=_REMEDY)
    side = directory / _QUANTISATION
    weights_bytes, trouble = None, ""
    try:
        weights_bytes = _weights_bytes(directory)
    except _NotWholeError as error:
        trouble = str(error)
    if weights_bytes is None and not trouble and service.engine != "sim":
        trouble = f"{directory} holds no *.safetensors weights"
    return ModelFiles(
        directory=directory,
        config_text=read_text(config),
        weights_bytes=weights_bytes,
        trouble=trouble,
        quantisation_text=side.read_text(encoding="utf-8", errors="replace") if side.is_file() else None,
    )


class _NotWholeError(Exception):
    """What is wrong with the weights, in words."""


def _weights_bytes(directory: Path) -> int | None:
    shards = _shards(directory)
    missing = [name for name in shards if not (directory / name).is_file()]
    if missing:
        raise _NotWholeError(f"{directory} is incomplete: {', '.join(missing)} missing")
    return sum(_whole(directory / name) for name in shards) if shards else None


def _shards(directory: Path) -> tuple[str, ...]:
    """Names of the weight files: those that the index lists, else whatever is there."""
    index = directory / _INDEX
    if not index.is_file():
        return tuple(sorted(path.name for path in directory.glob("*.safetensors")))
    try:
        return tuple(sorted(set(json.loads(index.read_bytes())["weight_map"].values())))
    except (ValueError, KeyError, AttributeError, TypeError):
        mistake = Mistake(
            file=str(index),
            line=1,
            column=1,
            found="no `weight_map`",
            wanted="the index of a sharded model was wanted",
            remedy=_REMEDY,
        )
        raise InputError([mistake]) from None


def _whole(path: Path) -> int:
    """Bytes of one safetensors file, after checking that it ends where its header says.

    Format: 8 bytes little-endian length of the header, the header as JSON with `data_offsets`, the data
    (github.com/huggingface/safetensors, Format).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        try:
            header = json.loads(file.read(length) if _LENGTH_BYTES + length <= size else b"")
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise _NotWholeError(f"{path} is cut short or no safetensors file ({size} bytes)") from None
    if size != _LENGTH_BYTES + length + end:
        raise _NotWholeError(f"{path} is cut short: {size} bytes of {_LENGTH_BYTES + length + end}")
    return size
