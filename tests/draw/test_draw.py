import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.draw import Curve, CurvePoint, curve_svg, paths_table, plan_map, plan_svg, text_table
from hpcserve.nouns import PathCost, Plan, Rank
from tests.synthetic import FAR_MS, LEAVES, NEAR_MS, aggregated_plan, plan

_GOLDEN = Path(__file__).parent / "golden"
_SVG = "{http://www.w3.org/2000/svg}"


def _leaf_of(node: str) -> str:
    return LEAVES[node]


def _curves(name: str) -> list[Curve]:
    points = tuple(
        CurvePoint(offered_per_s=rate, good_per_s=good, low_per_s=good * 0.8, high_per_s=min(rate, good * 1.2))
        for rate, good in ((0.5, 0.5), (1.5, 1.4), (3.0, 2.7))
    )
    return [Curve(name=name, points=points)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("near.map.txt", plan_map(plan(), leaf_of=_leaf_of)),
        ("far.map.txt", plan_map(plan(decode_node="node03"), leaf_of=_leaf_of)),
        ("far.paths.txt", paths_table(plan(decode_node="node03"))),
        ("far.svg", plan_svg(plan(decode_node="node03"), leaf_of=_leaf_of)),
        ("curve.svg", curve_svg(_curves("near"))),
    ],
)
def test_drawings_are_the_golden_ones_byte_for_byte(name: str, text: str) -> None:
    assert text.encode() == (_GOLDEN / name).read_bytes()


def test_a_worker_over_several_gpus_fills_their_cells_and_the_idle_ones_show() -> None:
    near = plan()
    wide = Rank(node="node01", gpus=(0, 1, 2, 3), nics=("data0",), cores=(0, 1, 2, 8))
    workers = (near.workers[0].model_copy(update={"ranks": (wide,), "tensor_parallel": 4}), near.workers[1])
    ask = near.ask.model_copy(update={"gpus_per_node": 8})
    text = plan_map(near.model_copy(update={"workers": workers, "ask": ask}), leaf_of=_leaf_of)
    assert "node01  [P0 P0 P0 P0 ·  ·  ·  · ]  router" in text
    assert "0-3" in text
    assert "0-2,8" in text


def test_an_aggregated_plan_says_that_no_kv_moves() -> None:
    assert "No KV is moved" in paths_table(aggregated_plan())
    assert "A0" in plan_map(aggregated_plan(), leaf_of=_leaf_of)
    assert "aggregated: no KV moves" in plan_svg(aggregated_plan(), leaf_of=_leaf_of)


def test_near_and_far_have_different_colours_on_one_scale_and_their_time_in_words() -> None:
    near, far = (
        plan_svg(_prefill_unknown(node), leaf_of=_leaf_of, scale_ms=(NEAR_MS, FAR_MS)) for node in ("node02", "node03")
    )
    assert "98.7 ms" in near
    assert "491.5 ms" in far
    assert _arrow_colours(near).isdisjoint(_arrow_colours(far))


def _prefill_unknown(decode_node: str) -> Plan:
    made = plan(decode_node=decode_node)
    return made.model_copy(update={"verdict": made.verdict.model_copy(update={"prefill_ms": None})})


def _arrow_colours(svg: str) -> set[str]:
    lines = ET.fromstring(svg).iter(f"{_SVG}polyline")  # noqa: S314 - our own text
    return {line.attrib["stroke"] for line in lines if "stroke" in line.attrib}


def test_a_transfer_of_a_tenth_of_the_prefill_is_green_and_one_as_long_as_it_is_red() -> None:
    near = plan()
    for prefill_ms, colour in ((NEAR_MS * 10, "#1a8f6d"), (NEAR_MS, "#d13f2a")):
        verdict = near.verdict.model_copy(update={"prefill_ms": prefill_ms})
        assert _arrow_colours(plan_svg(near.model_copy(update={"verdict": verdict}), leaf_of=_leaf_of)) == {colour}


_ANY_TEXT = st.text(min_size=1, max_size=20)


