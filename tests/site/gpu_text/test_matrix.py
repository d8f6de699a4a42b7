"""`nvidia-smi topo -m` as drivers of several years print it."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.site.gpu_text import KINDS, GpuTopology

KIND = next(kind for kind in KINDS if kind.name == "nvidia-smi-topo")
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def matrix(
    links: list[list[str]],
    tails: Sequence[tuple[str, ...]],
    nics: list[str],
    *,
    heads: tuple[str, ...],
) -> str:
    """The text of a matrix: `links` has a row for each GPU, over GPUs and NICs."""
    columns = [f"GPU{index}" for index in range(len(links))] + [f"NIC{index}" for index in range(len(nics))]
    rows = ["\t".join(["", *columns, *heads])]
    rows += ["\t".join([f"GPU{at}", *row, *tail]) for at, (row, tail) in enumerate(zip(links, tails, strict=True))]
    for nic in range(len(nics)):
        own = [row[len(links) + nic] for row in links] + ["X" if nic == other else "SYS" for other in range(len(nics))]
        rows.append("\t".join([f"NIC{nic}", *own, *([""] * len(heads))]))
    names = [f"  NIC{index}: {name}" for index, name in enumerate(nics)]
    return "\n".join(rows) + "\n" + LEGEND + ("\nNIC Legend:\n\n" + "\n".join(names) + "\n" if nics else "")


def understood(text: str) -> Any:
    assert next(kind.name for kind in KINDS if kind.looks_like(text)) == "nvidia-smi-topo"
    return KIND.understood(KIND.parse(text, "topo.txt"))


HEADS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
PAIR = [["X", "NV6", "PIX", "SYS"], ["NV6", "X", "NODE", "SYS"]]
TAILS = [("0-15", "0", "N/A"), ("16-31", "1", "N/A")]


def test_a_pair_with_a_near_and_a_far_nic() -> None:
    assert understood(matrix(PAIR, TAILS, ["mlx5_bond_0", "hsn1"], heads=HEADS)) == {
        "n_gpus": 2,
        "n_nics": 2,
        "nic_names": ["mlx5_bond_0", "hsn1"],
        "gpu_gpu_classes": ["NV6"],
        "nvlink_islands": [[0, 1]],
        "cpu_affinity": ["0-15", "16-31"],
        "numa_affinity": ["0", "1"],
        "cpu_numa_for_bind": [0, 1],
        "gpu_numa_id": [None, None],
        "best_nics": [{"class": "PIX", "nics": ["mlx5_bond_0"]}, {"class": "NODE", "nics": ["mlx5_bond_0"]}],
        "warnings": ["nearest to no GPU: hsn1 (storage or front end?)"],
    }


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace("\t", "    "),
        lambda text: text.replace("\t", " "),
        lambda text: text.lstrip("\t"),
        lambda text: "\t\x1b[4mGPU0" + text.removeprefix("\tGPU0").replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m", 1),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"nid001: {line}\n" for line in text.split("\n")),
        lambda text: "".join(f"nid001.cluster-7.example:{' ' * bool(line)}{line}\n" for line in text.split("\n")),
        lambda text: text.replace("\tN/A", "\t\tN/A"),
        lambda text: "$ nvidia-smi topo -m\n" + text,
    ],
    ids=["wide", "narrow", "bare heading", "colours", "Windows", "pdsh", "clush", "empty cells", "prompt"],
)
def test_the_same_matrix_however_it_was_kept(changed: Any) -> None:
    text = matrix(PAIR, TAILS, ["mlx5_bond_0", "hsn1"], heads=HEADS)
    assert understood(changed(text)) == understood(text)
    assert changed(text) != text


def test_grace_has_lists_of_numa_nodes_and_no_near_nic() -> None:
    links = [["X", "NV18", "SYS", "SYS"], ["NV18", "X", "SYS", "SYS"]]
    tails = [("0-71", "0,3-9,11", "2"), ("72-143", "1,19-25", "10")]
    told = understood(matrix(links, tails, ["a0", "a1"], heads=HEADS))
    assert told["numa_affinity"] == ["0,3-9,11", "1,19-25"]
    assert told["cpu_numa_for_bind"] == [0, 1]
    assert told["gpu_numa_id"] == ["2", "10"]
    assert told["best_nics"] == [{"class": "SYS", "nics": ["a0", "a1"]}] * 2
    assert "every NIC is across" in told["warnings"][0]


def test_old_drivers_have_fewer_columns_and_name_nics_in_the_heading() -> None:
    text = matrix(PAIR, [("0-15",), ("0-15",)], ["x", "y"], heads=("CPU Affinity",)).split("\nNIC Legend")[0]
    told = understood(text.replace("NIC0", "mlx4_0").replace("NIC1", "mlx4_1"))
    assert told["nic_names"] == ["mlx4_0", "mlx4_1"]
    assert told["numa_affinity"] == [None, None]
    assert told["gpu_numa_id"] is None


def test_gpus_without_nvlink_are_islands_of_their_own_and_warned_of() -> None:
    links = [["X", "NV4", "NODE"], ["NV4", "X", "SYS"], ["NODE", "SYS", "X"]]
    told = understood(matrix(links, [("0-7", "N/A")] * 3, [], heads=HEADS[:2]))
    assert told["nvlink_islands"] == [[0, 1], [2]]
    assert told["numa_affinity"] == [None] * 3
    assert told["best_nics"] == [{"class": None, "nics": []}] * 3
    (warning,) = told["warnings"]
    assert warning.startswith("GPUs of different NVLink islands (0,1 | 2) reach one another by NODE, SYS only: ")


def test_a_mesh_that_is_not_complete_says_which_pairs_lack_a_link() -> None:
    links = [
        ["X", "NV1", "NV1", "SYS"],
        ["NV1", "X", "SYS", "NV1"],
        ["NV1", "SYS", "X", "NV1"],
        ["SYS", "NV1", "NV1", "X"],
    ]
    told = understood(matrix(links, [("0-7", "0")] * 4, [], heads=HEADS[:2]))
    assert told["nvlink_islands"] == [[0, 1, 2, 3]]
    (warning,) = told["warnings"]
    assert warning.startswith("GPUs of one NVLink island without a direct NVLink: 0-3, 1-2; ")
    assert warning.endswith(": 0,1 | 2,3")


def test_the_islands_of_a_cube_mesh_are_its_two_faces() -> None:
    """A DGX-1: each GPU is joined with the three others of its four and with its twin in the other four."""
    links = [
        ["X" if one == two else "NV1" if one // 4 == two // 4 or abs(one - two) == 4 else "SYS" for two in range(8)]
        for one in range(8)
    ]
    found = KIND.parse(matrix(links, [("0-7", "0")] * 8, [], heads=HEADS[:2]), "topo.txt")
    assert found.islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.joined == (tuple(range(8)),)


def test_one_gpu_alone() -> None:
    told = understood(matrix([["X", "PHB"]], [("0-7", "0")], ["eth0"], heads=HEADS[:2]))
    assert (told["nvlink_islands"], told["gpu_gpu_classes"]) == ([[0]], [])


def refused(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        KIND.parse(text, "topo.txt")
    return str(caught.value).splitlines()


def test_every_mistake_is_told_with_its_place() -> None:
    text = matrix(PAIR, TAILS, [], heads=HEADS).replace("GPU1\tNV6", "GPU1\tNVX").replace("GPU0\tX\tNV6", "GPU0\tX")
    lines = refused(text)
    assert lines[0].startswith("topo.txt:2:")
    assert any(line.startswith("topo.txt:3:6: `NVX` in the row of GPU1") for line in lines)


def test_a_text_that_was_cut_off_is_refused() -> None:
    text = matrix([["X", "NV6"], ["NV6", "X"]], TAILS, [], heads=HEADS)
    assert "no row for the column GPU1" in refused(text[: text.index("GPU1\tNV6")])[0]
    assert "cells in the row of GPU1" in refused(text[: text.index("GPU1\tNV6") + 9])[0]


def test_output_of_several_hosts_is_refused_with_their_names() -> None:
    text = matrix(PAIR, TAILS, [], heads=HEADS)
    mixed = "".join(f"{host}: {line}\n" for line in text.splitlines() for host in ("n1", "n2"))
    assert "lines of several hosts in one text: n1, n2" in "\n".join(refused(mixed))


def test_rows_that_disagree_are_told() -> None:
    links = [["X", "NV6"], ["SYS", "X"]]
    assert understood(matrix(links, TAILS, [], heads=HEADS))["warnings"][0] == "GPU0 says NV6 to GPU1, which says SYS"


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[list[str]], list[str]]:
    gpus, nics = draw(st.integers(1, 6)), draw(st.integers(0, 4))
    classes = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV4", "NV18"])
    links = [
        ["X"] * gpus + [draw(st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS"])) for _ in range(nics)]
        for _ in range(gpus)
    ]
    for one in range(gpus):
        for two in range(one):
            links[one][two] = links[two][one] = draw(classes)
    return links, [f"mlx5_{nic}" for nic in range(nics)]


@settings(max_examples=60, deadline=None)
@given(drawn=matrices())
def test_any_matrix_comes_back(drawn: tuple[list[list[str]], list[str]]) -> None:
    links, nics = drawn
    found = KIND.parse(matrix(links, [("0-7", "0", "N/A")] * len(links), nics, heads=HEADS), "topo.txt")
    assert isinstance(found, GpuTopology)
    assert [[*gpu.to_gpus, *gpu.to_nics] for gpu in found.gpus] == links
    assert sorted(gpu for island in found.islands for gpu in island) == list(range(len(links)))
    joined = {(one, two) for one, row in enumerate(links) for two in range(one) if row[two].startswith("NV")}
    assert {(two, one) for one, two in found.nvlinks} == joined
    assert all(pair in joined for island in found.islands for pair in combinations(reversed(island), 2))
    home = {gpu: group for group in found.joined for gpu in group}
    assert all(home[one] == home[two] for one, two in joined)
    for gpu, row in zip(found.gpus, links, strict=True):
        order = ("PIX", "PXB", "PHB", "NODE", "SYS")
        to_nics = row[len(links) :]
        nearest = found.nearest_nics(gpu.index)
        assert nearest.distance == (min(to_nics, key=order.index) if to_nics else None)
        assert nearest.nics == tuple(nic for nic, kind in zip(nics, to_nics, strict=True) if kind == nearest.distance)
