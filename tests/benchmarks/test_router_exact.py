"""A figure of the router's exact mode is one of that mode, or an error."""

import pytest

from benchmarks.router.exact import judge

BEFORE = {"kv_exact": 1.0, "kv_prompts_total known": 5.0, "kv_predicted_tokens_total": 10.0}
KNOWN = {**BEFORE, "kv_prompts_total known": 205.0, "kv_predicted_tokens_total": 2010.0}


def test_known_prompts_with_predicted_hits_are_exact() -> None:
    judge(BEFORE, KNOWN)
    judge(BEFORE, KNOWN, known=200)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({**KNOWN, "kv_exact": 0.0}, "exact mode ended"),
        ({}, "exact mode ended"),
        ({**KNOWN, "kv_prompts_total text": 30.0}, "not known"),
        ({**KNOWN, "kv_prompts_total beginning": 30.0}, "not known"),
        ({**KNOWN, "kv_prompts_total known": 5.0}, "not known"),
        ({**KNOWN, "kv_predicted_tokens_total": 10.0}, "no hits"),
    ],
)
def test_any_other_mode_is_an_error(now: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        judge(BEFORE, now)


def test_as_many_prompts_as_were_sent_must_be_known() -> None:
    with pytest.raises(ValueError, match="should have been known"):
        judge(BEFORE, KNOWN, known=128)
