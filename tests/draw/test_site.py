import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcserve.draw import Measured, Part, Sketch, site_html, site_svg, site_tree, sketch_of
from hpcserve.nouns import (
    ClassMeasured,
    LinkMeasured,
    Measurement,
    NodeGroup,
    NvlinkDomain,
    Outlier,
    Rate,
    Site,
    Switch,
)
from hpcserve.site import expand_hosts, load_site
from tests.strategies import sites
from tests.synthetic import site

_SHIPPED = sorted((Path(__file__).parents[2] / "site_configs").glob("*.yaml"))
_SVG = "{http://www.w3.org/2000/svg}"
_RATE = Rate(nominal_gb_per_s=50.0, efficiency=0.76, source="data sheet")
_UP = Rate(nominal_gb_per_s=400.0, efficiency=0.76, source="eight links")


def _site(switches: list[Switch], hosts: str, **changes: object) -> Site:
    group = NodeGroup(hosts=hosts, type="box")
    return site().model_copy(update={"switches": tuple(switches), "nodes": (group,), **changes})


def _tree(leaves: int, nodes_of: list[int]) -> Site:
    """A spine over `leaves` leaf switches, the number of whose nodes goes through `nodes_of` again and again."""
    switches, first = [], 0
    for leaf in range(leaves):
        count = nodes_of[leaf % len(nodes_of)]
        switches.append(Switch(name=f"leaf{leaf:03}", hosts=f"n[{first:05}-{first + count - 1:05}]", uplink=_UP))
        first += count
    return _site([*switches, Switch(name="spine", switches=f"leaf[000-{leaves - 1:03}]")], f"n[00000-{first - 1:05}]")


def _rails(nodes: int, rails: int) -> Site:
    hosts = f"d[01-{nodes:02}]"
    leaves = [Switch(name=f"rail{rail}", hosts=hosts, rail=rail, uplink=_UP) for rail in range(rails)]
    return _site([*leaves, Switch(name="spine", switches=f"rail[0-{rails - 1}]")], hosts)


def _groups(rate: Rate) -> Site:
    """Two dragonfly groups of three switches with two nodes each."""
    leaves = [
        Switch(name=f"g{group}s{one}", hosts=f"g{group}n[{2 * one}-{2 * one + 1}]")
        for group in (1, 2)
        for one in range(3)
    ]
    uppers = [Switch(name=f"g{group}", switches=f"g{group}s[0-2]", mesh=_RATE) for group in (1, 2)]
    return _site([*leaves, *uppers, Switch(name="all", switches="g[1-2]", mesh=rate)], "g[1-2]n[0-5]")


def _measurement(name: str = "onebox") -> Measurement:
    return Measurement(
        schema_="hpcserve.measurement/1",
        site=name,
        day="2026-05-31",
        tool="NIXL over UCX",
        classes=(
            ClassMeasured(
                class_="same leaf",
                links=("node01.data0 out", "node02.data0 in"),
                median=0.117,
                min=0.116,
                max=0.118,
                n=2,
            ),
        ),
        links=(LinkMeasured(name="leaf1 up", gb_per_s=0.0234), LinkMeasured(name="leaf1 down", gb_per_s=0.0231)),
        outliers=(
            Outlier(kind="node", name="node03", gb_per_s=0.011, expected_gb_per_s=0.117, why="2 of 2 pairs with it"),
        ),
        missing=("node04 to node01: its rank died",),
    )


def _leaf_parts(parts: tuple[Part, ...]) -> list[Part]:
    return [leaf for part in parts for leaf in (_leaf_parts(part.below) if part.below else [part])]


def _texts(svg: str) -> list[tuple[float, float, float, float, str]]:
    """Left, top, right and bottom of every line of text, and its words; a letter is taken to be 6.4 px wide."""
    found = []
    for one in ET.fromstring(svg).iter(f"{_SVG}text"):  # noqa: S314 - our own text
        words = one.text or ""
        width, x, y = len(words) * 6.4, float(one.attrib["x"]), float(one.attrib["y"])
        left = x - {"start": 0, "middle": width / 2, "end": width}[one.attrib["text-anchor"]]
        found.append((left, y - 10, left + width, y + 3, words))
    return found


