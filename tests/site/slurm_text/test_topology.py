"""topology.conf and `scontrol show topology`: the same tree from whichever text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.site.slurm_text import (
    BlockList,
    Flat,
    NamedTopologies,
    SwitchTree,
    parse_show_topology,
    parse_topology_conf,
)


def tree(text: str) -> SwitchTree:
    found = parse_topology_conf(text, "topology.conf")
    assert isinstance(found, SwitchTree)
    return found


def shown(text: str) -> SwitchTree:
    found = parse_show_topology(text, "shown.txt")
    assert isinstance(found, SwitchTree)
    return found


def told(found: SwitchTree) -> dict[str, tuple[list[str], list[str], int]]:
    return {one.name: (list(one.nodes), list(one.children), one.level) for one in found.switches}


def mistakes(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_topology_conf(text, "topology.conf")
    return str(caught.value).splitlines()


THREE_TIERS = """\
# ***************************
# generated, do not edit * #
SwitchName=core Switches=agg[1,2]
SwitchName=agg1 Switches=tor1
switchname=agg2   SWITCHES=tor[2-3]  LinkSpeed=100
SwitchName=tor1 Nodes=blade[01-02]
SwitchName=tor2 Nodes=blade03,\\
SwitchName=tor3 Nodes="blade04,big[9-10]" # the large ones
"""


def test_parents_may_name_switches_that_come_later_and_keys_have_any_case() -> None:
    found = tree(THREE_TIERS.replace("blade03,\\", "blade03"))
    assert told(found) == {
        "core": ([], ["agg1", "agg2"], 2),
        "agg1": ([], ["tor1"], 1),
        "agg2": ([], ["tor2", "tor3"], 1),
        "tor1": (["blade01", "blade02"], [], 0),
        "tor2": (["blade03"], [], 0),
        "tor3": (["blade04", "big9", "big10"], [], 0),
    }
    assert found.roots == ("core",)
    assert found.warnings == ()
    assert [leaf.name for leaf in found.leaves] == ["tor1", "tor2", "tor3"]


def test_a_continued_line_is_one_line_and_its_mistakes_keep_their_own_place() -> None:
    assert told(tree("SwitchName=a \\\n  Nodes=n[1-2]\n")) == {"a": (["n1", "n2"], [], 0)}
    assert mistakes("SwitchName=a \\\n  Nodes=n[1-2 \\\n Speed=3\n") == [
        (
            "topology.conf:2:9: host list `n[1-2`: its brackets do not match; a Slurm host list was wanted; "
            "write it as in node[01-04,07],login1"
        ),
        "topology.conf:3:2: unknown key `Speed`; a key of topology.conf was wanted; did you mean `LinkSpeed`?",
    ]


def test_a_comment_ends_a_continuation() -> None:
    assert [one.name for one in tree("SwitchName=a Nodes=n1 # and \\\nSwitchName=b Nodes=n2\n").switches] == ["a", "b"]


def test_disjoint_roots_are_kept_and_said() -> None:
    found = tree("SwitchName=a Nodes=n1,login1\nSwitchName=b Nodes=store-1\n")
    assert found.roots == ("a", "b")
    assert found.nodes == ("n1", "login1", "store-1")
    assert found.warnings == ("no common root: 2 roots",)


def test_an_empty_leaf_is_a_warning() -> None:
    found = tree("SwitchName=top Switches=spare\nSwitchName=spare\n")
    assert told(found) == {"top": ([], ["spare"], 1), "spare": ([], [], 0)}
    assert found.warnings == ("switch spare has no nodes",)


def test_children_that_nobody_defines_are_said_and_the_leaves_stay() -> None:
    found = tree("SwitchName=x-tor1 Nodes=n[1-2]\nSwitchName=core Switches=tor[1-2]\n")
    assert found.undefined_children == ("tor1", "tor2")
    assert told(found) == {"x-tor1": (["n1", "n2"], [], 0), "core": ([], [], 0)}
    assert found.warnings[0].startswith("topology.conf:2: switch core has children that are not defined: `tor1`")


def test_a_node_in_two_leaves_is_said() -> None:
    assert tree("SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[2-4]\n").warnings[0] == (
        "`n2` and 1 more in both switch a and switch b"
    )


def test_an_included_file_is_said() -> None:
    assert tree("Include racks.conf\nSwitchName=a Nodes=n1\n").warnings == ("include racks.conf",)


def test_every_mistake_is_told_at_once() -> None:
    assert mistakes(
        "SwitchName=a Nodes=n1 Switches=b\n"
        "SwitchName=b Node=n2\n"
        "SwitchName=b Nodes=n3 Nodes=n4\n"
        "Nodes=n5\n"
        "SwitchName=c Nodes=n6 stray\n"
        "SwitchName=d[1-2] Nodes=n7\n"
        "SwitchName=e Switches=b,c\n"
    ) == [
        (
            "topology.conf:1:23: switch `a` with both `Nodes=` and `Switches=`; one of the two was wanted; "
            "give the nodes a leaf switch of their own, or remove them"
        ),
        "topology.conf:2:14: unknown key `Node`; a key of topology.conf was wanted; did you mean `Nodes`?",
        (
            "topology.conf:3:1: switch `b` a second time; each switch once was wanted, it is already on line 2; "
            "remove one of the two, or correct its name"
        ),
        "topology.conf:3:23: `Nodes` a second time; each key once in a line was wanted; remove one",
        "topology.conf:4:1: a line without a name; `SwitchName=` or `BlockName=` was wanted; begin the line with it",
        "topology.conf:5:23: `stray`; `Key=value` was wanted; write it so, or remove it",
        "topology.conf:6:12: 2 names; one switch a line was wanted; write one line for each",
        (
            "topology.conf:7:1: switch `b` below `e`; one parent of each switch was wanted, it is already below `a`; "
            "name it below one of the two"
        ),
    ]


def test_spines_with_the_same_leaves_are_one_switch() -> None:
    """Slurm 22.05 starts with such a file."""
    found = tree(
        "SwitchName=top Switches=sp[1-2],other\nSwitchName=other Nodes=n9\n"
        "SwitchName=sp1 Switches=l[1-2]\nSwitchName=sp2 Switches=l2,l1\n"
        "SwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2\n"
    )
    assert told(found) == {
        "top": ([], ["sp1", "other"], 2),
        "other": (["n9"], [], 0),
        "sp1": ([], ["l1", "l2"], 1),
        "l1": (["n1"], [], 0),
        "l2": (["n2"], [], 0),
    }
    assert found.warnings == ("`sp2` with the same children as switch sp1: taken as one switch",)


def test_a_loop_is_one_mistake_with_its_way_round() -> None:
    assert mistakes("SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n") == [
        (
            "topology.conf:1:1: switch `a` is below itself: a < c < b < a; a tree was wanted; "
            "remove one of these from the `Switches=` of another"
        )
    ]
    assert "`a` is below itself: a < a" in mistakes("SwitchName=a Switches=a\n")[0]


def test_blocks() -> None:
    found = parse_topology_conf("BlockName=r1 Nodes=t[1-2]\nBlockName=r2 Nodes=t[3-4]\nBlockSizes=2,4\n", "t")
    assert isinstance(found, BlockList)
    assert [(one.name, one.nodes) for one in found.blocks] == [("r1", ("t1", "t2")), ("r2", ("t3", "t4"))]
    assert found.block_sizes == (2, 4)


def test_a_node_in_two_blocks_and_sizes_that_are_none_are_mistakes() -> None:
    assert [
        line.split(";")[0] for line in mistakes("BlockName=r1 Nodes=t1\nBlockName=r2 Nodes=t1\nBlockSizes=2,x")
    ] == [
        "topology.conf:2:1: node `t1` in block `r2`",
        "topology.conf:3:12: `2,x`",
    ]


def test_switches_and_blocks_side_by_side_are_two_topologies() -> None:
    found = parse_topology_conf("SwitchName=a Nodes=t1\nBlockName=r1 Nodes=t1\n", "topology.conf")
    assert isinstance(found, NamedTopologies)
    assert set(found.topologies) == {"tree", "block"}
    assert found.default is None
    assert "TopologyPlugin" in found.warnings[0]


def test_nodes_of_an_upper_switch_are_those_below_it() -> None:
    """Slurm 22.05 prints them sorted by level, from the top or from the bottom, with either key first."""
    down = (
        "SwitchName=cell1 Level=1 LinkSpeed=1 Nodes=c[001-006] Switches=sw1[01,03]\n"
        "SwitchName=sw101 Level=0 LinkSpeed=1 Nodes=c[001-002,005]\n"
        "SwitchName=sw103 Level=0 LinkSpeed=1 Nodes=c[003-004,006]\n"
    )
    up = "".join(reversed(down.splitlines(keepends=True))).replace(
        "Nodes=c[001-006] Switches=sw1[01,03]", "Switches=sw1[01,03] Nodes=c[001-006]"
    )
    expected = {
        "cell1": ([], ["sw101", "sw103"], 1),
        "sw101": (["c001", "c002", "c005"], [], 0),
        "sw103": (["c003", "c004", "c006"], [], 0),
    }
    assert told(shown(down)) == told(shown(up)) == expected
    assert shown(down).warnings == ()


def test_older_slurm_and_several_records_on_a_line() -> None:
    found = shown(
        "SwitchName=sp Level=1 LinkSpeed=1 Switches=le-1-res,le-2-res\n"
        "SwitchName=le-1-res Level=0 LinkSpeed=1 Nodes=bm[01-02],bm[07] "
        "SwitchName=le-2-res Level=0 LinkSpeed=1 Nodes=bm[03-04]\n"
    )
    assert told(found) == {
        "sp": ([], ["le-1-res", "le-2-res"], 1),
        "le-1-res": (["bm01", "bm02", "bm07"], [], 0),
        "le-2-res": (["bm03", "bm04"], [], 0),
    }


def test_one_child_without_a_record_is_the_leaf_of_what_is_left() -> None:
    found = shown(
        "SwitchName=ab12 Level=0 LinkSpeed=1 Nodes=w-0\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=w-0,w-dyn-1 Switches=ab12,lost\n"
        "SwitchName=over Level=2 LinkSpeed=1 Nodes=w-0,w-dyn-1 Switches=top\n"
    )
    assert told(found)["lost"] == (["w-dyn-1"], [], 0)
    assert told(found)["top"] == ([], ["ab12", "lost"], 1)
    assert found.roots == ("over",)
    assert found.undefined_children == ()
    assert any("lost has no record of its own" in one for one in found.warnings)


def test_of_two_children_without_records_nobody_knows_whose_the_nodes_are() -> None:
    found = shown(
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=w0\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=w[0-2] Switches=s1,lost1,lost2\n"
    )
    assert found.unplaced == ("w1", "w2")
    assert found.nodes == ("w0",)
    assert found.undefined_children == ("lost1", "lost2")


def test_aggregated_blocks_are_unions_and_addresses_are_names() -> None:
    found = parse_show_topology(
        "BlockName=g0 BlockIndex=0 Nodes=10.1.7.10[3,5] BlockSize=2\n"
        "BlockName=g1 BlockIndex=1 Nodes=10.1.8.2,10.1.9.3 BlockSize=2\n"
        "AggregatedBlock=g[0-1] BlockIndex=2 Nodes=10.1.7.10[3,5],10.1.8.2,10.1.9.3 BlockSize=4\n",
        "shown.txt",
    )
    assert isinstance(found, BlockList)
    assert [(one.name, one.nodes) for one in found.blocks] == [
        ("g0", ("10.1.7.103", "10.1.7.105")),
        ("g1", ("10.1.8.2", "10.1.9.3")),
    ]
    assert found.block_sizes == (2, 4)


def test_blocks_of_the_first_slurm_that_had_them_say_no_size() -> None:
    found = parse_show_topology("BlockName=b1 BlockIndex=0 Nodes=tray[1-2]\n", "shown.txt")
    assert isinstance(found, BlockList)
    assert found.block_sizes == ()
    assert found.nodes == ("tray1", "tray2")


def test_slurm_without_a_topology_is_flat() -> None:
    assert isinstance(parse_show_topology("No topology information available\n", "x"), Flat)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ring=r1 Nodes=n[1-4]\n", "shown.txt:1:1: a record `Ring=`"),
        ("nothing at all\n", "shown.txt:1:1: no switch and no block"),
        ("SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1-\n", "shown.txt:1:40: host list `n[1-`"),
    ],
)
def test_what_scontrol_prints_and_nobody_can_use_is_refused(text: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_show_topology(text, "shown.txt")
    assert found in str(caught.value)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, tuple[list[str], list[str]]]:
    """Some tree: for each switch its nodes or its children."""
    leaves = draw(st.integers(1, 6))
    switches: dict[str, tuple[list[str], list[str]]] = {}
    number = 0
    for leaf in range(leaves):
        count = draw(st.integers(1, 4))
        switches[f"l{leaf}.{draw(st.sampled_from(['a', 'b-c']))}"] = ([f"n{number + i:03}" for i in range(count)], [])
        number += count
    layer, level = list(switches), 1
    while len(layer) > 1:
        width = draw(st.integers(2, 4))
        groups = [layer[i : i + width] for i in range(0, len(layer), width)]
        layer = []
        for index, group in enumerate(groups):
            name = f"u{level}x{index}"
            switches[name] = ([], group)
            layer.append(name)
        level += 1
    names = draw(st.permutations(list(switches)))
    return {name: switches[name] for name in names}


@given(trees())
def test_any_tree_is_read_back_from_either_text(switches: dict[str, tuple[list[str], list[str]]]) -> None:
    configured, printed = [], []
    for name, (nodes, children) in switches.items():
        below, waiting = list(nodes), list(children)
        while waiting:
            one = waiting.pop()
            below += switches[one][0]
            waiting += switches[one][1]
        configured.append(
            f"SwitchName={name} " + (f"Nodes={','.join(nodes)}" if nodes else f"Switches={','.join(children)}")
        )
        printed.append(
            f"SwitchName={name} Level={int(bool(children))} LinkSpeed=1 Nodes={','.join(sorted(below))}"
            + (f" Switches={','.join(children)}" if children else "")
        )
    expected = {name: (nodes, children) for name, (nodes, children) in switches.items()}
    for found in (tree("\n".join(configured)), shown("\n".join(printed))):
        assert {one.name: (list(one.nodes), list(one.children)) for one in found.switches} == expected
        assert len(found.roots) == 1
        assert found.warnings == ()
