"""A service without disaggregation: one worker, no KV connector, the same router."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.harness import SERVICE, Parts, Served, cancel, hpcserve, submit

pytestmark = [pytest.mark.timeout(400), pytest.mark.whole_cluster]


@pytest.fixture
def aggregated(parts: Parts, tmp_path: Path) -> Iterator[Served]:
    """The verdict on the demo's workload is to serve aggregated; `auto` obeys it."""
    text = (
        SERVICE.read_text().replace("mode: disaggregated", "mode: auto").replace("name: smollm2\n", "name: whole\n", 1)
    )
    text = text.replace("\nslo:", "\n  - role: aggregated\n    workers: 1\n\nslo:", 1)
    path = tmp_path / "whole.yaml"
    path.write_text(text)
    service = submit(parts, path, model="smollm2")
    yield service
    cancel(service.directory)


def test_auto_obeys_the_verdict_and_one_worker_serves(aggregated: Served) -> None:
    plan = aggregated.plan
    assert not plan.verdict.disaggregate
    assert plan.mode == "aggregated"
    assert [worker.id for worker in plan.workers] == ["aggregated-0"]
    assert "Paris" in aggregated.chat("What is the capital of France?")
    assert "aggregated-0" in hpcserve("status", aggregated.directory)
    endpoint = next(iter(aggregated.endpoints().values()))
    assert endpoint.handoff is None
