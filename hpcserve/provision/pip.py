"""Drive the pip of one virtual environment, as pip is configured. May touch: processes, the network, the venv."""

import re
from pathlib import Path

from hpcserve.errors import HpcserveError, MissingToolError
from hpcserve.provision.pins import Pin, pinned_version
from hpcserve.provision.progress import Progress, Report
from hpcserve.provision.running import Finished, run_program

__all__ = ["check_cpu_torch", "download_package", "install_lock"]

_PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check", "--no-color")
# pip announces each package by one of these, wherever it comes from: an index or a folder given by --find-links.
_FETCHED = re.compile(r"(?:Collecting|Processing)\s+(?P<what>\S+)")
_UNPACKING = "Installing collected packages:"
_FETCH_SHARE = 0.5  # of an installation's time, the rest is unpacking and byte-compiling; measured 45 s of 87 s


def check_cpu_torch(python: Path, pins: tuple[Pin, ...], *, report: Report) -> None:
    """Ask pip for the pinned CPU build of torch without installing anything; one second where the answer is no.

    Raises MissingToolError, with what to configure, where pip knows no such wheel or reaches no index at all.
    """
    wanted = f"torch=={pinned_version(pins, 'torch')}"
    report(Progress(text=f"asking pip for {wanted}", fraction=0.0))
    # One retry: without a network, pip would otherwise try five times and say the same after minutes.
    argv = [str(python), *_PIP, "--retries", "1", "install", "--dry-run", "--no-deps", "--ignore-installed", wanted]
    finished = run_program([*argv, "--progress-bar", "off"])
    if finished.status == 0:
        return
    output = "\n".join(finished.last_lines)
    if "No matching distribution found" not in output:
        raise _failed(f"pip could not be asked for {wanted}", finished)
    if "(from versions: none)" in output:
        raise MissingToolError(
            f"pip finds no version of torch at all for {python}",
            remedy="it reaches no index, or none with wheels for this machine: see `pip config list`, then run again",
        )
    raise MissingToolError(
        f"pip finds no {wanted}, PyTorch's build for CPUs, in the indexes that it is configured for",
        remedy=(
            "give it the CPU wheel index that pytorch.org's install page names: "
            "`pip config set global.extra-index-url <PyTorch CPU wheel index>`, then run again"
        ),
    )


def install_lock(python: Path, lock: Path, pins: tuple[Pin, ...], *, site_packages: Path, report: Report) -> None:
    """Install every pin of `lock` beside `python`; raises HpcserveError with pip's last lines where pip fails."""
    unpacked_before = _distribution_count(site_packages)
    watch = _InstallWatch(total=len(pins), report=report)
    finished = run_program(
        [str(python), *_PIP, "install", "--no-deps", "--progress-bar", "off", "--requirement", str(lock)],
        on_line=watch.read_line,
        on_pause=lambda: watch.note_unpacked(_distribution_count(site_packages) - unpacked_before),
        environment={"PYTHONUNBUFFERED": "1"},
    )
    if finished.status != 0:
        raise _failed("pip could not install the engine's packages", finished)


def download_package(python: Path, package: Pin, *, to: Path) -> Path:
    """The wheel of `package`, downloaded alone into the empty folder `to`; raises HpcserveError where pip fails."""
    finished = run_program(
        [
            *(str(python), *_PIP, "download", "--no-deps", "--only-binary=:all:", "--progress-bar", "off"),
            *("--dest", str(to), str(package)),
        ],
    )
    if finished.status != 0:
        raise _failed(f"pip could not download {package}", finished)
    (wheel,) = to.glob("*.whl")
    return wheel


class _InstallWatch:
    """Turns pip's lines and the growing number of installed distributions into Progress."""

    def __init__(self, *, total: int, report: Report) -> None:
        self._total = total
        self._report = report
        self._fetched = 0
        self._unpacked = 0
        self._unpacking = False

    def read_line(self, line: str) -> None:
        if line.startswith(_UNPACKING):
            self._unpacking = True
        elif (match := _FETCHED.match(line)) and not self._unpacking:
            self._fetched += 1
            what = match["what"].rpartition("/")[2]
            share = _FETCH_SHARE * self._fetched / self._total
            self._report(Progress(text=f"fetching package {self._fetched} of {self._total}: {what}", fraction=share))

    def note_unpacked(self, count: int) -> None:
        if self._unpacking and count != self._unpacked:
            self._unpacked = count
            share = _FETCH_SHARE + (1 - _FETCH_SHARE) * count / self._total
            self._report(Progress(text=f"unpacking package {count} of {self._total}", fraction=min(share, 1.0)))


def _distribution_count(site_packages: Path) -> int:
    return sum(1 for _ in site_packages.glob("*.dist-info"))


_CRASHED = "ERROR: Exception:"
"""pip's own words before a traceback."""


def _failed(what: str, finished: Finished) -> HpcserveError:
    lines = [line for line in finished.last_lines if line.strip()]
    said = [line for line in lines if line.startswith("ERROR") and line != _CRASHED]
    if not said:  # a full disk, say: what counts is at the end of a traceback
        said = lines[-1 if _CRASHED in lines else -5 :]
    return HpcserveError(f"{what} (exit status {finished.status}): " + "\n".join(said))
