import pytest

from hpcserve.errors import InputError
from hpcserve.site.slurm_text import BlockList, Flat, NamedTopologies, SwitchTree, parse_topology_yaml

TWO = """\
# written by a script
---
- topology: net/tree
  cluster_default: {default}
  tree:
    switches:
      - switch: top
        children: tor[1-2]
      - switch: tor1
        nodes: n[1-2]
      - switch: tor2
        nodes: [n3, "n[4-5]"]
- topology: racks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - {{block: r1, nodes: "n[1-2]"}}
      - block: r2
        nodes: n3
- topology: plain
  flat: {flat}
"""


def read(text: str) -> NamedTopologies:
    return parse_topology_yaml(text, "topology.yaml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("flat", ["true", "True", "yes", "{alpha_step_rank: true}"])
def test_topologies_by_name(flat: str) -> None:
    found = read(TWO.format(default="True", flat=flat))
    assert found.default == "net/tree"
    tree, racks, plain = found.topologies.values()
    assert isinstance(tree, SwitchTree)
    assert {one.name: (one.nodes, one.children) for one in tree.switches} == {
        "top": ((), ("tor1", "tor2")),
        "tor1": (("n1", "n2"), ()),
        "tor2": (("n3", "n4", "n5"), ()),
    }
    assert isinstance(racks, BlockList)
    assert racks.block_sizes == (2, 4)
    assert [(one.name, one.nodes) for one in racks.blocks] == [("r1", ("n1", "n2")), ("r2", ("n3",))]
    assert isinstance(plain, Flat)


def test_no_default_is_guessed_among_several() -> None:
    found = read(TWO.format(default="false", flat="true"))
    assert found.default is None
    assert found.warnings == ("no topology is marked cluster_default: say which one is meant",)


def test_of_two_defaults_slurm_takes_the_first() -> None:
    found = read(
        "- {topology: a, cluster_default: true, flat: true}\n- {topology: b, cluster_default: true, flat: true}\n"
    )
    assert found.default == "a"
    assert len(found.warnings) == 1


def test_no_switches_are_no_switches() -> None:
    found = read("- topology: topology/tree\n  tree:\n    switches: []\n")
    assert found.default == "topology/tree"
    assert found.topologies["topology/tree"] == SwitchTree(switches=(), roots=(), warnings=("no switch is named",))


def test_every_mistake_is_told_at_once() -> None:
    assert mistakes(
        "- topology: a\n"
        "  cluster_defualt: true\n"
        "  tree:\n"
        "    switches:\n"
        "      - switch: s\n"
        "        node: n1\n"
        "      - switch: t\n"
        "        nodes: n[2-\n"
        "        children: s\n"
        "      - just words\n"
        "- topology: b\n"
        "  ring:\n"
        "    rings: []\n"
        "- topology: c\n"
        "  flat: perhaps\n"
        "- topology: c\n"
        "  block: {blocks: [], block_sizes: [2, many]}\n"
        "- topology: d\n"
    ) == [
        (
            "topology.yaml:2:3: unknown key `cluster_defualt`; a key of topology.yaml was wanted; "
            "did you mean `cluster_default`?"
        ),
        "topology.yaml:6:9: unknown key `node`; a key of topology.yaml was wanted; did you mean `nodes`?",
        (
            "topology.yaml:8:16: host list `n[2-`: its brackets do not match; a Slurm host list was wanted; "
            "write it as in node[01-04,07],login1"
        ),
        "topology.yaml:10:9: `just words`; a mapping was wanted; write `key: value` pairs",
        (
            "topology.yaml:12:3: a topology of the type `ring`; a tree, blocks or a flat topology was wanted; "
            "describe this fabric in the site file by hand"
        ),
        "topology.yaml:15:9: `perhaps`; true or false was wanted; write true or false",
        "topology.yaml:16:3: `c` a second time; each topology once was wanted; rename one of the two",
        "topology.yaml:17:36: `2,many`; numbers of nodes were wanted; write them as in BlockSizes=4,16",
        "topology.yaml:18:3: a topology without a type; exactly one of tree, block, flat was wanted; write one",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "topology.yaml:1:1: nothing; a list of topologies was wanted"),
        ("topology: a\n", "topology.yaml:1:1: a mapping; a list of topologies was wanted"),
        ("- a: [1\n", "topology.yaml:2:1: "),
        ("- topology: a\n  topology: b\n  flat: true\n", "topology.yaml:2:3: `topology` a second time"),
        ("- &x {topology: a, flat: true}\n- *x\n", "topology.yaml:2:3: an alias `*x`"),
        ("[" * 60, "topology.yaml:1:51: more than 50 levels"),
        ("- ? [a]\n  : b\n", "topology.yaml:1:5: a key that is not text"),
        ("- a\x00b", "topology.yaml:1:1: a character that YAML does not allow"),
        ("- \ud800", "topology.yaml:1:1: a character that YAML does not allow"),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, found: str) -> None:
    assert found in mistakes(text)[0]
