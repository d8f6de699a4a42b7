"""`hpcserve latency`: what it prints, writes and refuses."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hpcserve.cli.program import run
from hpcserve.discovery import write_record
from hpcserve.latency import Chunk, model_of, named, read_latency
from hpcserve.nouns import Run
from tests.latency.test_fit import TRUE, several_lengths
from tests.latency.test_sampled import Times
from tests.latency.test_splitwise import TABLE
from tests.latency.world import alone

Captured = pytest.CaptureFixture[str]


def results(folder: Path, runs: list[Run]) -> Path:
    (folder / "runs").mkdir(parents=True)
    for index, run_ in enumerate(runs):
        write_record(folder / "runs" / f"{index}.json", run_)
    return folder


def test_fit_prints_what_it_found_and_writes_what_show_reads(tmp_path: Path, capsys: Captured) -> None:
    folder, output = results(tmp_path / "results", several_lengths()), tmp_path / "tiny.json"
    assert run(["latency", "fit", str(folder), "--output", str(output), "--kv-tokens", "5000"]) == 0
    printed = capsys.readouterr()
    assert "tiny on cpu with vllm: measured" in printed.out
    assert "off by" in printed.out
    assert "n = " in printed.out
    assert f"wrote {output}" in printed.err
    assert run(["latency", "show", str(output)]) == 0
    assert capsys.readouterr().out == printed.out
    file = read_latency(output.read_text(), source="tiny.json")
    assert file.kv_tokens == 5000
    assert model_of(file).prefill_ms([Chunk(512, 0)]) == pytest.approx(TRUE.prefill_ms([Chunk(512, 0)]), rel=0.05)


def test_json_is_the_file(tmp_path: Path, capsys: Captured) -> None:
    folder, output = results(tmp_path / "results", several_lengths()), tmp_path / "tiny.json"
    assert run(["latency", "fit", str(folder), "--output", str(output), "--json"]) == 0
    assert capsys.readouterr().out == output.read_text()
    assert run(["latency", "show", str(output), "--json"]) == 0
    assert capsys.readouterr().out == output.read_text()


def test_sweeps_of_several_lengths_are_fitted_together(tmp_path: Path, capsys: Captured) -> None:
    runs = several_lengths()
    folders = [results(tmp_path / f"of-{index}", [one]) for index, one in enumerate(runs)]
    assert run(["latency", "fit", *map(str, folders)]) == 0
    capsys.readouterr()
    assert run(["latency", "fit", str(folders[0])]) == 1
    refused = capsys.readouterr().err
    assert "prompts of 256 computed tokens do not tell its base" in refused
    assert "another input_tokens" in refused


def test_placements_are_chosen_by_name(tmp_path: Path, capsys: Captured) -> None:
    far = alone(TRUE, input_tokens=256, placement="far").model_copy(update={"simulated": True})
    folder = results(tmp_path / "results", [*several_lengths(), far])
    assert run(["latency", "fit", str(folder)]) == 1
    assert "different workers" in capsys.readouterr().err
    assert run(["latency", "fit", str(folder), "--placement", "near"]) == 0
    capsys.readouterr()
    assert run(["latency", "fit", str(folder), "--placement", "farther"]) == 3
    assert "there are far, near" in capsys.readouterr().err


def test_what_is_no_results_folder_is_told_and_nothing_is_written(tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "out.json"
    assert run(["latency", "fit", str(tmp_path), "--output", str(output)]) == 3
    assert "no folder `runs`" in capsys.readouterr().err
    empty = results(tmp_path / "empty", [])
    assert run(["latency", "fit", str(empty), "--output", str(output)]) == 1
    assert "holds no run" in capsys.readouterr().err
    torn = results(tmp_path / "torn", several_lengths())
    (torn / "runs" / "x.json").write_text('{"schema": "hpcserve.run/1"')
    assert run(["latency", "fit", str(torn), "--output", str(tmp_path / "no" / "out.json")]) == 1
    assert "is no folder" in capsys.readouterr().err
    assert not output.exists()
    assert run(["latency", "fit", str(torn)]) == 0
    assert "x.json is left out" in capsys.readouterr().err


def test_a_published_profile_is_shown_by_name(capsys: Captured) -> None:
    assert run(["latency", "show", "distserve-opt-13b-a100-tp2"]) == 0
    page = capsys.readouterr().out
    assert "OSDI 2024" in page
    assert "KV capacity 163,008 tokens" in page
    assert f"{named('distserve-opt-13b-a100-tp2').prefill_ms([Chunk(512, 0)]):.1f}" in page
    assert run(["latency", "show", "distserve-opt-13b-a100-tp2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["small"]["prefill_ms_per_token"] == 0.0685772
    assert found["large_from"] == 95


def test_the_names_are_listed_and_others_are_told(capsys: Captured) -> None:
    assert run(["latency", "list"]) == 0
    listed = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert "vllm-opt-66b-a100-tp4" in listed
    assert run(["latency", "show", "distserve-opt-13b-a100-tp3"]) == 3
    assert "did you mean distserve-opt-13b-a100-tp" in capsys.readouterr().err


def test_mistakes_in_a_file_are_told_with_their_place(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"schema": "hpcserve.latency/1", "kind": 3}')
    assert run(["latency", "show", str(file)]) == 2
    told = capsys.readouterr().err
    assert f"{file}:1:42: `kind` is number 3" in told
    assert "has no `prefill`" in told
    assert run(["latency", "show", str(tmp_path)]) == 3


def test_a_profile_of_splitwise_becomes_a_file(tmp_path: Path, capsys: Captured) -> None:
    table, output = tmp_path / "perf.csv", tmp_path / "big.json"
    table.write_text(TABLE)
    words = ["latency", "splitwise", str(table), "--model", "big", "--tensor-parallel", "8", "--output", str(output)]
    assert run([*words, "--hardware", "h100"]) == 0
    assert "a curve of 5 points up to 16,384 tokens" in capsys.readouterr().out
    assert model_of(read_latency(output.read_text(), source="big.json")).prefill_ms([Chunk(512, 0)]) == 54
    output.unlink()
    assert run([*words, "--hardware", "h900"]) == 3
    assert not output.exists()


def test_aiconfigurator_that_is_not_there_is_told_with_how_to_get_it(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    assert run(["latency", "aiconfigurator", "Qwen/Qwen3-32B", "--system", "h100_sxm"]) == 5
    assert "pip install 'hpcserve[aiconfigurator]'" in capsys.readouterr().err


class Handle(Times):
    """Stands in for `EngineHandle`: the real one was held against the same calls by hand, with version 0.12."""

    @classmethod
    def compile(cls, model_path: str, system: str, backend: str, **words: Any) -> "Handle":
        assert (system, backend, words["backend_version"]) == ("h100_sxm", "vllm", "0.24.0")
        if model_path != "Qwen/Qwen3-32B":
            raise RuntimeError(f"Failed to find\n{model_path}")
        assert words["tp_size"] == 2
        assert {"moe_tp_size", "moe_ep_size"} & words.keys()
        return cls()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, sdk, databases = (ModuleType(f"aiconfigurator_core{part}") for part in ("", ".sdk", ".sdk.perf_database"))
    vars(sdk)["EngineHandle"] = Handle
    vars(databases).update(
        get_supported_databases=lambda: {"h100_sxm": {"vllm": ["0.24.0"]}, "a100_sxm": {"vllm": ["0.14.0"]}},
        resolve_query_version=lambda _system, _engine, _slot, systems_paths: "0.24.0" + (systems_paths or ""),
    )
    for module in (package, sdk, databases):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return sdk


@pytest.mark.usefixtures("installed")
def test_aiconfigurator_becomes_a_file(tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "qwen.json"
    words = ["latency", "aiconfigurator", "Qwen/Qwen3-32B", "--tensor-parallel", "2", "--output", str(output)]
    assert run([*words, "--system", "h100_sxm", "--expert-parallel"]) == 0
    assert "aiconfigurator's database of vllm 0.24.0 on h100_sxm, TP 2, experts dealt out" in capsys.readouterr().out
    file = read_latency(output.read_text(), source="qwen.json")
    assert (file.engine, file.kind, file.prefill.tensor_parallel) == ("vllm 0.24.0", "predicted", 2)


@pytest.mark.usefixtures("installed")
def test_what_aiconfigurator_does_not_know_is_told(capsys: Captured) -> None:
    assert run(["latency", "aiconfigurator", "Qwen/Qwen3-32B", "--system", "h100"]) == 3
    assert "it has a100_sxm, h100_sxm" in capsys.readouterr().err
    assert run(["latency", "aiconfigurator", "no/model", "--system", "h100_sxm"]) == 1
    assert "cannot say it for no/model at TP 1: Failed to find no/model" in capsys.readouterr().err


def test_another_interface_of_aiconfigurator_is_told(installed: ModuleType, capsys: Captured) -> None:
    vars(installed)["EngineHandle"] = SimpleNamespace()
    assert run(["latency", "aiconfigurator", "Qwen/Qwen3-32B", "--system", "h100_sxm"]) == 5
    assert "another interface" in capsys.readouterr().err
