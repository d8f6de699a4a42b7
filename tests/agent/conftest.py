from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.harness import LocalJob


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., LocalJob]]:
    made: list[LocalJob] = []

    def make(*, name: str = "tiny", args: tuple[str, ...] = ()) -> LocalJob:
        made.append(LocalJob.make(tmp_path, name=name, args=args))
        return made[-1]

    yield make
    for job in made:
        job.end()


@pytest.fixture
def job(make_job: Callable[..., LocalJob]) -> LocalJob:
    return make_job()
