"""submitit: the same job that `submit` would ask for, with a function in place of the script."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import submitit

from hpcserve.errors import MissingToolError, SchedulerError
from hpcserve.scheduler import clean_environment

__all__ = ["ExecutorName", "executor_for", "explain_failure", "submitted_by_clean_environment"]

ExecutorName = Literal["slurm", "local", "debug"]

_OWN = frozenset({"output", "error", "open-mode"})
"""Options that submitit sets itself, to find the job's logs again."""

_LOCAL_TIMEOUT_MIN = 24 * 60

_OTHER_PYTHON = ("code() argument", "unknown opcode", "ModuleNotFoundError", "bad marshal data")
"""What Python prints when it reads the pickled code of another version, or lacks the package (cloudpickle's manual)."""


def executor_for(name: ExecutorName, *, folder: Path, directives: Sequence[str]) -> submitit.Executor:
    """The executor of that name. `directives` are the `#SBATCH` options of the job, each as render writes it.

    Raises MissingToolError where there is no Slurm on this machine.
    """
    if name == "debug":
        return submitit.DebugExecutor(folder=folder)
    if name == "local":
        local = submitit.LocalExecutor(folder=folder, python=shlex.quote(_python()))
        local.update_parameters(timeout_min=_LOCAL_TIMEOUT_MIN)
        return local
    try:
        # exec: the batch process is Python itself, so that Slurm's signal to the batch script reaches it.
        executor = submitit.SlurmExecutor(folder=folder, python=f"exec {shlex.quote(_python())}")
    except RuntimeError:
        raise MissingToolError(
            "there is no srun on this machine",
            remedy="run this on a login node of the cluster, or use --launcher local",
        ) from None
    executor.update_parameters(use_srun=False, wckey=None, additional_parameters=parameters_of(directives))
    return executor


def parameters_of(directives: Sequence[str]) -> dict[str, Any]:
    """`#SBATCH` options as submitit takes them; raises SchedulerError for one that it cannot carry."""
    parameters: dict[str, Any] = {}
    for directive in directives:
        name, value = option_of(directive)
        if name not in _OWN:
            parameters[name.replace("-", "_")] = True if value is None else value
    return parameters


def option_of(directive: str) -> tuple[str, str | None]:
    """Name and value of one option as it stands after `#SBATCH`; None for a flag."""
    words = shlex.split(directive)
    name, equals, value = words[0].removeprefix("--").partition("=") if words else ("", "", "")
    if not words or not words[0].startswith("--") or len(words) > (1 if equals else 2):
        raise SchedulerError(
            f"the site's Slurm option `{directive}` cannot be given to submitit", remedy="write it as --name=value"
        )
    if equals:
        return name, value
    return name, words[1] if len(words) > 1 else None


@contextlib.contextmanager
def submitted_by_clean_environment() -> Iterator[None]:
    """While the block runs, no variable of an outer job is there for sbatch to take as an option."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(clean_environment(before))
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def explain_failure(log: str) -> str:
    """What to do about a job that ended badly, from the end of its log."""
    if any(mark in log for mark in _OTHER_PYTHON):
        return (
            f"the job's Python version or packages differ from this one's ({_python()}, "
            f"{sys.version_info.major}.{sys.version_info.minor}): put the environment where every node sees it"
        )
    return "run the same command again to measure what is missing"


def _python() -> str:
    """This very interpreter, absolute: another one cannot read what submitit sends."""
    return str(Path(sys.executable).absolute())