@given(_ANY_TEXT)
def test_any_text_gives_a_well_formed_svg_that_fetches_and_runs_nothing(words: str) -> None:
    near = plan()
    path = PathCost.model_construct(**{**near.paths[0].__dict__, "hops": (words,), "distance": words})
    odd = near.model_copy(update={"service": words, "paths": (path,)})
    for svg in (plan_svg(odd, leaf_of=lambda _: words), curve_svg(_curves(words), title=words)):
        kinds = {element.tag.removeprefix(_SVG) for element in ET.fromstring(svg).iter()}  # noqa: S314 - our own text
        assert kinds <= {"svg", "title", "style", "rect", "text", "polyline", "polygon", "circle"}
        assert "url(" not in svg.replace(words, "")


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0, 1)), min_size=1, max_size=12))
def test_every_point_of_a_curve_lies_on_the_page(points: list[tuple[float, float]]) -> None:
    curve = Curve(
        name="x",
        points=tuple(
            CurvePoint(offered_per_s=rate, good_per_s=rate * share, low_per_s=0, high_per_s=rate)
            for rate, share in points
        ),
    )
    root = ET.fromstring(curve_svg([curve]))  # noqa: S314 - our own text
    for disc in root.iter(f"{_SVG}circle"):
        assert 59 <= float(disc.attrib["cx"]) <= 621
        assert 45 <= float(disc.attrib["cy"]) <= 327


def test_no_curve_says_so() -> None:
    assert "no valid run" in curve_svg([])


def test_table_cells_are_never_read_as_markup_and_never_cut() -> None:
    long = "[bold]" + "x" * 300
    assert long in text_table(("name",), [(long,)])


def test_many_paths_of_one_cost_share_a_line() -> None:
    near = plan()
    paths = tuple(near.paths[0].model_copy(update={"decode": f"decode-{number}"}) for number in range(20))
    other = near.paths[0].model_copy(update={"decode": "decode-20", "transfer_ms": 2 * NEAR_MS})
    lines = paths_table(near.model_copy(update={"paths": (*paths, other)})).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("prefill-0 → decode-0 and 19 alike")
    assert lines[3].startswith("prefill-0 → decode-20 ")
    assert len(paths_table(near.model_copy(update={"paths": paths[:16]})).splitlines()) == 19


def test_many_paths_of_one_cost_are_drawn_once_and_words_stand_above_all_lines() -> None:
    near = plan()
    far = near.paths[0].model_copy(update={"transfer_ms": FAR_MS})
    svg = plan_svg(near.model_copy(update={"paths": (*[near.paths[0]] * 20, far)}), leaf_of=_leaf_of)
    elements = list(ET.fromstring(svg))  # noqa: S314 - our own text
    words = [place for place, one in enumerate(elements) if one.attrib.get("class") == "onwire"]
    lines = [place for place, one in enumerate(elements) if one.tag == f"{_SVG}polyline"]
    assert [elements[place].text for place in words] == ["P0 → D0  98.7 ms, 19 more alike", "P0 → D0  491.5 ms"]
    assert min(words) > max(lines)


def test_a_fast_path_does_not_take_zero_milliseconds() -> None:
    fast = plan().paths[0].model_copy(update={"transfer_ms": 0.0312})
    near = plan().model_copy(update={"paths": (fast,)})
    assert " 0.031 " in paths_table(near)
    assert "0.031 ms" in plan_svg(near, leaf_of=_leaf_of)


def test_a_long_node_name_stays_inside_its_box() -> None:
    name = "a-node-with-a-rather-long-name-01"
    seat = plan().router.model_copy(update={"node": name})
    workers = tuple(
        one.model_copy(update={"ranks": (one.ranks[0].model_copy(update={"node": name}),)}) for one in plan().workers
    )
    svg = plan_svg(plan().model_copy(update={"router": seat, "workers": workers}), leaf_of=lambda _: "leaf1")
    widths = [float(box.attrib["width"]) for box in ET.fromstring(svg).iter(f"{_SVG}rect")]  # noqa: S314 - our own text
    assert sum(width > 7 * len(f"{name} · router") for width in widths) >= 3
