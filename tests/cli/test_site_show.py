"""`hpcserve site show`: what is printed, what is written, and a measurement of another site."""

import json
from pathlib import Path

import pytest

from hpcserve.cli.program import run
from hpcserve.nouns import LinkMeasured, Measurement
from hpcserve.wire import encode_record

Captured = pytest.CaptureFixture[str]


def _measurement(folder: Path, *, site: str) -> Path:
    found = Measurement(
        schema_="hpcserve.measurement/1",
        site=site,
        day="2026-05-31",
        tool="a test",
        links=(LinkMeasured(name="leaf1 up", gb_per_s=0.0217),),
    )
    path = folder / "measured.json"
    path.write_bytes(encode_record(found))
    return path


def test_the_tree_is_printed_and_the_pictures_are_written(tmp_path: Path, capsys: Captured) -> None:
    svg, html = tmp_path / "site.svg", tmp_path / "site.html"
    assert run(["site", "show", "onebox", "--svg", str(svg), "--html", str(html)]) == 0
    shown = capsys.readouterr()
    assert "├─ leaf1" in shown.out
    assert str(svg) in shown.err
    assert svg.read_text(encoding="utf-8").startswith("<svg ")
    assert svg.read_text(encoding="utf-8") in html.read_text(encoding="utf-8")


def test_json_has_the_switches_with_their_figures(tmp_path: Path, capsys: Captured) -> None:
    measured = _measurement(tmp_path, site="onebox")
    assert run(["site", "show", "onebox", "--json", "--measured", str(measured)]) == 0
    (spine,) = json.loads(capsys.readouterr().out)["roots"]
    leaf1, leaf2 = spine["below"]
    assert leaf1["hosts"] == ["node01", "node02"]
    assert leaf1["uplink_gb_per_s"] == [pytest.approx(0.0239)]
    assert (leaf1["measured_gb_per_s"], leaf2["measured_gb_per_s"]) == ([0.0217], [])


def test_an_unknown_rate_is_null_in_json(capsys: Captured) -> None:
    assert run(["site", "show", "slingshot-a100", "--json"]) == 0
    (dragonfly,) = json.loads(capsys.readouterr().out)["roots"]
    assert dragonfly["mesh_gb_per_s"] == [None]


@pytest.mark.parametrize(
    ("text", "told"),
    [("{}", "not a Measurement"), ("nothing", "not a Measurement"), ("", "not a Measurement")],
)
def test_what_is_no_measurement_is_refused_with_its_place(
    tmp_path: Path, capsys: Captured, text: str, told: str
) -> None:
    path, svg = tmp_path / "measured.json", tmp_path / "site.svg"
    path.write_text(text)
    assert run(["site", "show", "onebox", "--measured", str(path), "--svg", str(svg)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"{path}:1:1: ")
    assert told in shown.err
    assert shown.out == ""
    assert not svg.exists()


def test_a_measurement_of_another_site_is_refused(tmp_path: Path, capsys: Captured) -> None:
    measured = _measurement(tmp_path, site="elsewhere")
    assert run(["site", "show", "onebox", "--measured", str(measured)]) == 2
    assert "a measurement of site `elsewhere`; one of site `onebox` was wanted" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_an_error_without_traceback(tmp_path: Path, capsys: Captured) -> None:
    assert run(["site", "show", "onebox", "--svg", str(tmp_path / "nowhere" / "site.svg")]) == 1
    assert "Traceback" not in capsys.readouterr().err
