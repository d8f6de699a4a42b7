"""`hpcserve plan` with latency models: what is printed, and what is refused."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hpcserve.cli.program import run
from hpcserve.deploy import Prepared
from hpcserve.draw import comparison_table
from hpcserve.nouns import Comparison, JobHandle, Outlook, Plan
from hpcserve.wire import decode_record
from tests.deploy.conftest import model, service_file, site_file
from tests.docs.pages import ROOT

__all__ = ["model", "service_file", "site_file"]

Captured = pytest.CaptureFixture[str]

CONFIG = """{"architectures": ["OPTForCausalLM"], "hidden_size": 5120, "ffn_dim": 20480, "num_attention_heads": 40,
"max_position_embeddings": 2048, "num_hidden_layers": 40, "torch_dtype": "float16", "model_type": "opt"}"""
SERVICE = """\
schema: hpcserve.service/1
name: opt
model: {folder}
served_name: opt
engine: vllm
mode: auto
partition: boost
account: lab
time: 1:00:00
pools:
  - {{role: prefill, workers: 2}}
  - {{role: decode, workers: 1, tensor_parallel: 2}}
slo: {{ttft_ms: 200.0, tpot_ms: 25.0}}
workload: {{input_tokens: 512, output_tokens: 64}}
"""
LATENCY = [word for ranks in (1, 2) for word in ("--latency", f"distserve-opt-13b-a100-tp{ranks}")]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a plan of OPT-13B on A100s."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt" / "config.json").write_text(CONFIG)
    (tmp_path / "opt.yaml").write_text(SERVICE.format(folder=tmp_path / "opt"))
    return ["plan", str(tmp_path / "opt.yaml"), "--site", "a100-hdr-dragonfly"]


def test_the_verdict_is_simulated_with_a_latency_model_and_explained(asked: list[str], capsys: Captured) -> None:
    assert run([*asked, *LATENCY, "--explain"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"Verdict: separate prefill and decode: [\d.]+ good requests/s per GPU against [\d.]+ agg", shown)
    assert "goodput per GPU, separate" in shown
    assert "Zhong et al., OSDI 2024" in shown
    assert run(asked) == 0
    assert "workload.prefill_tokens_per_s (measured) or a latency model (--latency)" in capsys.readouterr().out


def test_alternatives_are_a_table_and_json_has_the_plan_in_it(asked: list[str], capsys: Captured) -> None:
    assert run([*asked, *LATENCY, "--compare", "--json"]) == 0
    found = decode_record(Comparison, capsys.readouterr().out.encode())
    shown = comparison_table(found)
    assert "*=   2 prefill TP 1 + 1 decode TP 2" in shown
    assert "TP 4 of prefill, decode, aggregated workers: no latency model was given" in shown
    assert [one.chosen for one in found.alternatives].count(True) == 1
    assert found.plan.verdict.basis == "simulation"


def test_gpus_choose_the_pools_and_say_them_as_yaml(asked: list[str], capsys: Captured) -> None:
    assert run([*asked, *LATENCY, "--gpus", "4"]) == 0
    shown = capsys.readouterr().out
    assert "mode: disaggregated\npools:\n  - role: prefill\n    workers: 2\n    tensor_parallel: 1\n" in shown


def test_the_plan_is_drawn_whole_or_not_at_all(asked: list[str], tmp_path: Path, capsys: Captured) -> None:
    assert run([*asked, "--svg", str(tmp_path / "no folder" / "plan.svg")]) == 1
    assert "is no folder" in capsys.readouterr().err
    drawing = tmp_path / "plan.svg"
    assert run([*asked, "--svg", str(drawing), "--json"]) == 0
    assert decode_record(Plan, capsys.readouterr().out.encode()).service == "opt"
    assert ET.fromstring(drawing.read_text()).tag.endswith("svg")  # noqa: S314 - our own file


def test_without_slurm_the_outlook_says_what_it_does_not_know(
    asked: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run([*asked, "--allocations"]) == 0
    assert "Before Slurm has chosen: 1 node of a100-hdr-dragonfly is asked for." in capsys.readouterr().out
    assert run([*asked, "--allocations", "--json"]) == 0
    assert decode_record(Outlook, capsys.readouterr().out.encode()).idle_nodes is None


def test_what_slurm_is_asked_for_is_one_line_and_in_the_json(asked: list[str], capsys: Captured) -> None:
    assert run(asked) == 0
    [line] = [one for one in capsys.readouterr().out.splitlines() if one.startswith("Slurm is asked for: ")]
    assert line.startswith(
        "Slurm is asked for: --partition=boost --account=lab --time=1:00:00 --nodes=1 --gres=gpu:4 --exclusive --mem=0 "
    )
    assert run([*asked, "--json"]) == 0
    plan = decode_record(Plan, capsys.readouterr().out.encode())
    assert line == f"Slurm is asked for: {' '.join(plan.ask.options)}"
    assert run([*asked, *LATENCY, "--compare", "--json"]) == 0
    assert decode_record(Comparison, capsys.readouterr().out.encode()).plan.ask.options == plan.ask.options


def test_a_partition_of_several_types_is_said(asked: list[str], tmp_path: Path, capsys: Captured) -> None:
    site = (ROOT / "site_configs/a100-hdr-dragonfly.yaml").read_text()
    two = "  - hosts: c1n[001-180]\n    type: other\n  - hosts: c[2-4]n[001-180]\n    type: a100\n"
    kind = site[site.index("  a100:\n") : site.index("\nnodes:\n")]
    kind = kind.replace("a100:", "other:", 1).replace("count: 4", "count: 4\n      gres: other")
    for mark in ("&hdr100", "*hdr100"):
        kind = kind.replace(mark, mark.replace("hdr100", "its"))
    site = site.replace("  - hosts: c[1-4]n[001-180]\n    type: a100\n", two).replace(
        "\nnodes:\n", f"\n{kind}\nnodes:\n"
    )
    (tmp_path / "two.yaml").write_text(site)
    assert run([*asked[:-1], str(tmp_path / "two.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "several types (180 other, 540 a100), and Slurm may grant any of them; the plan is for other." in shown
    assert run(asked) == 0
    assert "several types" not in capsys.readouterr().out


def test_submit_says_the_verdict_and_the_mode_beside_it(
    site_file: Path, service_file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode is the user's, the verdict on it the plan's."""

    def started(prepared: Prepared) -> JobHandle:
        return JobHandle(
            name="sim-1",
            launcher="local",
            id="1",
            directory=str(prepared.directory),
            submitted_utc="2026-01-01T00:00:00Z",
        )

    monkeypatch.setattr("hpcserve.cli.submit.launch", started)
    assert run(["submit", str(service_file), "--site", str(site_file)]) == 0
    shown = capsys.readouterr().out
    assert "\n  Verdict: serve aggregated" in shown
    assert "\n  Mode asked for: disaggregated; served: disaggregated.\n" in shown


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--compare"], 2, "give at least one --latency"),
        (["--gpus", "4"], 2, "give at least one --latency"),
        (["--latency", "distserve-opt-13b-a100-tp3"], 3, "did you mean distserve-opt-13b-a100-tp"),
        (["--latency", "distserve-opt-13b-a100-tp1"], 3, "no latency model of a decode worker with tensor_parallel 2"),
        ([*LATENCY, "--gpus", "100000"], 4, "100000 GPUs were asked for, and partition boost has 2880"),
    ],
)
def test_what_cannot_be_simulated_is_told(
    asked: list[str], words: list[str], code: int, said: str, capsys: Captured
) -> None:
    assert run([*asked, *words]) == code
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert not told.out
