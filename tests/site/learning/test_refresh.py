"""A second import: what the admin wrote stays, what is new comes in, and what differs is told."""

import contextlib
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.site import expand_hosts, fold_hosts, hosts_of, load_site
from hpcserve.site.learning import Draft, Reading, Refreshed, draft_of, gather, refresh
from tests.site.learning.texts import (
    ADMIN,
    HOSTS,
    IBSTAT,
    QUERY,
    TOPO,
    ibnetdiscover,
    reading,
    show_config,
    show_node,
    show_partition,
    show_topology,
)

SITES = Path(__file__).parents[3] / "site_configs"
ON_NODE = [reading(IBSTAT, "gn03/ibstat.txt"), reading(TOPO, "gn03/topo.txt"), reading(QUERY, "gn03/query.csv")]


def readings(
    *,
    hosts: list[str] | None = None,
    leaves: dict[str, str] | None = None,
    partitions: str = "",
    max_time: str = "2-00:00:00",
    cpus: int = 64,
) -> list[Reading]:
    """The invented cluster, changed in one thing or another."""
    hosts = HOSTS if hosts is None else hosts
    leaves = {"leaf1": "gn[01-04]", "leaf2": fold_hosts(hosts[4:])} if leaves is None else leaves
    return [
        reading(show_node(hosts, cpus=cpus), "nodes.txt"),
        reading(show_partition(fold_hosts(hosts), max_time=max_time) + partitions, "partitions.txt"),
        reading(show_config(), "config.txt"),
        reading(show_topology(leaves), "topology.txt"),
        *ON_NODE,
    ]


def draft(*, leaves: dict[str, str] | None = None, **changes: object) -> Draft:
    return draft_of(gather(readings(leaves=leaves, **changes)))  # type: ignore[arg-type]


def again(text: str, found: Draft, before: Refreshed | None, *take: str) -> Refreshed:
    return refresh(text, found, source="gamma.yaml", record=before.record if before else {}, take=take, efficiency=0.9)


SAME = draft()
FIRST = again(ADMIN, SAME, None)


def keys(refreshed: Refreshed) -> list[str]:
    return [conflict.key for conflict in refreshed.conflicts]


def test_the_same_facts_again_change_no_byte() -> None:
    second = again(FIRST.text, draft(), FIRST)
    assert second.text == FIRST.text
    assert second.record == FIRST.record
    assert second.conflicts == ()


def test_without_the_record_the_same_facts_still_change_no_byte() -> None:
    assert again(FIRST.text, draft(), None).text == FIRST.text


def test_an_edit_and_a_comment_stay_and_the_edit_is_told() -> None:
    text = FIRST.text.replace("max_time: 2-00:00:00", "max_time: 0-12:00:00  # asked for by the users' board")
    assert text != FIRST.text
    second = again(text, draft(), FIRST)
    assert second.text == text
    assert keys(second) == ["partitions.batch.max_time"]
    assert "0-12:00:00" in str(second.conflicts[0])
    assert "2-00:00:00" in str(second.conflicts[0])
    third = again(second.text, draft(max_time="3-00:00:00"), second)
    assert third.text == text
    assert keys(third) == ["partitions.batch.max_time"]


@pytest.mark.parametrize("take", ["partitions.batch.max_time", "partitions.batch", "partitions", "all"])
def test_an_edit_goes_where_its_key_is_taken(take: str) -> None:
    text = FIRST.text.replace("max_time: 2-00:00:00", "max_time: 0-12:00:00 # the board")
    second = again(text, draft(), FIRST, take)
    assert "max_time: 2-00:00:00 # the board" in second.text
    assert second.conflicts == ()


def test_taking_one_key_takes_no_other_that_begins_like_it() -> None:
    text = FIRST.text.replace("max_time: 2-00:00:00", "max_time: 0-12:00:00")
    second = again(text, draft(), FIRST, "partitions.bat")
    assert second.text == text
    assert any("partitions.bat`" in note for note in second.notes)


def test_what_was_not_edited_follows_the_cluster() -> None:
    more = [*HOSTS, "gn09"]
    second = again(FIRST.text, draft(hosts=more, max_time="1-00:00:00"), FIRST)
    site = load_site(second.text, source="gamma.yaml")
    assert list(hosts_of(site)) == more
    assert site.partitions["batch"].max_time == "1-00:00:00"
    assert second.conflicts == ()


