"""The engine environment and the model that are installed on this machine, in hpcserve's cache."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcserve.errors import MissingToolError
from hpcserve.provision import (
    EngineEnvironment,
    cache_directory,
    engine_prefix,
    fetch_model,
    find_engine,
    install_engine,
    model_directory,
)
from hpcserve.provision.checksums import verify_checksums

pytestmark = pytest.mark.real

NAME = "smollm2-135m-instruct"
CACHE = cache_directory(os.environ)

IDLE_AGENT = """\
import os, time
from vllm.plugins import load_general_plugins
load_general_plugins()
from nixl._api import nixl_agent, nixl_agent_config
from vllm.platforms.cpu import CpuPlatform
agent = nixl_agent("idle", nixl_agent_config())
before_s = time.process_time()
time.sleep(3)
print("share", (time.process_time() - before_s) / 3, CpuPlatform.discover_numa_topology(), flush=True)
os._exit(0)  # NIXL's threads may crash an interpreter that takes itself down around them
"""

LINEAR = """\
import sys, torch
torch.backends.cpu.get_cpu_capability = lambda: sys.argv[1]
import hpcserve_vllm_cpu
hpcserve_vllm_cpu.register()
hpcserve_vllm_cpu.register()
from vllm.model_executor.layers import utils
torch.manual_seed(0)
layer = torch.nn.Linear(64, 48, bias=True).bfloat16()
weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
utils.dispatch_cpu_unquantized_gemm(layer, True)
x = torch.randn(5, 64).bfloat16()
y = layer.cpu_linear(x, layer.weight, layer.bias)
exact = x.double() @ weight.t() + bias
print(layer.cpu_linear.__module__, y.dtype, float(((y - exact) / exact).abs().max()) < 2**-8)
"""


@pytest.fixture(scope="module")
def engine() -> EngineEnvironment:
    found = find_engine(engine_prefix(CACHE))
    if found is None:
        pytest.fail(f"no engine environment at {engine_prefix(CACHE)}: run `hpcserve engine install`")
    return found


@pytest.fixture(scope="module")
def model() -> Path:
    folder = model_directory(NAME, CACHE)
    if not folder.exists():
        pytest.fail(f"no model at {folder}: run `hpcserve model fetch {NAME}`")
    return folder


def test_a_nixl_agent_idles_at_no_cost_because_vllm_loads_the_plugin(engine: EngineEnvironment) -> None:
    environment = {**os.environ, "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    environment.pop("PYTHONPATH", None)
    ran = subprocess.run(
        [engine.python, "-c", IDLE_AGENT], env=environment, cwd="/", check=True, capture_output=True, text=True
    )
    _, share, cores = ran.stdout.splitlines()[-1].split(maxsplit=2)
    assert float(share) < 0.2  # 1.0 without the plugin
    assert cores == "[]"


@pytest.mark.parametrize(
    ("capability", "module"), [("AVX2", "hpcserve_vllm_cpu"), ("AVX512", "vllm.model_executor.layers.utils")]
)
def test_16_bit_layers_are_computed_in_float32_only_where_the_cpu_has_no_kernels_for_them(
    engine: EngineEnvironment, capability: str, module: str
) -> None:
    ran = subprocess.run([engine.python, "-c", LINEAR, capability], cwd="/", check=True, capture_output=True, text=True)
    computed_by, kind, close = ran.stdout.splitlines()[-1].split()
    assert (computed_by, kind) == (module, "torch.bfloat16")
    assert close == "True" or capability == "AVX512"  # vLLM's own rounding is not ours to judge


def test_pip_knows_both_distributions_of_ours(engine: EngineEnvironment) -> None:
    shown = subprocess.run(
        [engine.python, "-m", "pip", "show", "vllm", "hpcserve-vllm-cpu"], check=True, capture_output=True, text=True
    )
    assert f"Name: vllm\nVersion: {engine.vllm_version}" in shown.stdout


def test_doing_it_again_takes_no_time(engine: EngineEnvironment, model: Path) -> None:
    started_s = time.monotonic()
    assert install_engine(engine.prefix, report=print) == engine
    assert fetch_model(NAME, model, engine, report=print) == model
    assert time.monotonic() - started_s < 2


def test_the_model_is_as_it_was_made_and_has_23040_kv_bytes_per_token(model: Path) -> None:
    verify_checksums(model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    assert config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 2 * 2 == 23_040
    assert config["dtype"] == "bfloat16"
    assert "<|im_start|>" in (model / "chat_template.jinja").read_text(encoding="utf-8")


def test_an_empty_pip_configuration_stops_before_any_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_") and name != "PIP_CERT"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    started_s = time.monotonic()
    with pytest.raises(MissingToolError, match=r"pip config set global\.extra-index-url"):
        install_engine(tmp_path / "engine", report=print)
    assert time.monotonic() - started_s < 60
    assert not (tmp_path / "engine").exists()


def test_the_commands_say_what_is_there(engine: EngineEnvironment, model: Path) -> None:
    script = (
        "from hpcserve.cli.engine import engine; from hpcserve.cli.model_fetch import model;"
        f"engine(['install'], standalone_mode=False); model(['fetch', {NAME!r}], standalone_mode=False)"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout == (f"vllm {engine.vllm_version}, nixl {engine.nixl_version} at {engine.prefix}\n{model}\n")
    assert ran.stderr == ""
