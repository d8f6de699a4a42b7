"""The pair of engines that every contract test is run against: simulated always, real where the test is marked so."""

from collections.abc import Iterator

import pytest

from tests.contract.pair import Kind, Pair, started_pair

KINDS = ["sim", pytest.param("vllm", marks=[pytest.mark.real, pytest.mark.timeout(600)])]


@pytest.fixture(scope="session", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Started once for all tests of a kind."""
    kind: Kind = request.param
    yield from started_pair(kind, tmp_path_factory.mktemp(f"contract-{kind}"))


@pytest.fixture(params=KINDS)
def doomed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair that a test may kill."""
    kind: Kind = request.param
    yield from started_pair(kind, tmp_path_factory.mktemp(f"doomed-{kind}"))