def test_only_lines_that_must_change_do() -> None:
    text = FIRST.text.replace("\n  data: {interface: ib0}", "\n  data:   {interface:  ib0}      # odd on purpose")
    second = again(text, draft(max_time="1-00:00:00"), FIRST)
    ours, theirs = text.splitlines(), second.text.splitlines()
    assert [(one, two) for one, two in zip(ours, theirs, strict=True) if one != two] == [
        ("    max_time: 2-00:00:00", "    max_time: 1-00:00:00")
    ]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_a_file_with_other_ends_of_lines_keeps_them_and_new_lines_get_them(end: str) -> None:
    text = FIRST.text.replace("\n", end)
    assert again(text, draft(), FIRST).text == text
    two = show_partition(name="debug", max_time="00:30:00")
    second = again(text, draft(max_time="1-00:00:00", partitions=two), FIRST)
    assert second.text == again(FIRST.text, draft(max_time="1-00:00:00", partitions=two), FIRST).text.replace("\n", end)
    assert "debug:" in second.text


@settings(max_examples=5, deadline=None)
@given(odd=st.sets(st.integers(0, FIRST.text.count("\n") - 1)))
def test_each_line_keeps_its_own_end(odd: set[int]) -> None:
    lines = FIRST.text.splitlines()
    ends = ["\r\n" if number in odd else "\n" for number in range(len(lines))]
    text = "".join(line + end for line, end in zip(lines, ends, strict=True))
    found = draft(hosts=[*HOSTS, "x1"], leaves={"leaf1": "gn[01-08]", "leaf2": "x1"})
    plain, second = again(FIRST.text, found, FIRST).text, again(text, found, FIRST).text
    assert second.replace("\r\n", "\n") == plain
    told = second.splitlines(keepends=True)
    for block in SequenceMatcher(None, lines, plain.splitlines(), autojunk=False).get_matching_blocks():
        kept = zip(told[block.b : block.b + block.size], ends[block.a : block.a + block.size], strict=True)
        assert all(line.endswith("\r\n") == (end == "\r\n") for line, end in kept)


def test_a_last_line_without_an_end_is_not_glued_to_what_comes_after_it() -> None:
    text = ADMIN.replace("slurm: {exclusive: true}\n\n", "").removesuffix("\n")
    second = again(text, SAME, None)
    assert "  cache: /tmp/cache\nslurm:" in second.text


def test_the_same_hosts_written_otherwise_are_no_difference() -> None:
    text = FIRST.text.replace("hosts: gn[01-04]", "hosts: gn04,gn03,gn[01-02] # as cabled")
    second = again(text, draft(), FIRST)
    assert second.text == text
    assert second.conflicts == ()


def test_what_was_removed_by_hand_stays_removed() -> None:
    text = FIRST.text.replace("    features: [ib]\n", "").replace(", mpi: pmix", "")
    second = again(text, draft(), FIRST)
    assert second.text == text
    assert keys(second) == ["nodes[a100-x4].features", "slurm.mpi"]
    third = again(text, draft(), second)
    assert (third.text, keys(third)) == (text, keys(second))


def test_a_partition_that_slurm_has_no_more_goes_unless_it_was_edited() -> None:
    two = show_partition(name="debug", max_time="00:30:00")
    with_two = again(ADMIN, draft(partitions=two), None)
    assert "debug:" in with_two.text
    assert again(with_two.text, draft(), with_two).text == FIRST.text
    edited = with_two.text.replace("max_time: 00:30:00", "max_time: 00:20:00")
    kept = again(edited, draft(), with_two)
    assert kept.text == edited
    assert keys(kept) == ["partitions.debug"]


def test_a_partition_that_slurm_has_no_more_and_no_import_wrote_stays() -> None:
    mine = FIRST.text.replace(
        "partitions:\n", "partitions:\n  mine: {hosts: gn01, max_time: 1:00:00, account_required: no}\n"
    )
    assert mine != FIRST.text
    assert again(mine, draft(), FIRST).text == mine


def test_the_admins_names_of_types_and_switches_are_kept() -> None:
    text = FIRST.text.replace("a100-x4", "fat-node").replace("leaf1", "rack-a").replace("leaf[1-2]", "rack-a,leaf2")
    text = text.replace("name: spine", "name: core")
    second = again(text, draft(max_time="1-00:00:00"), FIRST)
    assert second.text == text.replace("max_time: 2-00:00:00", "max_time: 1-00:00:00")
    assert second.conflicts == ()


def test_a_rate_of_the_admins_stays_and_an_unknown_one_is_filled() -> None:
    described = [[f"{host} mlx5_0" for host in leaf] for leaf in (HOSTS[:4], HOSTS[4:])]
    net = reading(ibnetdiscover(described, spines=2), "net.txt")
    first = refresh(ADMIN, draft(), source="g", record={}, efficiency=None)
    assert "25 GB/s" in first.text
    words = "{effective_gb_per_s: 41.0, source: measured by hand}"
    leaf2 = first.text.index("name: leaf2")
    start = first.text.index("    uplink:\n", leaf2)
    end = first.text.index("  - name: spine")
    mine = first.text[:start] + f"    uplink: {words}\n" + first.text[end:]
    found = draft_of(gather([*readings(), net]))
    second = refresh(mine, found, source="g", record=first.record, efficiency=0.8)
    site = load_site(second.text, source="g")
    rates = {switch.name: switch.uplink for switch in site.switches}
    assert words in second.text
    leaf1 = rates["leaf1"]
    assert leaf1 is not None
    assert leaf1.gb_per_s == pytest.approx(50 * 0.8)
    assert second.conflicts == ()


