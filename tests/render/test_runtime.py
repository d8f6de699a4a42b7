"""Entering a runtime, with stand-ins for `module` and `apptainer`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcserve.errors import PlacementError
from hpcserve.nouns import Runtime, RuntimeKind
from hpcserve.render.runtime import runtime_files
from tests.golden.cases import TEMPLATES, case

NASTY = "a b'\"$HOME`id`\\é"
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def entered(
    tmp_path: Path, runtime: Runtime, *, name: str = "vllm", site: str = "onebox.smollm2", gpu: str = "cpu"
) -> Path:
    found = case(site)
    types = {
        kind: node.model_copy(update={"gpu": node.gpu.model_copy(update={"model": gpu})})
        for kind, node in found.site.node_types.items()
    }
    files = runtime_files(
        site=found.site.model_copy(update={"runtimes": {name: runtime}, "node_types": types}),
        service=found.service,
        templates=TEMPLATES,
        directory=str(tmp_path / "job"),
        python_folder=str(tmp_path / "own python"),
    )
    (file,) = files
    assert file.path == f"runtimes/{name}.sh"
    script = tmp_path / "enter.sh"
    script.write_text(file.text, encoding="utf-8")
    return script


def run(script: Path, *argv: str, path: Path | None = None) -> tuple[list[str], dict[str, str]]:
    search = os.environ["PATH"] if path is None else f"{path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", script, *(argv or (sys.executable, "-c", SHOW, NASTY))],
        env={"PATH": search, "HOME": str(script.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    words, environment = json.loads(done.stdout)
    return words, environment


def program(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\nexec {sys.executable} -c '{SHOW}' {name} \"$@\"\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("path", [f"/opt/{NASTY}/venv", f"~/{NASTY}/venv"])
def test_a_venv_is_entered_and_arguments_and_variables_arrive(tmp_path: Path, path: str) -> None:
    script = entered(tmp_path, Runtime(kind=RuntimeKind.VENV, path=path, env={"A": NASTY, "B": "two\nlines"}))
    words, environment = run(script)
    folder = path.replace("~", str(tmp_path), 1)
    assert words == [NASTY]
    assert environment["VIRTUAL_ENV"] == folder
    assert environment["PATH"].startswith(f"{folder}/bin:")
    assert (environment["A"], environment["B"]) == (NASTY, "two\nlines")


def test_a_script_can_enter_it_by_source(tmp_path: Path) -> None:
    script = entered(tmp_path, Runtime(kind=RuntimeKind.VENV, path="/opt/venv"))
    done = subprocess.run(
        ["bash", "-c", 'source "$1" && "${within[@]}" printenv VIRTUAL_ENV', "bash", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "/opt/venv\n"


def test_modules_are_loaded_first_and_a_missing_one_stops_everything(tmp_path: Path) -> None:
    script = entered(tmp_path, Runtime(kind=RuntimeKind.MODULES, modules=("cuda/12.8", NASTY)))
    module = 'module() { printf "%s\\n" "$@"; [[ $2 != "$MISSING" ]]; }; export -f module; bash "$1" echo entered'
    done = subprocess.run(["bash", "-c", module, "bash", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["load", "cuda/12.8", "load", NASTY, "entered"]
    refused = subprocess.run(
        ["bash", "-c", module, "bash", script],
        env={**os.environ, "MISSING": "cuda/12.8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stdout.splitlines() == ["load", "cuda/12.8"]


@pytest.mark.parametrize(
    ("site", "gpu", "flag"),
    [
        ("onebox.smollm2", "cpu", []),
        ("h100-ib.llama", "H100-SXM", ["--nv"]),
        ("h100-ib.llama", "MI300X", ["--rocm"]),
    ],
)
def test_a_container_sees_the_job_the_models_and_the_gpus(tmp_path: Path, site: str, gpu: str, flag: list[str]) -> None:
    program(tmp_path / "bin", "apptainer")
    script = entered(tmp_path, Runtime(kind=RuntimeKind.APPTAINER, path=f"~/{NASTY}.sif"), site=site, gpu=gpu)
    words, _ = run(script, "vllm", NASTY, path=tmp_path / "bin")
    assert words[: 2 + len(flag)] == ["apptainer", "exec", *flag]
    assert words[-3:] == [f"{tmp_path}/{NASTY}.sif", "vllm", NASTY]
    assert words[words.index("--bind") + 1] == str(tmp_path / "job")


def test_a_container_sees_further_folders_as_the_site_says(tmp_path: Path) -> None:
    program(tmp_path / "bin", "apptainer")
    runtime = Runtime(kind=RuntimeKind.APPTAINER, path="/a.sif", mounts=("/scratch", f"~/{NASTY}:/to"))
    words, _ = run(entered(tmp_path, runtime), "vllm", path=tmp_path / "bin")
    assert words[-6:] == ["--bind", "/scratch", "--bind", f"{tmp_path}/{NASTY}:/to", "/a.sif", "vllm"]


def test_pyxis_enters_by_srun_on_the_own_node_and_cores_and_says_the_gpus_again(tmp_path: Path) -> None:
    program(tmp_path / "bin", "srun")
    program(tmp_path / "bin", "taskset")
    (tmp_path / "bin" / "taskset").write_text('#!/bin/bash\necho "pid 7\'s current affinity mask: 3c"\n')
    runtime = Runtime(
        kind=RuntimeKind.PYXIS,
        path=f"/images/{NASTY}.sqsh",
        mounts=("/scratch", "/from:/to"),
        env={
            "SLURMD_NODENAME": "node02",
            "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
            "UCX_TLS": "rc",
            "VLLM_API_KEY": "secret",
        },
    )
    words, environment = run(entered(tmp_path, runtime), "vllm", NASTY, path=tmp_path / "bin")
    assert words[0] == "srun"
    assert words[-4:] == ["env", "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", "vllm", NASTY]
    options = dict(word.partition("=")[::2] for word in words[1:-4])
    assert options["--nodelist"] == "node02"
    assert options["--cpu-bind"] == "mask_cpu:0x3c"
    assert options["--container-image"] == f"/images/{NASTY}.sqsh"
    job = tmp_path / "job"
    assert options["--container-mounts"].split(",")[0] == f"{job}:{job}"
    assert options["--container-mounts"].split(",")[-2:] == ["/scratch:/scratch", "/from:/to"]
    assert options["--container-env"].split(",") == ["UCX_TLS", "VLLM_API_KEY"]
    assert not [word for word in words if "secret" in word]
    assert environment["VLLM_API_KEY"] == "secret"


def test_what_pyxis_cannot_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="comma"):
        entered(tmp_path, Runtime(kind=RuntimeKind.PYXIS, path="/a.sqsh", mounts=("/a,b",)))


def test_without_an_environment_of_its_own_hpcserve_runs_with_the_python_that_submits(tmp_path: Path) -> None:
    program(tmp_path / "own python", "python")
    script = entered(tmp_path, Runtime(kind=RuntimeKind.NONE), name="hpcserve")
    words, _ = run(script, "python", "-m", "hpcserve.agent")
    assert words == ["python", "-m", "hpcserve.agent"]
    other = entered(tmp_path, Runtime(kind=RuntimeKind.NONE), name="vllm")
    assert "own python" not in other.read_text()
