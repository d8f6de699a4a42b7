from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.harness import LocalJob


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., LocalJob]]:
    made: list[LocalJob] = []

    def make(*, name: str = "tiny", args: tuple[str, ...] = (), measured: Path | None = None) -> LocalJob:
        made.append(LocalJob.make(tmp_path, name=name, args=args, measured=measured))
        return made[-1]

    yield make
    for job in made:
        job.end()


@pytest.fixture
def job(make_job: Callable[..., LocalJob]) -> LocalJob:
    return make_job()


@pytest.fixture(scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJob]:
    job = LocalJob.make(tmp_path_factory.mktemp("running"))
    try:
        job.start_all()
        yield job
        assert set(job.stop_all().values()) == {0}
        assert job.living() == {}
    finally:
        job.end()


@pytest.fixture
def served(_running: LocalJob) -> LocalJob:
    """A job whose workers are ready, for tests that leave it with all of its agents: what they broke is made whole."""
    _running.await_ready()
    return _running
