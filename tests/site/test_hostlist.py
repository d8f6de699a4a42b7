import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcserve.site import HostListError, expand_hosts, fold_hosts

# What `scontrol show hostnames` of Slurm 22.05.8 prints for each.
SLURM_SAYS = {
    "node[001-003,010]": "node001 node002 node003 node010",
    "b04-[09-10]": "b04-09 b04-10",
    "n[08-11]": "n08 n09 n10 n11",
    "n[098-102]": "n098 n099 n100 n101 n102",
    "n[01-2]": "n01 n02",
    "n[8-011]": "n8 n9 n10 n11",
    "r[1-2]c[1-3]": "r1c1 r1c2 r1c3 r2c1 r2c2 r2c3",
    "rack[0-1]_blade[0-1]": "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1",
    "shas[01-02][01-03],shas06[05-06]": "shas0101 shas0102 shas0103 shas0201 shas0202 shas0203 shas0605 shas0606",
    "a-[0-1]-[0-1]": "a-0-0 a-0-1 a-1-0 a-1-1",
    "n[1-2]c[01-02]d[3]": "n1c01d3 n2c01d3 n1c02d3 n2c02d3",
    "10.140.71.[103,115]": "10.140.71.103 10.140.71.115",
    "ip-10-1-[30-31]-[65,184]": "ip-10-1-30-65 ip-10-1-30-184 ip-10-1-31-65 ip-10-1-31-184",
    "b,a,b": "b a b",
    "n[1,1,2]": "n1 n1 n2",
}


@pytest.mark.parametrize(("expression", "names"), SLURM_SAYS.items())
def test_lists_that_slurm_takes_mean_the_same(expression: str, names: str) -> None:
    assert expand_hosts(expression) == tuple(names.split())


def test_text_after_the_last_bracket_is_kept() -> None:
    """Slurm 22.05 refuses these; cloud clusters have such names."""
    assert expand_hosts("worker-[0-1].pool.example.org") == (
        "worker-0.pool.example.org",
        "worker-1.pool.example.org",
    )


@pytest.mark.parametrize(
    "expression",
    [
        *("node[01", "node01]", "node[]", "n[3-1]", "n[1-10/2]", "node[[01]]", "node[01,]", "n[a-c]", "n[1-]", "n[-1]"),
        *("", "a,,b", "a,", "a b", "n[٣]", "n[1-99999999]", "n[1-300][1-300]", "n[0-65536]", "n[" + "9" * 5000 + "]"),
    ],
)
def test_what_is_no_list_is_refused_by_name(expression: str) -> None:
    with pytest.raises(HostListError) as caught:
        expand_hosts(expression)
    assert f"`{expression[:60]}" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_largest_list_is_taken() -> None:
    assert len(expand_hosts("n[1-65536]")) == 65_536


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (("node01", "node02", "node03", "node07"), "node[01-03,07]"),
        (("node1",), "node1"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n09", "n10", "n8"), "n[09-10,8]"),
        (("n3", "n2", "n1"), "n[3,2,1]"),
        (("login", "n1", "n2", "b"), "login,n[1-2],b"),
        (("10.0.0.1", "10.0.0.2"), "10.0.0.[1-2]"),
        (("12", "13"), "12,13"),
    ],
)
def test_folding_is_short(names: tuple[str, ...], folded: str) -> None:
    assert fold_hosts(names) == folded


@pytest.mark.parametrize("names", [(), ("",), ("a,b",), ("a[1]",), ("a b",), ("a\n",)])
def test_what_is_no_name_is_not_folded(names: tuple[str, ...]) -> None:
    with pytest.raises(HostListError):
        fold_hosts(names)


host_names = st.from_regex(r"[a-z]{1,2}-?[0-9]{0,3}", fullmatch=True) | st.from_regex(
    r"[A-Za-z0-9._-]{1,30}", fullmatch=True
)


@given(st.lists(host_names, min_size=1))
@example(["n9", "n10"])
@example(["n09", "n010"])
@example(["n" + "9" * 18, "n1" + "0" * 18])
def test_folding_and_expanding_gives_the_names_back(names: list[str]) -> None:
    assert expand_hosts(fold_hosts(names)) == tuple(names)


@given(st.text(alphabet="n019-,[] /", max_size=20))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand_hosts(text)
    except HostListError:
        return
    assert all(names)


widths = st.integers(1, 3)
bounds = st.tuples(st.integers(0, 120), st.integers(0, 4), widths)
ranges = bounds.map(lambda b: f"{b[0]:0{b[2]}}" + (f"-{b[0] + b[1]}" if b[1] else ""))
brackets = st.lists(ranges, min_size=1, max_size=3).map(lambda items: f"[{','.join(items)}]")
parts = st.builds(
    lambda stem, pairs: stem + "".join(bracket + joint for bracket, joint in pairs[:-1]) + pairs[-1][0],
    st.sampled_from(["n", "node-", "r0c"]),
    st.lists(st.tuples(brackets, st.sampled_from(["", "x", "-"])), min_size=1, max_size=3),
)
expressions = st.lists(parts | st.sampled_from(["a", "b7"]), min_size=1, max_size=2).map(",".join)


@pytest.mark.real
@pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm's scontrol is not installed")
def test_any_list_means_what_slurm_says(tmp_path: Path) -> None:
    """Through `scontrol show hostnames`, which needs a configuration file and no daemon."""
    configuration = tmp_path / "slurm.conf"
    configuration.write_text("ClusterName=none\nSlurmctldHost=localhost\nAuthType=auth/none\n")

    @settings(max_examples=300, deadline=None, database=None)
    @given(expressions)
    def compare(expression: str) -> None:
        slurm = subprocess.run(
            ["scontrol", "show", "hostnames", expression],
            env=os.environ | {"SLURM_CONF": str(configuration)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert expand_hosts(expression) == tuple(slurm.stdout.split())
        folded = fold_hosts(expand_hosts(expression))
        assert expand_hosts(folded) == tuple(slurm.stdout.split())

    compare()
