"""`hpcserve site import --live`: what its job steps are asked with."""

from pathlib import Path

import pytest

from hpcserve.cli.program import run
from tests.provision.fake_cluster import set_up, tool


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return set_up(tmp_path, monkeypatch)


def test_the_account_reaches_srun(cluster: Path) -> None:
    assert run(["site", "import", "--live", "--nodes", "hn1", "--account", "p7", "--dry-run"]) == 0
    assert "--account=p7" in (cluster / "asked.options").read_text().splitlines()


def test_without_an_account_srun_gets_none(cluster: Path) -> None:
    assert run(["site", "import", "--live", "--nodes", "hn1", "--dry-run"]) == 0
    assert "--account" not in (cluster / "asked.options").read_text()


def test_a_text_that_is_not_understood_is_left_out_and_noted(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool(cluster, "ip", "#!/bin/bash\necho '[{\"ifname\": 7}]'\n")
    site = tmp_path / "site.yaml"
    assert run(["site", "import", "--live", "--nodes", "hn1", "--into", str(site), "--yes"]) == 0
    assert "note: left out, as it is not understood: hn1: ip-addr:1:1: " in capsys.readouterr().err
    assert "mlx5_0:1" in site.read_text()


def test_nodes_that_are_not_understood_end_the_import(cluster: Path, tmp_path: Path) -> None:
    (cluster / "partition").write_text("what is this\n")
    site = tmp_path / "site.yaml"
    assert run(["site", "import", "--live", "--nodes", "hn1", "--into", str(site), "--yes"]) == 2
    assert not site.exists()


def test_what_slurm_set_for_a_job_around_it_does_not_reach_its_steps(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_MEM_PER_CPU", "SLURM_ACCOUNT", "SBATCH_ACCOUNT", "SRUN_CONTAINER"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    assert run(["site", "import", "--live", "--nodes", "hn1", "--dry-run"]) == 0
    names = {line.partition("=")[0] for line in (cluster / "asked.environment").read_text().splitlines()}
    assert {name for name in names if name.startswith(("SLURM_", "SBATCH_", "SRUN_"))} == {"SLURM_CONF"}


@pytest.mark.parametrize("option", ["--account", "--nodes"])
def test_what_only_steps_have_is_refused_without_live(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x"
    file.write_text("")
    assert run(["site", "import", str(file), option, "p7", "--dry-run"]) == 2
    assert f"{option} goes with --live" in capsys.readouterr().err