def test_another_efficiency_goes_to_the_rates_that_an_import_wrote_and_to_no_other() -> None:
    mine = FIRST.text.replace("efficiency: 0.9", "efficiency: 0.77", 1)
    second = refresh(mine, SAME, source="g", record=FIRST.record, efficiency=0.8)
    assert second.text == mine.replace("efficiency: 0.9", "efficiency: 0.8")
    assert refresh(second.text, SAME, source="g", record=second.record, efficiency=None).text == second.text
    assert again(second.text, SAME, second).text == mine


def test_another_nominal_rate_is_told_and_keeps_the_admins_efficiency_when_taken() -> None:
    text = FIRST.text.replace("nominal_gb_per_s: 25.0", "nominal_gb_per_s: 12.5", 1).replace(
        "efficiency: 0.9", "efficiency: 0.77", 1
    )
    key = "node_types.a100-x4.nics[mlx5_0:1].rate"
    second = again(text, draft(), FIRST)
    assert second.text == text
    assert keys(second) == [key]
    taken = load_site(again(text, draft(), FIRST, key).text, source="g")
    rate = taken.node_types["a100-x4"].nics[0].rate
    assert (rate.nominal_gb_per_s, rate.efficiency) == (25.0, 0.77)


def test_what_others_share_by_an_alias_is_not_changed_with_it() -> None:
    text = (SITES / "h100-ib.yaml").read_text(encoding="utf-8")
    hosts = [f"h{number:02d}" for number in range(1, 17)]
    nodes = reading(show_node(hosts, gres="gpu:h100:8", cpus=96), "nodes.txt")
    described = [[f"{host} mlx5_0" for host in leaf] for leaf in (hosts[:8], hosts[8:])]
    net = ibnetdiscover(described, spines=2, cables=16, rate="4xNDR")
    # one of the cables of the first leaf is lost: 31 x 50 GB/s
    lines = net.splitlines(keepends=True)
    lost = next(index for index, line in enumerate(lines) if "core1" in line and line.startswith("[9]"))
    fewer = reading("".join(lines[:lost] + lines[lost + 1 :]).replace('[1]\t"S-0000000050000000"[9]', "#"), "net.txt")
    found = draft_of(gather([nodes, fewer]))
    second = refresh(text, found, source="h", record={}, take=["switches[leaf1].uplink"])
    site = load_site(second.text, source="h")
    rates = {one.name: one.uplink.nominal_gb_per_s for one in site.switches if one.uplink}
    assert rates == {"leaf1": 1550.0, "leaf2": 1600.0}


@pytest.mark.parametrize("name", sorted(path.name for path in SITES.glob("*.yaml")))
def test_a_shipped_site_keeps_every_line_that_an_import_does_not_add_to(name: str) -> None:
    text = (SITES / name).read_text(encoding="utf-8")
    site = load_site(text, source=name)
    hosts = sorted(hosts_of(site))
    nodes = reading(show_node(hosts, gres="(null)"), "nodes.txt")
    second = refresh(text, draft_of(gather([nodes])), source=name, record={})
    assert [line for line in text.splitlines() if line not in second.text.splitlines()] == []


def test_a_second_kind_of_node_in_one_group_of_the_files_is_told_and_adds_no_node_twice() -> None:
    mixed = [
        reading(show_node(HOSTS[:6]) + show_node(HOSTS[6:], gres="gpu:h100:8"), "nodes.txt"),
        *readings()[1:],
    ]
    mine = FIRST.text.replace("hosts: gn[01-08]\n    type", "hosts: gn[01-02,03-08] # all of them\n    type")
    second = again(mine, draft_of(gather(mixed)), None)
    site = load_site(second.text, source="g")
    assert {host: kind.gpu.gres for host, kind in hosts_of(site).items()} == dict.fromkeys(HOSTS, "a100")
    assert any("gn[07-08]" in note for note in second.notes)


def test_nodes_of_a_learnt_group_may_become_another_kind() -> None:
    mixed = [reading(show_node(HOSTS[:6]) + show_node(HOSTS[6:], gres="gpu:h100:8"), "nodes.txt"), *readings()[1:]]
    second = again(FIRST.text, draft_of(gather(mixed)), FIRST)
    assert "hosts: gn[01-06]\n    type: a100-x4" in second.text
    assert "hosts: gn[07-08]\n    type: h100-x8" in second.text


