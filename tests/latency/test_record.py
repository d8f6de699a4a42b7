"""Latency files: what was written is read back, and mistakes are all told with their place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.latency import Chunk, CurvedLatency, LinearLatency, model_of, read_latency
from hpcserve.nouns import CurvePoint, DecodeCurve, DecodeLine, LatencyFile, PrefillCurve, PrefillLine, Residual
from hpcserve.wire import encode_record, encode_yaml

LINE = LatencyFile(
    schema_="hpcserve.latency/1",
    model="tiny",
    gpu="cpu",
    engine="vllm 0.32",
    kind="measured",
    source="fitted to 2 runs",
    kv_tokens=14_816,
    prefill=PrefillLine(
        tensor_parallel=2, base_ms=20.0, ms_per_token=0.2, ms_per_token2=1e-6,
        residual=Residual(n=9, median=0.01, worst=0.1),
    ),
    decode=DecodeLine(tensor_parallel=1, base_ms=15.0, ms_per_sequence=1.5, ms_per_context_token=0.0),
)  # fmt: skip
CURVE = LINE.model_copy(
    update={
        "prefill": PrefillCurve(
            tensor_parallel=2,
            points=(CurvePoint(at=100, ms=30.0), CurvePoint(at=200, ms=50.0)),
            ms_per_token2=0.0,
        ),
        "decode": DecodeCurve(
            tensor_parallel=1, points=(CurvePoint(at=1, ms=8.0), CurvePoint(at=9, ms=16.0)), ms_per_context_token=0.01
        ),
    }
)
MIXED = LINE.model_copy(update={"decode": CURVE.decode})


@pytest.mark.parametrize("file", [LINE, CURVE, MIXED])
def test_what_was_written_is_read_back(file: LatencyFile) -> None:
    assert read_latency(encode_record(file).decode(), source="a.json") == file


def test_a_person_may_write_yaml() -> None:
    assert read_latency(encode_yaml(CURVE), source="a.yaml") == CURVE


@given(st.floats(0, 1e9), st.floats(1e-12, 1e9), st.floats(0, 1e9))
def test_any_coefficients_are_read_back(base: float, slope: float, curvature: float) -> None:
    line = PrefillLine(tensor_parallel=1, base_ms=base, ms_per_token=slope, ms_per_token2=curvature)
    file = LINE.model_copy(update={"prefill": line})
    assert read_latency(encode_record(file).decode(), source="a.json") == file


def test_a_line_becomes_a_linear_model_and_a_curve_a_curved_one() -> None:
    line, curve, mixed = model_of(LINE), model_of(CURVE), model_of(MIXED)
    assert isinstance(line, LinearLatency)
    assert (line.kv_tokens, line.kind, line.source) == (14_816, "measured", "fitted to 2 runs")
    assert line.decode_ms(2, 100) == pytest.approx(18)
    assert isinstance(curve, CurvedLatency)
    assert curve.prefill_ms([Chunk(150, 0)]) == pytest.approx(40)
    assert curve.decode_ms(5, 100) == pytest.approx(13)
    for tokens in (1, 100, 5000):
        assert mixed.prefill_ms([Chunk(tokens, 0)]) == pytest.approx(line.prefill_ms([Chunk(tokens, 0)]))
    assert mixed.decode_ms(5, 100) == pytest.approx(13)


WRONG = """\
{
 "schema": "hpcserve.latency/1",
 "model": "tiny",
 "gpu": "cpu",
 "engine": "vllm",
 "kind": "guessed",
 "source": "x",
 "kv_tokens": 0,
 "prefill": {"form": "curve", "tensor_parallel": 1, "ms_per_token2": -1.0,
  "points": [
   {"at": 10, "ms": 5.0},
   {"at": 10, "ms": 4.0}
  ]},
 "decode": {"form": "line", "tensor_parallel": 1, "base_ms": 0.0, "ms_per_sequence": 0.0, "ms_per_context": 1.0}
}
"""


def test_all_mistakes_are_told_with_their_place() -> None:
    with pytest.raises(InputError) as caught:
        read_latency(WRONG, source="a.json")
    told = str(caught.value)
    for part in (
        "a.json:6:10: `kind` is",
        "a.json:8:15: `kv_tokens` is",
        "`prefill.ms_per_token2` is",
        "a.json:12:11: `prefill.points[1].at` is 10 after 10",
        "a.json:12:21: `prefill.points[1].ms` is 4.0 after 5.0",
        "unknown key `ms_per_context`",
        "did you mean `ms_per_context_token`?",
        "`decode` takes no time",
    ):
        assert part in told, told


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ('"form": "bent", ', "'form' as one of 'line', 'curve' was wanted, it is 'bent'"),
        ("", "the key 'form' was wanted in it"),
    ],
)
def test_another_form_is_told_in_words(form: str, told: str) -> None:
    with pytest.raises(InputError, match=f"a.json:14:12: `decode` is a mapping; {told}"):
        read_latency(WRONG.replace('"form": "line", ', form), source="a.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": "hpcserve.run/1"}', "null", '{"prefill": [], "decode": 3}']
)
def test_what_is_no_latency_file_is_told(text: str) -> None:
    with pytest.raises(InputError, match=r"a\.json:\d+:\d+: "):
        read_latency(text, source="a.json")


def test_good_json_with_points_out_of_order_is_refused() -> None:
    bad = CURVE.model_copy(
        update={"prefill": CURVE.prefill.model_copy(update={"points": CURVE.prefill.points[::-1]})}  # type: ignore[union-attr]
    )
    with pytest.raises(InputError, match="100 after 200"):
        read_latency(encode_record(bad).decode(), source="a.json")
