"""The NIXL process for real: the engine's Python, two agents, the loopback interface."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcserve.measure import child_program
from hpcserve.measure.evidence import read_transport
from hpcserve.measure.nixl_process import NixlProcess, NixlProcessError, child_environment
from hpcserve.provision import cache_directory, engine_prefix, find_engine

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

MIB = 2**20
READ: dict[str, Any] = {"do": "read", "block_bytes": MIB, "blocks": 16, "fewest": 3, "seconds": 0.3}
"""A read as a rank asks for it."""


class Agents:
    """Started agents, by name."""

    def __init__(self, folder: Path) -> None:
        engine = find_engine(engine_prefix(cache_directory(os.environ)))
        if engine is None:
            pytest.fail("make the engine environment first: hpcserve engine install", pytrace=False)
        self.python = engine.python
        self.folder = folder
        self.running: list[NixlProcess] = []
        (folder / "child.py").write_text(child_program())

    def start(self, name: str, *, backend: str = "UCX") -> NixlProcess:
        options = ["--name", name, "--backend", backend, "--buffer-bytes", str(64 * MIB), "--pause-us", "100"]
        process = NixlProcess(
            [str(self.python), str(self.folder / "child.py"), *options],
            env=child_environment(os.environ, {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}),
            log=self.folder / f"{name}.log",
        )
        self.running.append(process)
        return process


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    started = Agents(tmp_path)
    yield started
    for process in started.running:
        process.end()


def test_one_agent_reads_from_another_while_it_is_there_and_told_to_serve(agents: Agents) -> None:
    reader, source = agents.start("reader"), agents.start("source")
    reader.answer(within_s=60)
    card = source.answer(within_s=60)["card"]
    source.ask(within_s=20, do="serve")
    said = reader.ask(within_s=60, peer=card, give_up_s=30, **READ)
    assert len(said["batches_s"]) >= 3
    assert said["batch_bytes"] % (16 * MIB) == 0
    assert said["moved_bytes"] >= said["batch_bytes"] * len(said["batches_s"])
    assert all(start < end for start, end in said["batches_s"])
    assert 0 < said["latency_us"] < 1e6
    assert read_transport(reader.printed()) == ("tcp", "lo")

    source.ask(within_s=20, do="rest")
    with pytest.raises(NixlProcessError, match="did not end in its time"):
        reader.ask(within_s=60, peer=card, give_up_s=1, **READ)
    source.end()
    with pytest.raises(NixlProcessError):
        reader.ask(within_s=60, peer=card, give_up_s=5, **READ)


def test_a_backend_that_nixl_does_not_have_is_an_answer(agents: Agents) -> None:
    with pytest.raises(NixlProcessError, match="no backend NOWHERE"):
        agents.start("one", backend="NOWHERE").answer(within_s=60)
