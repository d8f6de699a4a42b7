"""What is collected where a tool is missing, fails or hangs; tests/real asks a real Slurm."""

import os
from pathlib import Path

import pytest

from hpcserve.errors import NotFoundError
from hpcserve.provision import Collected, collect
from tests.provision.fake_cluster import set_up, tool
from tests.site.learning.texts import IBSTAT


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return set_up(tmp_path, monkeypatch)


def asked(cluster: Path) -> list[str]:
    path = cluster / "asked"
    return path.read_text().split() if path.exists() else []


def collected(nodes: list[str] | None = None, *, account: str | None = None) -> tuple[Collected, list[str]]:
    said: list[str] = []
    return collect(nodes=nodes, account=account, environment=os.environ, say=said.append), said


def test_one_free_node_of_each_kind_is_asked_and_everything_is_said_before(cluster: Path) -> None:
    found, said = collected()
    assert asked(cluster) == ["gn02", "hn1"]
    assert [words.split()[0] for words in said] == ["scontrol"] * 4 + ["ibnetdiscover", "srun", "srun"]
    assert "--gres=gpu:8" in said[-1]
    texts = {(one.host, one.kind): one.text for one in found.texts}
    assert texts["gn02", "ibstat"] == IBSTAT
    assert (None, "scontrol-show-node") in texts


def test_what_fails_is_told_with_its_own_words_and_the_rest_is_kept(cluster: Path) -> None:
    found, _ = collected(["hn1"])
    assert asked(cluster) == ["hn1"]
    assert "ibnetdiscover: ibpanic: no rights" in found.notes
    assert "scontrol show topology: no topology" in found.notes
    assert "hn1: nvidia-smi-q: NVIDIA-SMI has failed" in found.notes
    assert {"ibstat", "lscpu"} <= {one.kind for one in found.texts}


def test_a_node_that_cannot_be_had_is_told(cluster: Path) -> None:
    tool(cluster, "srun", "#!/bin/bash\necho 'srun: error: Unable to allocate resources' >&2\nexit 1\n")
    found, _ = collected(["gn01"])
    assert "gn01 was not asked: srun: error: Unable to allocate resources" in found.notes


def test_a_step_that_wants_an_account_says_how_one_is_named_and_one_that_has_it_does_not(cluster: Path) -> None:
    refusal = "srun: error: Unable to allocate resources: Invalid account or account/partition combination specified"
    tool(cluster, "srun", f"#!/bin/bash\necho '{refusal}' >&2\nexit 1\n")
    found, _ = collected(["gn01"])
    assert f"gn01 was not asked: {refusal}; name one with --account" in found.notes
    found, _ = collected(["gn01"], account="p7")
    assert f"gn01 was not asked: {refusal}" in found.notes


@pytest.mark.usefixtures("cluster")
def test_a_node_that_slurm_does_not_know_is_refused() -> None:
    with pytest.raises(NotFoundError, match="zz9"):
        collected(["zz9"])


def test_kinds_without_a_free_node_are_named(cluster: Path) -> None:
    (cluster / "node").write_text((cluster / "node").read_text().replace("State=IDLE", "State=DOWN"))
    found, _ = collected()
    assert asked(cluster) == []
    assert any(note.startswith("gn01 and 1 more alike") for note in found.notes)
