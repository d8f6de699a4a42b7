import pytest

from hpcserve.engines import option_count


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--limit", "8192"), 8192),
        (("--limit=1", "--li_mit=4", "--limit=2"), 2),
        (("--li-mit", "1", "--li_mit=4"), None),
        (("--limit=8K",), 8192),
        (("--limit=8k",), 8000),
        (("--limit", "25.6k"), 25_600),
        (("--limit=2M",), 2 * 1024**2),
        (("--limit=1.5K",), None),
        (("--limit=0",), None),
        (("--limit=many",), None),
        (("--limit",), None),
        (("limit", "3"), None),
    ],
)
def test_numbers_are_read_as_vllm_reads_them(words: tuple[str, ...], count: int | None) -> None:
    assert option_count(words, "--limit") == count


def test_underscores_are_dashes() -> None:
    assert option_count(("--max_num_seqs=7",), "--max-num-seqs") == 7
