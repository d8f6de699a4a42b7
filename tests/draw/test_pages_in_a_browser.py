"""Pages as a real browser lays them out; the packages that `make test` installs bring Chromium."""

import json
import re
import shutil
import subprocess
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from hpcserve.draw import Measured, site_html, sketch_of
from hpcserve.report import html, report_of
from tests.measure.grounds import fat_tree, shipped
from tests.report.grounds import near_and_far

pytestmark = pytest.mark.real

_LOOK = """<script>
const seen = [...document.querySelectorAll("svg")].map((svg) => ({
  frame: svg.getBoundingClientRect(),
  labels: [...svg.querySelectorAll("text")].map((each) => [each.textContent, each.getBoundingClientRect()]),
}));
document.documentElement.innerHTML = "<pre id=seen></pre>";
document.getElementById("seen").textContent = JSON.stringify(seen);
</script>"""

_OVERLAP_PX = 2.0
"""Boxes of letters reach a little beyond the ink."""


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


class Picture(NamedTuple):
    frame: Box
    labels: list[tuple[str, Box]]


def looked_at(page: str, folder: Path) -> list[Picture]:
    """Every picture of a page and where a browser of 1,400 pixels puts its labels."""
    browser = shutil.which("chromium")
    assert browser is not None, "make packages-with-accounting installs chromium"
    file = folder / "page.html"
    file.write_text(page + _LOOK, encoding="utf-8")
    quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
    look = (f"--user-data-dir={folder}/user", "--window-size=1400,1000", "--dump-dom", file.as_uri())
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", *quiet, *look],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    found = re.search(r"<pre id=\"seen\">(.*?)</pre>", done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return [
        Picture(_box(one["frame"]), [(text, _box(where)) for text, where in one["labels"]])
        for one in json.loads(unescape(found[1]))
    ]


def _box(where: dict[str, float]) -> Box:
    return Box(where["left"], where["top"], where["right"], where["bottom"])


def unreadable(pictures: list[Picture]) -> list[str]:
    """Labels that reach out of their picture or lie on another label."""
    found = []
    for frame, labels in pictures:
        for text, box in labels:
            if box.left < frame.left or box.right > frame.right or box.top < frame.top or box.bottom > frame.bottom:
                found.append(f"{text!r} reaches out of the picture")
        for (one, a), (other, b) in combinations(labels, 2):
            wide = min(a.right, b.right) - max(a.left, b.left)
            high = min(a.bottom, b.bottom) - max(a.top, b.top)
            if wide > _OVERLAP_PX and high > _OVERLAP_PX:
                found.append(f"{one!r} lies on {other!r}")
    return found


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("onebox", ["leaf1", "node04", "up 0.0239 GB/s"]),
        ("dgx-h100-su", ["dgx32", "rail 7"]),
        ("gb200-nvl72", []),
        ("a100-hdr-dragonfly", ["c1leaf[01-18] (18 alike)"]),
        ("slingshot-a100", []),
        ("pcie-25gbe", []),
        ("1,024 nodes", ["leaf[0-31] (32 alike)", "n[0001-1024]"]),
    ],
)
def test_a_site_of_any_size_is_readable(name: str, labels: list[str], tmp_path: Path) -> None:
    site = fat_tree(leaves=32, nodes_per_leaf=32, nics=2) if name == "1,024 nodes" else shipped(name)
    pictures = looked_at(site_html(sketch_of(site), Measured.of(None)), tmp_path)
    assert len(pictures) == 1
    assert unreadable(pictures) == []
    assert set(labels) <= {text for text, _ in pictures[0].labels}


def test_a_report_is_readable(tmp_path: Path) -> None:
    pictures = looked_at(html(report_of(near_and_far())), tmp_path)
    assert len(pictures) >= 3
    assert unreadable(pictures) == []
