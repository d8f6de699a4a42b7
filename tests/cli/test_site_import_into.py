"""`hpcserve site import --into`: what is shown, what is written, and when nothing is."""

import json
import os
import stat
from pathlib import Path

import pytest

from hpcserve.cli.program import run
from hpcserve.site import load_site
from tests.site.learning.texts import ADMIN, show_config, show_node, show_partition, show_topology

Captured = pytest.CaptureFixture[str]
NOTHING_WRITTEN = 1


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Files as someone with rights would collect them."""
    folder = tmp_path / "collected"
    folder.mkdir()
    tree = show_topology({"leaf1": "gn[01-04]", "leaf2": "gn[05-08]"})
    for name, text in {
        "nodes": show_node(),
        "partitions": show_partition(),
        "config": show_config(),
        "topology": tree,
    }.items():
        (folder / f"{name}.txt").write_text(text)
    return sorted(str(path) for path in folder.iterdir())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "gamma.yaml"


def test_without_a_terminal_and_without_yes_the_difference_is_shown_and_nothing_written(
    texts: list[str], site: Path, capsys: Captured
) -> None:
    assert run(["site", "import", *texts, "--into", str(site)]) == NOTHING_WRITTEN
    told = capsys.readouterr()
    assert "+  - hosts: gn[01-08]" in told.out
    assert "nothing was written" in told.err
    assert not site.exists()


def test_a_dry_run_shows_the_difference_and_writes_nothing(texts: list[str], site: Path, capsys: Captured) -> None:
    assert run(["site", "import", *texts, "--into", str(site), "--dry-run"]) == 0
    assert "+  - hosts: gn[01-08]" in capsys.readouterr().out
    assert list(site.parent.iterdir()) == [site.parent / "collected"]


def test_a_new_file_names_what_is_to_be_filled_in_where_it_stands(
    texts: list[str], site: Path, capsys: Captured
) -> None:
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 0
    told = capsys.readouterr().err
    lines = site.read_text().splitlines()
    for line in (one for one in told.splitlines() if "fill in" in one):
        place, _, needed = line.partition(": fill in ")
        number = int(place.rsplit(":", 1)[1])
        assert lines[number - 1].strip().startswith(needed.split(": ")[0].rpartition(".")[2] + ":")
    assert run(["site", "check", str(site)]) == 2


def test_a_second_import_leaves_site_and_record_as_they_are(texts: list[str], site: Path, capsys: Captured) -> None:
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 0
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in site.parent.glob("gamma*")}
    assert set(before) == {"gamma.yaml", "gamma.learnt.json"}
    capsys.readouterr()
    assert run(["site", "import", *texts, "--into", str(site), "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["changed"], told["written"], told["kept"]) == (False, False, [])
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in site.parent.glob("gamma*")}
    assert after == before


def test_an_edit_is_kept_with_its_comment_told_and_taken_only_by_its_key(
    texts: list[str], site: Path, capsys: Captured
) -> None:
    site.write_text(ADMIN)
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 0
    edited = site.read_text().replace("max_time: 2-00:00:00", "max_time: 08:00:00 # nights only")
    site.write_text(edited)
    capsys.readouterr()
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 0
    assert site.read_text() == edited
    assert "kept: partitions.batch.max_time: the file says 08:00:00" in capsys.readouterr().err
    assert run(["site", "import", *texts, "--into", str(site), "--yes", "--take", "partitions.batch.max_time"]) == 0
    assert "max_time: 2-00:00:00 # nights only" in site.read_text()


def test_a_text_with_a_mistake_changes_nothing(texts: list[str], site: Path, capsys: Captured) -> None:
    site.write_text(ADMIN)
    bad = Path(texts[0]).with_name("net.txt")
    bad.write_text("ibpanic: [1234] main: can't init UMAD library: (No such file or directory)\n")
    assert run(["site", "import", *texts, str(bad), "--into", str(site), "--yes"]) == 2
    told = capsys.readouterr()
    assert (told.out, [str(bad) in line for line in told.err.splitlines()]) == ("", [True])
    assert site.read_text() == ADMIN
    assert not site.with_name("gamma.learnt.json").exists()


def test_a_base_is_copied_and_not_changed(texts: list[str], site: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(ADMIN)
    assert run(["site", "import", *texts, "--into", str(site), "--base", str(base), "--yes"]) == 0
    assert base.read_text() == ADMIN
    assert "# not ib0: HTTP is slow there" in site.read_text()
    assert run(["site", "import", *texts, "--into", str(site), "--base", str(base), "--yes"]) == 2


def test_a_right_file_is_not_made_wrong_unless_that_is_said(texts: list[str], site: Path, capsys: Captured) -> None:
    whole = ADMIN.replace(
        "node_types: {}",
        "node_types:\n  a100-x4:\n    cores: 64\n    memory_gib: 500.0\n"
        "    gpu: {model: a100, count: 4, memory_gib: 80.0, gres: a100}\n"
        "    nics:\n      - {name: 'mlx5_0:1', kind: infiniband, rate: &any {unknown: true, source: nobody},"
        " gpus: [0, 1, 2, 3]}\n    host_path: *any\n",
    )
    site.write_text(whole)
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 0
    load_site(site.read_text(), source="gamma.yaml")
    right = site.read_text()
    nodes = next(text for text in texts if text.endswith("nodes.txt"))
    Path(nodes).write_text(show_node() + show_node(["hn1"], gres="gpu:h100:8"))
    capsys.readouterr()
    assert run(["site", "import", nodes, "--into", str(site), "--yes"]) == NOTHING_WRITTEN
    assert "h100-x8" in capsys.readouterr().err
    assert site.read_text() == right
    assert run(["site", "import", nodes, "--into", str(site), "--yes", "--with-mistakes"]) == 0
    assert "h100-x8:" in site.read_text()


def test_mode_and_link_of_the_file_stay(texts: list[str], site: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_text(ADMIN)
    real.chmod(0o640)
    site.symlink_to(real)
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 0
    assert site.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "gn[01-08]" in real.read_text()


def test_a_folder_that_cannot_be_written_is_told(texts: list[str], tmp_path: Path, capsys: Captured) -> None:
    assert run(["site", "import", *texts, "--into", str(tmp_path / "nowhere" / "x.yaml"), "--yes"]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_torn_record_is_told_with_what_to_do(texts: list[str], site: Path, capsys: Captured) -> None:
    site.write_text(ADMIN)
    site.with_name("gamma.learnt.json").write_text('{"schema": ')
    assert run(["site", "import", *texts, "--into", str(site), "--yes"]) == 1
    assert "remove it" in capsys.readouterr().err
    assert site.read_text() == ADMIN


def test_live_without_slurm_says_what_to_do_and_keeps_the_file(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    site.write_text(ADMIN)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["site", "import", "--live", "--into", str(site), "--yes"]) == 5
    told = capsys.readouterr().err
    assert "running: scontrol show config" in told
    assert "--print-commands" in told
    assert site.read_text() == ADMIN


def test_live_with_a_slurm_that_fails_keeps_the_file(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    site.write_text(ADMIN)
    tool = tmp_path / "scontrol"
    tool.write_text("#!/bin/sh\necho 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert run(["site", "import", "--live", "--into", str(site), "--yes"]) == 6
    assert "Unable to contact slurm controller" in capsys.readouterr().err
    assert site.read_text() == ADMIN


def test_the_commands_to_collect_with_are_ones_that_bash_takes(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["site", "import", "--print-commands"]) == 0
    script = capsys.readouterr().out
    assert "nvidia-smi topo -m" in script
    (tmp_path / "ibnetdiscover").write_text("#!/bin/sh\necho iberror: failed\nexit 1\n")
    (tmp_path / "ibnetdiscover").chmod(0o755)
    for tool in ("scontrol", "nvidia-smi", "ibstat", "ip", "hpcserve"):
        (tmp_path / tool).write_text('#!/bin/sh\necho "$0 $*"\n')
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert os.system(f"bash -u <<'END' > said.txt\n{script}END\n") == 0  # noqa: S605 - the script is what is tested
    assert "site import collected " in (tmp_path / "said.txt").read_text()
    assert {path.name for path in (tmp_path / "collected").iterdir() if path.is_file()} == {
        "scontrol-show-config.txt",
        "scontrol-show-node.txt",
        "scontrol-show-partition.txt",
        "scontrol-show-topology.txt",
    }
    assert not (tmp_path / "collected" / "ibnetdiscover.txt").exists()
    assert (tmp_path / "collected" / "scontrol-show-node.txt").read_text().endswith("scontrol show node\n")


@pytest.mark.parametrize(
    "words",
    [[], ["--nodes", "a", "x.txt", "--dry-run"], ["x.txt"], ["--live"], ["x", "--into", "s", "--efficiency", "0"]],
)
def test_wrong_use_is_refused_before_anything_runs(words: list[str]) -> None:
    assert run(["site", "import", *words]) == 2
