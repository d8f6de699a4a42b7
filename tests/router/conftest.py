"""What several test files of the router set up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.router.processes import Job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job directory whose processes end with the test."""
    made = Job(tmp_path)
    try:
        yield made
    finally:
        made.end()