def test_a_file_that_is_no_yaml_is_told_with_its_place() -> None:
    with pytest.raises(InputError) as caught:
        again("name: [\n", draft(), None)
    assert caught.value.mistakes[0].line == 2


@pytest.mark.parametrize(
    ("nodes", "line", "column"),
    [
        ("  - &g\n    hosts: gn[01-04]\n    type: a100-x4\n  - hosts: gn[05-08]\n    <<: *g\n", 5, 5),
        ("  - &g {hosts: 'gn[01-04]', type: a100-x4}\n  - {<<: *g, hosts: 'gn[05-08]'}\n", 2, 6),
    ],
)
def test_a_merge_key_is_refused_with_its_place(nodes: str, line: int, column: int) -> None:
    written = "  - hosts: gn[01-08]\n    type: a100-x4\n    features: [ib]\n"
    above = FIRST.text[: FIRST.text.index(written)].count("\n")
    with pytest.raises(InputError) as caught:
        again(FIRST.text.replace(written, nodes), SAME, FIRST)
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.column, mistake.found) == (above + line, column, "a merge key, `<<`")


def test_two_signs_of_less_that_are_no_merge_key_stay() -> None:
    text = FIRST.text.replace("description:", "# <<: *no\ndescription: 'a << b' #", 1)
    assert "'a << b'" in text
    assert again(text, SAME, FIRST).text == text


@pytest.mark.parametrize(
    "text", ["", "# a word\n", "- a\n", "just words\n", "a: !!python/name:os.system x\n", "a: 1\na: 2\n"]
)
def test_a_file_that_is_no_site_is_refused_in_words(text: str) -> None:
    with pytest.raises(InputError):
        again(text, draft(), None)


def test_a_section_that_was_removed_or_is_null_stays_so() -> None:
    start = FIRST.text.index("slurm: {")
    end = FIRST.text.index("transport:")
    for words in ("", "slurm: null\n\n"):
        text = FIRST.text[:start] + words + FIRST.text[end:]
        second = again(text, SAME, FIRST)
        assert second.text == text
        assert keys(second) == ["slurm"]


def test_a_rate_that_is_none_is_kept_and_told() -> None:
    start = FIRST.text.index("    uplink:\n")
    text = FIRST.text[:start] + "    uplink: fast\n" + FIRST.text[FIRST.text.index("  - name: leaf2") :]
    second = again(text, SAME, FIRST)
    assert second.text == text
    assert keys(second) == ["switches[leaf1].uplink"]


@settings(max_examples=10, deadline=None)
@given(at=st.integers(0, len(FIRST.text)), length=st.integers(0, 30), put=st.text(max_size=8))
def test_whatever_stands_in_the_file_it_is_refreshed_or_refused_in_words(at: int, length: int, put: str) -> None:
    text = FIRST.text[:at] + put + FIRST.text[at + length :]
    with contextlib.suppress(InputError):
        again(text, SAME, FIRST)


@settings(max_examples=5, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    comments=st.lists(st.integers(0, 200), max_size=6),
    grown=st.integers(0, 3),
)
def test_whatever_the_tree_comments_stay_and_the_site_is_the_cluster(
    sizes: list[int], comments: list[int], grown: int
) -> None:
    leaves: dict[str, list[str]] = {}
    count = 0
    for index, size in enumerate(sizes):
        leaves[f"sw{index}"] = [f"n{count + place:03d}" for place in range(size)]
        count += size

    def found(more: int) -> Draft:
        named = {name: list(hosts) for name, hosts in leaves.items()}
        named["sw0"] += [f"n9{place:02d}" for place in range(more)]
        hosts = [host for own in named.values() for host in own]
        return draft(hosts=hosts, leaves={name: fold_hosts(own) for name, own in named.items()})

    first = again(ADMIN, found(0), None)
    lines = first.text.splitlines()
    for number, place in enumerate(sorted(comments, reverse=True)):
        lines.insert(min(place, len(lines)), f"# a word {number}")
    text = "\n".join(lines) + "\n"
    assert again(text, found(0), first).text == text
    second = again(text, found(grown), first)
    assert [line for line in second.text.splitlines() if line.startswith("# a word")] == [
        line for line in lines if line.startswith("# a word")
    ]
    site = load_site(second.text, source="g")
    told = {one.name: expand_hosts(one.hosts) for one in site.switches if one.hosts}
    assert len(told["sw0"]) == len(leaves["sw0"]) + grown
    assert {name: told[name] for name in list(leaves)[1:]} == {name: tuple(leaves[name]) for name in list(leaves)[1:]}
