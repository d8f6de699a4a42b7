from pathlib import Path

import pytest


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for folder in ("endpoints", "heartbeats", "nodes"):
        (tmp_path / folder).mkdir()
    return tmp_path
