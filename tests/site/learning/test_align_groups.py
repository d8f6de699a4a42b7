"""Groups of nodes in the file and as Slurm tells them apart: what is written to a group holds for all of its nodes."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from hpcserve.site import expand_hosts, hosts_of, load_site
from hpcserve.site.learning import Refreshed, draft_of, gather, refresh
from tests.site.learning.texts import ADMIN, HOSTS, IBSTAT, all_but_nodes_and_nics, reading, show_node

NODES = "nodes:\n  - hosts: gn[01-08]\n    type: a100-x4\n"
REST = [*all_but_nodes_and_nics(second_leaf="gn[05-10]"), reading(IBSTAT, "gn03/ibstat.txt")]


def imported(text: str, *nodes: str, before: Refreshed | None = None, take: Sequence[str] = ()) -> Refreshed:
    texts = [reading("".join(nodes), "nodes.txt"), *REST]
    record = before.record if before else {}
    return refresh(text, draft_of(gather(texts)), source="g", record=record, take=take, efficiency=0.9)


FIRST = imported(ADMIN, show_node(features="(null)"))
assert NODES in FIRST.text

HALF = (show_node(HOSTS[:4], features="ib"), show_node(HOSTS[4:], features="ib,bigmem"))


@pytest.mark.parametrize("order", [HALF, HALF[::-1]])
@pytest.mark.parametrize("written", ["", "    features: [ib]\n", "    features: [fast]\n"])
def test_a_kept_group_gets_the_features_that_all_of_its_nodes_have(order: tuple[str, str], written: str) -> None:
    text = FIRST.text.replace(NODES, NODES + written)
    found = imported(text, *order)
    wanted = text if written else text.replace(NODES, NODES + "    features: [ib]\n")
    assert found.text == wanted
    assert [one.key.rpartition(".")[2] for one in found.conflicts] == (["features"] if "fast" in written else [])
    assert all("says ['ib']" in str(one) or "ib" in one.learnt for one in found.conflicts)
    [note] = [note for note in found.notes if "divides it" in note]
    assert "gn[01-04]" in note or "gn[05-08]" in note
    again = imported(found.text, *order, before=found)
    assert again.text == found.text


def test_a_kept_group_of_which_no_feature_holds_for_all_gets_none() -> None:
    found = imported(FIRST.text, show_node(HOSTS[:4], features="old"), show_node(HOSTS[4:], features="new"))
    assert found.text == FIRST.text
    assert found.conflicts == ()


@pytest.mark.parametrize("take", ["nodes", "nodes[a100-x4]", "all"])
def test_a_kept_group_is_divided_where_that_is_taken(take: str) -> None:
    found = imported(FIRST.text, show_node(HOSTS[:4], features="(null)"), HALF[1], take=[take])
    groups = {group.hosts: group.features for group in load_site(found.text, source="g").nodes}
    assert groups == {"gn[01-04]": (), "gn[05-08]": ("ib", "bigmem")}
    assert not any("divides it" in note for note in found.notes)


def test_a_learnt_group_is_divided_unasked() -> None:
    found = imported(FIRST.text, *HALF, before=FIRST)
    groups = {group.hosts: group.features for group in load_site(found.text, source="g").nodes}
    assert groups == {"gn[01-04]": ("ib",), "gn[05-08]": ("ib", "bigmem")}
    assert found.conflicts == ()


def test_new_nodes_of_another_kind_are_a_group_of_their_own_and_those_of_the_same_kind_are_told() -> None:
    more = show_node(["gn09"], features="(null)")
    other = show_node(["gn10"], features="bigmem")
    found = imported(FIRST.text, show_node(features="(null)"), more, other)
    [conflict] = [one for one in found.conflicts if one.key.startswith("nodes")]
    assert (conflict.key, conflict.file_says, conflict.learnt) == ("nodes[a100-x4].hosts", "gn[01-08]", "gn[01-09]")
    assert "  - hosts: gn10\n    type: a100-x4\n    features: [bigmem]\n" in found.text


def test_a_group_of_which_nothing_was_read_is_kept_and_told() -> None:
    more = "  - {hosts: 'old[1-2]', type: a100-x4, features: [old]}\n"
    text = FIRST.text.replace(NODES, NODES + more)
    found = imported(text, show_node(features="(null)"), before=FIRST)
    assert found.text == text
    [note] = [note for note in found.notes if "`a100-x4+old`" in note]
    assert "old[1-2]" in note


def test_groups_that_the_admin_divided_stay_divided_and_no_difference_is_told() -> None:
    halves = NODES.replace("[01-08]", "[01-04]") + NODES.replace("[01-08]", "[05-08]").removeprefix("nodes:\n")
    text = FIRST.text.replace(NODES, halves)
    for before in (None, FIRST):
        found = imported(text, show_node(features="(null)"), before=before)
        assert (found.text, found.conflicts) == (text, ())
        again = imported(text, show_node(features="(null)"), before=found)
        assert (again.text, again.conflicts) == (text, ())


def test_a_learnt_group_gives_no_node_to_one_that_the_admin_wrote_of_the_same_kind() -> None:
    first = imported(ADMIN, show_node(HOSTS[:4], features="(null)"))
    learnt = NODES.replace("[01-08]", "[01-04]")
    assert learnt in first.text
    text = first.text.replace(learnt, learnt + "  - hosts: gn[05-08]\n    type: a100-x4\n    features: [rack2]\n")
    found = imported(text, show_node(features="(null)"), before=first)
    groups = {group.hosts: group.features for group in load_site(found.text, source="g").nodes}
    assert groups == {"gn[01-04]": (), "gn[05-08]": ("rack2",)}


def test_what_take_divides_leaves_the_features_that_slurm_does_not_tell() -> None:
    text = FIRST.text.replace(NODES, NODES + "    features: [fast]\n")
    found = imported(text, show_node(HOSTS[:6], features="(null)"), show_node(HOSTS[6:], features="ib"), take=["nodes"])
    groups = {group.hosts: group.features for group in load_site(found.text, source="g").nodes}
    assert groups == {"gn[01-06]": (), "gn[07-08]": ("ib",)}


def test_several_groups_alike_each_get_what_is_taken() -> None:
    halves = NODES.replace("[01-08]", "[01-04]") + NODES.replace("[01-08]", "[05-08]").removeprefix("nodes:\n")
    text = FIRST.text.replace(NODES, halves)
    kept = imported(text, show_node(features="ib"))
    assert kept.text == text
    assert any("--take 'nodes[a100-x4]'" in note for note in kept.notes)
    found = imported(text, show_node(features="ib"), take=["nodes[a100-x4]"])
    groups = {group.hosts: group.features for group in load_site(found.text, source="g").nodes}
    assert groups == {"gn[01-04]": ("ib",), "gn[05-08]": ("ib",)}


# shrinking takes longer than a test may
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
NONE = "(null)"
SECOND = ["", "    features: [ib]\n", "", ""]
WRITTEN = ["    features: [ib]\n"] * 3 + [""]


@settings(max_examples=25, deadline=None, phases=UNSHRUNK)
@given(
    told=st.lists(st.sampled_from(["(null)", "ib", "ib,big", "big"]), min_size=8, max_size=8),
    cuts=st.sets(st.integers(1, 7), max_size=3),
    written=st.lists(st.sampled_from(["", "    features: [ib]\n"]), min_size=4, max_size=4),
    recorded=st.booleans(),
    take=st.sampled_from([(), ("nodes",), ("all",)]),
)
@example(told=["(null)"] * 7 + ["ib,big"], cuts={1, 2, 3}, written=WRITTEN, recorded=False, take=("nodes",))
@example(told=["ib"] * 7 + ["ib,big"], cuts={1, 2, 3}, written=WRITTEN, recorded=False, take=("nodes",))
@example(told=[NONE, "ib", *[NONE] * 6], cuts={2}, written=SECOND, recorded=False, take=("nodes",))
@example(told=[NONE, "ib", *[NONE] * 6], cuts={2}, written=SECOND, recorded=True, take=("nodes",))
@example(told=["ib,big", *[NONE] * 6, "ib"], cuts={1}, written=SECOND, recorded=False, take=("nodes",))
@example(told=[NONE, "ib", *[NONE] * 5, "ib"], cuts={1}, written=SECOND, recorded=False, take=("nodes",))
def test_however_file_and_slurm_group_them_each_node_stands_once_and_has_no_feature_that_neither_says(
    told: list[str], cuts: set[int], written: list[str], recorded: bool, take: tuple[str, ...]
) -> None:
    edges = [0, *sorted(cuts), len(HOSTS)]
    spans = list(pairwise(edges))
    groups = "".join(
        f"  - hosts: {','.join(HOSTS[low:high])}\n    type: a100-x4\n{words}"
        for (low, high), words in zip(spans, written, strict=False)
    )
    text = FIRST.text.replace(NODES.removeprefix("nodes:\n"), groups)
    nodes = [show_node([host], features=features) for host, features in zip(HOSTS, told, strict=True)]
    found = imported(text, *nodes, before=FIRST if recorded else None, take=take)
    site = load_site(found.text, source="g")
    assert sorted(hosts_of(site)) == HOSTS
    by_hand = {host: words for (low, high), words in zip(spans, written, strict=False) for host in HOSTS[low:high]}
    for group in site.nodes:
        for host in expand_hosts(group.hosts):
            for feature in group.features:
                assert feature in told[HOSTS.index(host)].split(",") or f"[{feature}]" in by_hand[host]
    again = imported(found.text, *nodes, before=found, take=take)
    assert again.text == found.text
