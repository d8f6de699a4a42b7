"""`hpcserve site import --dry-run`: what is understood of each file, and what of none."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from hpcserve.cli.program import run

Captured = pytest.CaptureFixture[str]

TREE = "SwitchName=top Switches=tor[1-2]\nSwitchName=tor1 Nodes=n[1-2]\nSwitchName=tor2 Nodes=n3\n"


def imported(capsys: Captured, *arguments: str | Path, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    assert run(["site", "import", *map(str, arguments), "--dry-run", "--json"]) == code
    out, err = capsys.readouterr()
    told: list[dict[str, Any]] = json.loads(out)
    return told, err


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_files_of_several_kinds_in_the_order_in_which_they_were_given(tmp_path: Path, capsys: Captured) -> None:
    conf = write(
        tmp_path / "slurm.conf", "NodeName=n[1-3] Gres=gpu:a100:4 RealMemory=1000\nPartitionName=p Nodes=ALL\n"
    )
    tree = write(tmp_path / "any-name", TREE)
    gres = write(tmp_path / "gres.txt", "gpu:a40:2,shard:8\nshard:8\n")
    told, err = imported(capsys, conf, tree, gres)
    assert err == ""
    assert [(one["file"], one["kind"]) for one in told] == [
        (str(conf), "slurm.conf"),
        (str(tree), "topology.conf"),
        (str(gres), "gres"),
    ]
    assert told[0]["nodes"]["n2"] == {"gpus": 4, "types": {"a100": 4}, "features": [], "mem_mb": 1000}
    assert (told[0]["n_nodes"], told[0]["partitions"], told[0]["default_partition"]) == (
        3,
        {"p": ["n1", "n2", "n3"]},
        None,
    )
    assert told[1] == {
        "file": str(tree),
        "kind": "topology.conf",
        "format": "tree",
        "switches": {
            "top": {"nodes": [], "children": ["tor1", "tor2"]},
            "tor1": {"nodes": ["n1", "n2"], "children": []},
            "tor2": {"nodes": ["n3"], "children": []},
        },
        "roots": ["top"],
        "levels": {"top": 1, "tor1": 0, "tor2": 0},
        "leaves": {"tor1": ["n1", "n2"], "tor2": ["n3"]},
        "leaf_of": {"n1": "tor1", "n2": "tor1", "n3": "tor2"},
        "n_nodes": 3,
        "undefined_children": [],
        "unplaced": [],
        "warnings": [],
    }
    assert told[2]["gpu:a40:2,shard:8"] == {"gpus": 2, "types": {"a40": 2}}
    assert told[2]["shard:8"] == {"gpus": 0, "types": {}}


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    class Standard:
        buffer = io.BytesIO(TREE.encode())

    monkeypatch.setattr("sys.stdin", Standard)
    told, _ = imported(capsys, "-")
    assert (told[0]["file"], told[0]["n_nodes"]) == ("-", 3)


def test_mistakes_of_every_file_are_told_and_the_rest_is_understood(tmp_path: Path, capsys: Captured) -> None:
    both = write(tmp_path / "both.conf", "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2 Switches=a\n")
    good = write(tmp_path / "good.conf", TREE)
    lists = write(tmp_path / "lists.txt", "n[1-2]\nn[2-1]\n n[3\n")
    told, err = imported(capsys, both, good, lists, code=2)
    assert (told[0]["kind"], told[0]["error_line"]) == ("topology.conf", 2)
    assert told[0]["mistakes"][0]["column"] == 23  # of Switches=
    assert told[1]["n_nodes"] == 3
    assert told[2]["n[1-2]"] == ["n1", "n2"]
    assert (told[2]["n[2-1]"], told[2]["n[3"]) == ("error", "error")
    places = [line.removeprefix(f"{tmp_path}/").split(": ")[0] for line in err.splitlines()]
    assert places == ["both.conf:2:23", "lists.txt:2:1", "lists.txt:3:2"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "1:1: nothing; what a tool printed was wanted"),
        ("scontrol: error: s_p_parse_file: unable to status file\n", "1:1: the complaint of a tool, `scontrol: error:"),
        ("$ sinfo\nbash: sinfo: command not found\n", "2:1: the complaint of a tool, `bash: sinfo: command not found`"),
        (
            "slurm_load_node: Unable to contact slurm controller\n",
            "1:1: the complaint of a tool, `slurm_load_node",
        ),
        ("scontrol: unrecognized option '--json'\n", "1:1: the complaint of a tool, `scontrol: unrecognized option"),
        ("Dear all,\nthe cluster is down.\n", "1:1: a text of no known kind, `Dear all,"),
        ("\0\1\2", "1:1: binary data"),
    ],
)
def test_what_is_no_answer_of_a_tool_is_refused(tmp_path: Path, capsys: Captured, text: str, found: str) -> None:
    file = write(tmp_path / "x.txt", text)
    told, err = imported(capsys, file, code=2)
    assert told[0]["kind"] is None
    assert err.startswith(f"{file}:{found}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "kind", "wrong"),
    [
        ("idle\nmix\nsleepy\ndown*\n", "node-states", 3),
        ("gpu:a40:2\nGres=gpu:4\n(null)\nnic:a:b:c\n", "gres", 4),
        ("n[1-2]\nlogin1\nn[5-3],n6\n", "hostlist", 3),
    ],
)
def test_a_list_with_one_wrong_line_is_known_and_that_line_named(
    tmp_path: Path, capsys: Captured, text: str, kind: str, wrong: int
) -> None:
    told, err = imported(capsys, write(tmp_path / "x.txt", text), code=2)
    assert (told[0]["kind"], told[0]["error_line"]) == (kind, wrong)
    assert len(err.splitlines()) == 1


def test_the_kind_may_be_said_and_a_wrong_one_is_corrected(tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "x.txt", "login1\nnode1,node2\n")
    told, _ = imported(capsys, file, "--kind", "hostlist")
    assert (told[0]["login1"], told[0]["node1,node2"]) == (["login1"], ["node1", "node2"])
    assert run(["site", "import", str(file), str(file), "--kind", "hostlits", "--dry-run"]) == 2
    assert capsys.readouterr().err.count("did you mean `hostlist`?") == 1


def test_a_topology_conf_of_comments_is_known_by_its_name(tmp_path: Path, capsys: Captured) -> None:
    told, _ = imported(capsys, write(tmp_path / "topology.conf", "# nothing yet\n"))
    assert (told[0]["kind"], told[0]["result"], told[0]["switches"]) == ("topology.conf", "no-topology", {})


def test_of_a_folder_all_files_are_read_but_hidden_ones(tmp_path: Path, capsys: Captured) -> None:
    for name in ("n1/gres.txt", "n2/gres.txt", ".git/HEAD", "tree.conf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        write(path, TREE if name.endswith("conf") else "gpu:a40:2\ngpu:a40:1\n" if name.endswith("txt") else "ref: x\n")
    told, _ = imported(capsys, tmp_path)
    assert [one["file"] for one in told] == [
        str(tmp_path / name) for name in ("n1/gres.txt", "n2/gres.txt", "tree.conf")
    ]
    assert run(["site", "import", str(tmp_path / "n1" / ".."), "--dry-run"]) == 0
    (tmp_path / "nothing").mkdir()
    assert run(["site", "import", str(tmp_path / "nothing"), "--dry-run"]) == 3
    assert "has no file in it" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    assert run(["site", "import", str(tmp_path / "none"), "--dry-run"]) == 3
    assert "is no file" in capsys.readouterr().err


def test_the_summary_keeps_lists_in_lists_apart(tmp_path: Path, capsys: Captured) -> None:
    rows = ["X\tNV4\tSYS", "NV4\tX\tSYS", "SYS\tSYS\tX"]
    islands = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n"
    islands += "".join(f"GPU{index}\t{row}\t0-7\t0\n" for index, row in enumerate(rows))
    gres = "gpu:a40:2\n(null)\n"
    files = [write(tmp_path / "topo.txt", islands), write(tmp_path / "gres.txt", gres)]
    assert run(["site", "import", *map(str, files), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "  nvlink_islands: [0, 1], [2]\n" in out
    assert "  gpu:a40:2: gpus (2), types (a40 (2))\n" in out


def test_the_summary_for_people_is_short_and_warns(tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "t.conf", "".join(f"SwitchName=s{i} Nodes=n[{i}00-{i}99]\n" for i in range(1, 9)))
    assert run(["site", "import", str(file), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{file}: topology.conf\n")
    assert "  n_nodes: 800\n" in out
    assert "  warning: no common root: 8 roots\n" in out
    assert max(len(line) for line in out.splitlines()) < 1000
