"""One real service for all tests of this folder. Run inside `slurm/cluster exec`, as `make test` does."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.harness import SERVICE, Parts, Served, cancel, submit


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("soak") is None:
            item.add_marker(pytest.mark.real)
    # The shared service holds two of the four nodes until the end: what needs more of them comes first.
    items.sort(key=lambda item: item.get_closest_marker("whole_cluster") is None)


@pytest.fixture(scope="session")
def parts() -> Iterator[Parts]:
    if socket.gethostname() != "ctl" or "SLURM_CONF" not in os.environ:
        pytest.fail(
            "run these tests inside the one-machine cluster: slurm/cluster exec .venv/bin/pytest -m real", pytrace=False
        )
    # on a directory that every node sees; the name shows whose it is
    jobs = Path(os.environ.get("HPCSERVE_TEST_JOBS", "/var/tmp")) / f"hpcserve-test-jobs-{os.getpid()}"  # noqa: S108
    jobs.mkdir(mode=0o700)
    yield Parts(jobs=jobs, site="onebox")
    if not os.environ.get("HPCSERVE_KEEP_JOBS"):
        shutil.rmtree(jobs)


@pytest.fixture(scope="session")
def served(parts: Parts) -> Iterator[Served]:
    """The demo's service: SmolLM2 with one prefill and one decode worker on two nodes of one leaf."""
    service = submit(parts, SERVICE, model="smollm2")
    yield service
    cancel(service.directory)