def _overlapping(svg: str) -> list[tuple[str, str]]:
    texts = _texts(svg)
    return [
        (a[4], b[4])
        for number, a in enumerate(texts)
        for b in texts[number + 1 :]
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


def _size(svg: str) -> tuple[float, float]:
    root = ET.fromstring(svg)  # noqa: S314 - our own text
    return float(root.attrib["width"]), float(root.attrib["height"])


DRAWN = {
    **{path.stem: load_site(path.read_text(encoding="utf-8"), source=path.name) for path in _SHIPPED},
    "8 nodes": _tree(2, [4]),
    "32 nodes on rails": _rails(32, 8),
    "1000 nodes": _tree(63, [16]),
    "1000 nodes, no leaf like another": _tree(60, list(range(7, 27))),
    "dragonfly": _groups(Rate(unknown=True, source="no page tells it")),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("found", [None, _measurement()], ids=["static", "measured"])
def test_no_words_of_a_picture_overlap_and_all_are_inside_it(name: str, found: Measurement | None) -> None:
    svg = site_svg(sketch_of(DRAWN[name]), Measured.of(found))
    width, height = _size(svg)
    assert _overlapping(svg) == []
    assert all(left >= 0 and right <= width and bottom <= height for left, _, right, bottom, _ in _texts(svg))
    assert width <= 2000  # what is wider must be scrolled to be read


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(found=sites(most_leaves=5, most_nodes_per_leaf=3, joined=False), most=st.integers(1, 6))
def test_folding_loses_no_node_and_no_switch(found: Site, most: int) -> None:
    sketch = sketch_of(found, most_boxes=most)
    leaves = _leaf_parts(sketch.roots)
    assert sorted(host for leaf in leaves for host in leaf.hosts) == sorted(sketch.kind_of)
    assert sum(leaf.count for leaf in leaves) == sum(switch.hosts is not None for switch in found.switches)
    assert all(leaf.count == len(leaf.leaves) for leaf in leaves)


def test_alike_leaves_are_one_line_with_their_count() -> None:
    text = site_tree(sketch_of(_tree(63, [16])), Measured())
    assert "leaf[000-062] (63 alike)" in text
    assert "63 x 16" in text
    assert text.count("leaf") == 1


def test_few_leaves_are_not_folded_and_unlike_ones_share_a_line_only_where_there_are_many() -> None:
    assert len(_leaf_parts(sketch_of(_tree(8, [4])).roots)) == 8
    assert len(_leaf_parts(sketch_of(_tree(60, [16, 17])).roots)) == 2
    unlike = _leaf_parts(sketch_of(_tree(60, list(range(7, 27)))).roots)
    assert [(one.fewest_hosts, one.most_hosts, one.count) for one in unlike] == [(7, 26, 60)]


def test_the_groups_of_a_dragonfly_stay_apart_while_their_switches_fold() -> None:
    sketch = sketch_of(_groups(_RATE), most_boxes=4)
    text = site_tree(sketch, Measured())
    assert "all (direct links between each two: 38 GB/s)" in text
    assert "├─ g1 (direct links between each two: 38 GB/s)" in text
    assert "└─ g2s[0-2] (3 alike)" in text


def test_rail_leaves_of_the_same_nodes_are_one_part_and_each_node_is_drawn_once() -> None:
    sketch = sketch_of(_rails(32, 8))
    (leaf,) = _leaf_parts(sketch.roots)
    assert (leaf.count, leaf.rails, len(leaf.hosts)) == (1, tuple(range(8)), 32)
    words = [text[4] for text in _texts(site_svg(sketch, Measured()))]
    assert words.count("d07") == 1
    assert [word for word in words if word.startswith("rail ")] == [f"rail {rail}" for rail in range(8)]


def test_an_unknown_rate_says_so_and_why() -> None:
    sketch = sketch_of(_groups(Rate(unknown=True, source="no page tells it")))
    text = site_tree(sketch, Measured())
    assert "direct links between each two: unknown" in text
    assert "Unknown, direct links of all: no page tells it" in text
    assert "1 rate unknown" in site_svg(sketch, Measured())


def test_a_frame_stands_around_the_nodes_of_each_nvlink_domain_and_no_other() -> None:
    domains = tuple(NvlinkDomain(name=f"rack{one}", hosts=f"n[{hosts}]", rate=_RATE) for one, hosts in
                    ((1, "00000-00003"), (2, "00004-00007")))  # fmt: skip
    found = _tree(1, [9]).model_copy(update={"nvlink_domains": domains})
    root = ET.fromstring(site_svg(sketch_of(found), Measured()))  # noqa: S314 - our own text
    frames = {}
    for line in root.iter(f"{_SVG}polyline"):
        tip = line.find(f"{_SVG}title")
        if tip is not None and (tip.text or "").startswith("NVLink domain"):
            corners = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
            frames[(tip.text or "").removeprefix("NVLink domain ")] = (*corners[0], *corners[2])
    places = {one.text: (float(one.attrib["x"]), float(one.attrib["y"])) for one in root.iter(f"{_SVG}text")}
    for number in range(9):
        x, y = places[f"n{number:05}"]
        around = [name for name, box in frames.items() if box[0] < x < box[2] and box[1] < y < box[3]]
        assert around == ([f"rack{1 + number // 4}"] if number < 8 else [])


def test_measured_figures_stand_beside_those_of_the_site_and_what_is_slow_is_named() -> None:
    sketch, figures = sketch_of(site()), Measured.of(_measurement())
    row = next(line for line in site_tree(sketch, figures).splitlines() if "leaf1" in line)
    assert "0.024 GB/s" in row
    assert "0.0231" in row, "the slower of the two ways"
    text = site_tree(sketch, figures)
    assert "Slow node node03: 0.011 GB/s, its like 0.117 GB/s (2 of 2 pairs with it)" in text
    assert "Not measured: node04 to node01: its rank died" in text
    measured_row = next(line for line in text.splitlines() if line.startswith("same leaf"))
    assert measured_row.split()[2:7] == ["0.119", "0.117", "0.116", "0.118", "2"]
    assert ">measured 0.0231<" in site_svg(sketch, figures)
    page = site_html(sketch, figures)
    assert "iperf3" in page
    assert "Slow node node03" in page


def test_the_slow_node_is_red_and_the_others_are_not() -> None:
    root = ET.fromstring(site_svg(sketch_of(site()), Measured.of(_measurement())))  # noqa: S314 - our own text
    red = {one.text for one in root.iter(f"{_SVG}text") if "e0452c" in one.attrib.get("style", "")}
    assert "node03" in red
    assert not red & {"node01", "node02", "node04"}


def test_names_are_escaped_in_the_page() -> None:
    found = site().model_copy(update={"description": "<script>alert(1)</script>"})
    assert "<script>" not in site_html(sketch_of(found), Measured())


def test_a_node_type_shows_every_nic_once_without_overlap_whatever_its_gpus() -> None:
    kind = site().node_types["box"]
    nics = tuple(
        kind.nics[0].model_copy(update={"name": f"mlx5_{number}:1", "gpus": (number % 2,)}) for number in range(5)
    )
    found = site().model_copy(update={"node_types": {"box": kind.model_copy(update={"nics": nics})}})
    svg = site_svg(sketch_of(found), Measured())
    assert _overlapping(svg) == []
    assert all(svg.count(f">mlx5_{number}:1<") == 1 for number in range(5))


def _hosts(sketch: Sketch) -> set[str]:
    return {host for group in sketch.site.nodes for host in expand_hosts(group.hosts)}


def test_every_node_of_a_small_site_is_drawn_by_name() -> None:
    for name in ("onebox", "8 nodes", "32 nodes on rails"):
        sketch = sketch_of(DRAWN[name])
        assert _hosts(sketch) <= {text[4] for text in _texts(site_svg(sketch, Measured()))}


@pytest.mark.parametrize("name", ["1000 nodes", "1000 nodes, no leaf like another", "dragonfly", "gb200-nvl72"])
def test_every_node_of_a_large_site_has_one_square_of_its_own(name: str) -> None:
    sketch = sketch_of(DRAWN[name])
    root = ET.fromstring(site_svg(sketch, Measured()))  # noqa: S314 - our own text
    places: dict[str, set[tuple[str, str]]] = {}
    for square in root.iter(f"{_SVG}rect"):
        tip = square.find(f"{_SVG}title")
        host = f"{tip.text}".split(":")[0] if tip is not None else ""
        if host in sketch.kind_of:
            places.setdefault(host, set()).add((square.attrib["x"], square.attrib["y"]))
    assert set(places) == _hosts(sketch)
    taken = [place for squares in places.values() for place in squares]
    assert len(taken) == len(set(taken))


def test_one_slow_node_of_a_thousand_can_be_seen() -> None:
    slow = Outlier(kind="node", name="n00700", gb_per_s=9.0, expected_gb_per_s=38.0, why="3 of 3 pairs with it")
    found = _measurement().model_copy(update={"outliers": (slow,)})
    root = ET.fromstring(site_svg(sketch_of(DRAWN["1000 nodes"]), Measured.of(found)))  # noqa: S314 - our own text
    red = [square for square in root.iter(f"{_SVG}rect") if square.attrib.get("fill") == "#e0452c"]
    assert [f"{square[0].text}".split(":")[0] for square in red] == ["n00700"]
