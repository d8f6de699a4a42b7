"""Tables in Splitwise's form; the figures are made up."""

import pytest

from hpcserve.errors import InputError, NotFoundError
from hpcserve.latency import Chunk, model_of, splitwise_latency
from hpcserve.nouns import LatencyFile

HEAD = "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,prompt_time,token_time,e2e_time"
TABLE = f"""{HEAD},tensor_parallel
big,h100,512,1,128,1,1,50,30.1,0,8
big,h100,512,1,128,1,1,54,30.1,0,8
big,h100,512,1,128,1,1,90,30.1,0,8
big,h100,2048,1,128,1,1,140,31.6,0,8
big,h100,512,4,128,1,1,120,33,0,8
big,h100,8192,1,128,1,1,800,37.8,0,8
big,h100,512,32,128,1,1,1500,50,0,8
big,h100,512,8,128,1,1,110,32,0,8
big,a100,512,1,128,1,1,93,45,0,4
"""


def made(text: str = TABLE, model: str = "big", hardware: str = "h100", ranks: int = 8) -> LatencyFile:
    return splitwise_latency(text, source="perf.csv", model=model, hardware=hardware, tensor_parallel=ranks)


def test_prompts_are_medians_over_the_tokens_of_a_step() -> None:
    model = model_of(made())
    assert model.prefill_ms([Chunk(512, 0)]) == pytest.approx(54)
    assert model.prefill_ms([Chunk(8192, 0)]) == pytest.approx(800)
    assert model.prefill_ms([Chunk(512, 0)] * 32) == pytest.approx(1500)
    assert model.prefill_ms([Chunk(12288, 0)]) == pytest.approx((800 + 1500) / 2)


def test_where_single_prompts_and_batches_have_as_many_tokens_the_single_ones_count_and_falls_are_pooled() -> None:
    """2,048 tokens: 140 single; 4,096 in a batch of 8: 110, which is less; both come to 125."""
    model = model_of(made())
    assert model.prefill_ms([Chunk(2048, 0)]) == pytest.approx(125)
    assert model.prefill_ms([Chunk(4096, 0)]) == pytest.approx(125)


def test_decode_grows_with_context_and_sequences() -> None:
    """30.1, 31.6 and 37.8 ms at 576, 2,112 and 8,256 tokens: 0.001 ms a token. 33 and 32 ms of 4 and 8 are pooled."""
    model = model_of(made())
    assert model.decode_ms(1, 8256) - model.decode_ms(1, 576) == pytest.approx(7.68, rel=0.03)
    assert model.decode_ms(32, 32 * 576) == pytest.approx(50, rel=0.01)
    assert model.decode_ms(1, 576) == pytest.approx(30.1, rel=0.02)


def test_the_error_that_is_left_is_said() -> None:
    prefill = made().prefill.residual
    assert prefill is not None
    assert prefill.n == 8
    assert prefill.worst == pytest.approx(1 - 54 / 90)


def test_what_the_table_lacks_is_named_with_what_it_has() -> None:
    with pytest.raises(NotFoundError, match="no profile of big on h200 at TP 8") as caught:
        made(hardware="h200")
    assert "big on a100, TP 4; big on h100, TP 8" in caught.value.remedy
    with pytest.raises(NotFoundError):
        made(hardware="a100", ranks=4)


def test_every_mistake_of_a_table_is_told_with_its_line() -> None:
    wrong = TABLE.replace("2048,1,128", "2048,0,128").replace(",140,", ",nan,").replace(",1500,50,", ",,-1,")
    with pytest.raises(InputError) as caught:
        made(wrong)
    told = str(caught.value).splitlines()
    assert [line.split("; ")[0] for line in told] == [
        "perf.csv:5:1: `batch_size` is '0'",
        "perf.csv:5:1: `prompt_time` is 'nan'",
        "perf.csv:8:1: `prompt_time` is ''",
        "perf.csv:8:1: `token_time` is '-1'",
    ]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '"' + "x" * 200_000, f'{HEAD},tensor_parallel\n"{"x" * 200_000}'])
def test_what_is_no_such_table_is_told(text: str) -> None:
    with pytest.raises(InputError, match=r"perf\.csv:\d+:1: "):
        made(text)


def test_a_table_without_rows_has_no_profile() -> None:
    with pytest.raises(NotFoundError, match="no profile"):
        made(f"{HEAD},tensor_parallel\n")
