import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcserve.errors import HpcserveError, MissingToolError, UnverifiedError
from hpcserve.provision import EngineEnvironment, Progress, Report, cache_directory, find_engine, install_engine
from hpcserve.provision.pins import parse_pins
from hpcserve.provision.pip import check_cpu_torch
from hpcserve.provision.stamp import STAMP_NAME, Stamp, read_stamp, write_stamp

PROBE = """\
import types, hpcserve_vllm_cpu
from nixl import _api
from vllm.platforms.cpu import CpuPlatform
hpcserve_vllm_cpu.register()
hpcserve_vllm_cpu.register()
config = types.SimpleNamespace(pthrDelay=0)
print(_api.nixlBind.nixlAgent("name", config).delay, CpuPlatform.discover_numa_topology())
"""


Installed = tuple[EngineEnvironment, list[Progress]]


def stop_at(part: str) -> Report:
    def report(progress: Progress) -> None:
        if part in progress.text:
            raise KeyboardInterrupt

    return report


def test_an_installation_is_found_afterwards_and_a_second_one_does_nothing(installed: Installed) -> None:
    made, heard = installed
    assert (made.vllm_version, made.nixl_version) == ("0.32.0+cpu", "1.5.2")
    assert made == find_engine(made.prefix)
    assert made.vllm.is_file()
    assert any(progress.text.startswith("fetching package 3 of 3") for progress in heard)
    fractions = [progress.fraction for progress in heard if progress.fraction is not None]
    assert fractions == sorted(fractions)

    again: list[Progress] = []
    assert install_engine(made.prefix, report=again.append) == made
    assert again == []


@pytest.mark.parametrize(("variable", "expected"), [(None, "1000 []"), ("250", "250 []")])
def test_the_plugin_sets_the_delay_and_leaves_cores_unpinned(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, variable: str | None, expected: str
) -> None:
    monkeypatch.delenv("HPCSERVE_NIXL_PROGRESS_DELAY_US", raising=False)
    if variable is not None:
        monkeypatch.setenv("HPCSERVE_NIXL_PROGRESS_DELAY_US", variable)
    probed = subprocess.run([installed[0].python, "-c", PROBE], check=True, capture_output=True, text=True)
    assert probed.stdout.strip() == expected


def test_the_plugin_refuses_a_delay_that_is_no_number(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCSERVE_NIXL_PROGRESS_DELAY_US", "-1")
    refused = subprocess.run([installed[0].python, "-c", PROBE], check=False, capture_output=True, text=True)
    assert "HPCSERVE_NIXL_PROGRESS_DELAY_US='-1': a whole number of microseconds" in refused.stderr


def test_other_distributions_of_ours_are_put_in_without_fetching_packages_again(installed: Installed) -> None:
    prefix = installed[0].prefix
    stamp = read_stamp(prefix)
    assert stamp is not None
    write_stamp(prefix, dataclasses.replace(stamp, distributions_sha256="0" * 64))
    assert find_engine(prefix) is None
    heard: list[Progress] = []
    install_engine(prefix, report=heard.append)
    assert [progress.text for progress in heard] == ["checking that vllm and nixl run"]
    assert find_engine(prefix) == installed[0]


@pytest.mark.timeout(300)  # five environments one after the other
def test_what_is_interrupted_or_broken_is_not_taken_for_an_installation_and_heals(tiny_engine: Path) -> None:
    for step in ("making a virtual", "fetching package 2", "checking that"):
        with pytest.raises(KeyboardInterrupt):
            install_engine(tiny_engine, report=stop_at(step))
        assert find_engine(tiny_engine) is None
        (tiny_engine / "half").write_text("unpacked", encoding="utf-8")
    install_engine(tiny_engine, report=print)
    assert find_engine(tiny_engine) is not None
    assert not (tiny_engine / "half").exists()

    (tiny_engine / "bin" / "python").unlink()
    assert find_engine(tiny_engine) is None
    assert install_engine(tiny_engine, report=print).python.exists()


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tiny_engine: Path) -> None:
    tiny_engine.mkdir()
    (tiny_engine / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(HpcserveError, match="no engine installation put there"):
        install_engine(tiny_engine, report=print)
    assert [path.name for path in tiny_engine.iterdir()] == ["thesis.tex"]


def test_a_missing_cpu_build_of_torch_stops_with_what_to_configure(
    tiny_engine: Path, wheels: Path, make_wheel: Callable[..., Path]
) -> None:
    next(wheels.glob("torch-*")).unlink()
    make_wheel(wheels, "torch", "2.13.0", {})  # the default build, which is all that the default index has
    heard: list[Progress] = []
    with pytest.raises(MissingToolError) as caught:
        install_engine(tiny_engine, report=heard.append)
    message = str(caught.value)
    assert "torch==2.13.0+cpu" in message
    assert "pip config set global.extra-index-url" in message
    assert "\n" not in message
    assert not any("fetching" in progress.text for progress in heard)
    assert not tiny_engine.exists()


def test_no_torch_at_all_is_told_apart_from_a_missing_cpu_build(wheels: Path) -> None:
    assert not list(wheels.iterdir())
    with pytest.raises(MissingToolError, match="no version of torch at all"):
        check_cpu_torch(Path(sys.executable), parse_pins("torch==2.13.0+cpu", file="lock"), report=print)


def test_a_package_that_pip_cannot_find_is_named(tiny_engine: Path, wheels: Path) -> None:
    next(wheels.glob("nixl-*")).unlink()
    with pytest.raises(HpcserveError, match=r"nixl==1\.5\.2"):
        install_engine(tiny_engine, report=print)
    assert find_engine(tiny_engine) is None


def test_an_installation_that_does_not_run_is_no_success(
    tiny_engine: Path, wheels: Path, make_wheel: Callable[..., Path]
) -> None:
    make_wheel(wheels, "nixl", "1.5.2", {"nixl/__init__.py": "raise ImportError('no UCX here')\n"})
    with pytest.raises(UnverifiedError, match="no UCX here"):
        install_engine(tiny_engine, report=print)
    assert find_engine(tiny_engine) is None


def test_a_stamp_is_read_back_and_anything_else_of_its_name_is_refused(tmp_path: Path) -> None:
    stamp = Stamp(state="complete", lock_sha256="a", distributions_sha256="b", vllm_version="c", nixl_version="d")
    write_stamp(tmp_path, stamp)
    assert read_stamp(tmp_path) == stamp
    assert [path.name for path in tmp_path.iterdir()] == [STAMP_NAME]
    for text in ("", "[]", "{}", '{"schema": "hpcserve.engine-environment/1", "unknown": 1}', '{"schema": "other/1"}'):
        (tmp_path / STAMP_NAME).write_text(text, encoding="utf-8")
        with pytest.raises(HpcserveError, match="not a stamp"):
            read_stamp(tmp_path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c"}, "/c/hpcserve"),
        ({}, "~/.cache/hpcserve"),
        ({"XDG_CACHE_HOME": "rel"}, "~/.cache/hpcserve"),
    ],
)
def test_the_cache_follows_the_xdg_specification(environment: dict[str, str], expected: str) -> None:
    assert cache_directory(environment) == Path(expected).expanduser()
