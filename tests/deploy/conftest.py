"""A site and a model of their own for each test."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.cases import CONFIGS, HERE, ROOT

SERVICE = HERE / "services" / "local.sim.yaml"
Shards = Callable[..., Path]


def safetensors(path: Path, *, size_bytes: int = 16, cut_bytes: int = 0) -> None:
    """A file of that format with one tensor, cut short where asked."""
    header = json.dumps({"t": {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}}).encode()
    data = struct.pack("<Q", len(header)) + header + b"\0" * size_bytes
    path.write_bytes(data[: len(data) - cut_bytes])


def write_site(folder: Path) -> Path:
    """The shipped `local` site with its folders under `folder`."""
    text = (ROOT / "site_configs" / "local.yaml").read_text(encoding="utf-8")
    paths = {"~/.local/share/hpcserve/jobs": "jobs", "~/.cache/hpcserve/models": "models"}
    for shipped, name in paths.items():
        assert shipped in text
        text = text.replace(shipped, str(folder / name))
    path = folder / "here.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def write_model(folder: Path) -> Path:
    """A model directory with one shard."""
    model = folder / "models" / "SmolLM2-135M-Instruct"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIGS["smollm2"]))
    safetensors(model / "model.safetensors")
    return model


def write_service(folder: Path) -> Path:
    path = folder / "sim.yaml"
    path.write_text(SERVICE.read_text(encoding="utf-8"), encoding="utf-8")
    return path


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    return write_site(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


@pytest.fixture
def service_file(model: Path) -> Path:
    """Beside the folder of its model."""
    return write_service(model.parents[1])
