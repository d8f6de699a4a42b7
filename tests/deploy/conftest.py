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


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    """The shipped `local` site with its folders under tmp_path."""
    text = (ROOT / "site_configs" / "local.yaml").read_text(encoding="utf-8")
    paths = {"~/.local/share/hpcserve/jobs": "jobs", "~/.cache/hpcserve/models": "models"}
    for shipped, name in paths.items():
        assert shipped in text
        text = text.replace(shipped, str(tmp_path / name))
    path = tmp_path / "here.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model directory with one shard."""
    folder = tmp_path / "models" / "SmolLM2-135M-Instruct"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS["smollm2"]))
    safetensors(folder / "model.safetensors")
    return folder


@pytest.fixture
def service_file(tmp_path: Path, model: Path) -> Path:  # noqa: ARG001 - a service is of no use without its model
    path = tmp_path / "sim.yaml"
    path.write_text(SERVICE.read_text(encoding="utf-8"), encoding="utf-8")
    return path
