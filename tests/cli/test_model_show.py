"""`hpcserve model show`: its words, its JSON, its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpcserve.cli.program import run
from tests.deploy.conftest import safetensors
from tests.model.configs import text_of

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, name: str, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(text_of(name, **changes))
    return folder


def record(capsys: Captured, *arguments: str) -> dict[str, Any]:
    assert run(["model", "show", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_json_has_the_figures_of_a_hybrid(tmp_path: Path, capsys: Captured) -> None:
    found = record(capsys, str(write(tmp_path / "m", "gpt-oss-120b")))
    assert found["schema"] == "hpcserve.model/1"
    assert (found["kv_bytes_per_token"], found["kv_bytes_per_token_full_layers"]) == (73_728, 36_864)
    assert found["kv_bytes_per_token_per_rank_by_tp"]["8"] == 9_216
    assert (found["dtype"], found["sliding_layers"], found["full_layers"], found["window"]) == ("bfloat16", 18, 18, 128)
    assert (found["fixed_state_per_sequence"], found["weights_bytes"], found["capacity"]) == (False, None, None)


def test_the_page_writes_the_arithmetic_out(tmp_path: Path, capsys: Captured) -> None:
    assert run(["model", "show", str(write(tmp_path / "m", "Qwen3-235B-A22B"))]) == 0
    page = capsys.readouterr().out
    assert "94 full-attention layers x 4 KV heads x 2 x 128 x 2 B = 192,512 B" in page
    assert "2 copies of the KV in all" in page
    assert "Prefill and decode may differ in TP: 1->2" in page
    assert "none" not in page.lower()


def test_a_side_file_gives_the_type_of_the_cache(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "m", "Llama-3.1-70B")
    (folder / "hf_quant_config.json").write_text('{"quantization": {"kv_cache_quant_algo": "FP8"}}')
    found = record(capsys, str(folder / "config.json"))
    assert (found["kv_cache_dtype"], found["kv_cache_bytes_per_token"]) == ("fp8", 163_840)
    assert (found["kv_bytes_per_token"], found["kv_bytes_per_token_fp8"]) == (327_680, 163_840)


def test_weights_come_from_the_index_the_headers_or_a_count(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "m", "Llama-3.1-8B")
    assert record(capsys, str(folder))["weights_bytes"] == 2 * 8_030_261_248
    safetensors(folder / "model-1.safetensors", size_bytes=100)
    safetensors(folder / "model-2.safetensors", size_bytes=28)
    assert record(capsys, str(folder))["weights_bytes"] == 128
    (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 77}}')
    assert record(capsys, str(folder))["weights_bytes"] == 77


@pytest.mark.parametrize("junk", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{]"])
def test_a_broken_weight_file_is_not_measured(tmp_path: Path, capsys: Captured, junk: bytes) -> None:
    folder = write(tmp_path / "m", "DeepSeek-V3")
    (folder / "model.safetensors").write_bytes(junk)
    assert record(capsys, str(folder))["weights_bytes"] is None


def test_an_id_is_looked_for_in_the_cache_and_never_fetched(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "home" / ".cache" / "huggingface" / "hub" / "models--acme--tiny"
    write(cached / "snapshots" / "old", "Llama-3.1-8B")
    write(cached / "snapshots" / "new", "Qwen3-0.6B")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("new")
    assert record(capsys, "acme/tiny")["kv_bytes_per_token"] == 114_688
    (cached / "refs" / "main").write_text("old\n")
    assert record(capsys, "acme/tiny")["kv_bytes_per_token"] == 131_072
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert run(["model", "show", "acme/tiny"]) == 3
    assert "elsewhere" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nothing", "", "../..", "a\0b", "x" * 5000])
def test_what_is_not_there_is_told(name: str, capsys: Captured) -> None:
    assert run(["model", "show", name]) in {1, 2, 3}  # 1: a name that no file system takes
    told = capsys.readouterr()
    assert told.out == ""
    assert "bug" not in told.err


def test_a_refusal_names_the_missing_keys_and_prints_nothing(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "m", "Llama-3.1-8B", num_hidden_layers=..., hidden_size=...)
    assert run(["model", "show", str(folder), "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "`num_hidden_layers` is missing" in told.err
    assert "`hidden_size` is missing" in told.err


def test_what_fits_on_a_gpu(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "m", "Llama-3.1-8B")
    gpu = ["--gpu-memory-gib", "80", "--utilisation", "0.5", "--context", "1000"]
    fits = record(capsys, str(folder), *gpu, "--tensor-parallel", "2")["capacity"]
    free = 40 * 2**30 - 8_030_261_248
    assert fits == {
        "kv_bytes": free,
        "tokens": free // (16 * 65_536) * 16,
        "sequences": free // 65_536_000,
    }
    assert run(["model", "show", str(folder), *gpu]) == 0
    assert "activations not counted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--gpu-memory-gib", "80"], 2, "belong together"),
        (["--gpu-memory-gib", "80", "--utilisation", "0.9", "--tensor-parallel", "3"], 2, "1, 2, 4, 8"),
        (["--gpu-memory-gib", "80", "--utilisation", "0.9", "--pipeline-parallel", "99"], 2, "32 layers"),
        (["--gpu-memory-gib", "nan", "--utilisation", "0.9"], 2, "gpu-memory-gib"),
        (["--gpu-memory-gib", "inf", "--utilisation", "0.9"], 2, "gpu-memory-gib"),
        (["--gpu-memory-gib", "80", "--utilisation", "nan"], 2, "utilisation"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: Captured, options: list[str], code: int, said: str
) -> None:
    folder = write(tmp_path / "m", "Llama-3.1-8B")
    assert run(["model", "show", str(folder), *options]) == code
    assert said in capsys.readouterr().err


def test_what_fits_is_not_told_without_weights(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "m", "Llama-3.1-8B", vocab_size=...)
    assert run(["model", "show", str(folder), "--gpu-memory-gib", "80", "--utilisation", "0.9"]) == 3
    assert "`vocab_size` is missing" in capsys.readouterr().err
