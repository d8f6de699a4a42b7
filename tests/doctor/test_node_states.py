"""Node states as sinfo(1) shortens them, and what a look makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.doctor.node_states import Standing, standing

FREE, BUSY, ASLEEP, AWAY = Standing.FREE, Standing.BUSY, Standing.ASLEEP, Standing.AWAY

STATES = {
    "idle": FREE,
    "IDLE": FREE,
    **dict.fromkeys(("mix", "mix-", "alloc", "alloc+", "allocated", "comp", "completing", "plnd", "planned"), BUSY),
    **dict.fromkeys(("idle-", "idle#", "alloc#", "pow_up"), BUSY),
    **dict.fromkeys(("idle~", "idle%", "idle!", "pow_dn", "POW_DN", "powered_down"), ASLEEP),
    **dict.fromkeys(("drain", "drng", "down", "down*", "idle*", "alloc*", "comp*", "fail", "failg", "unk*"), AWAY),
    **dict.fromkeys(("maint", "idle$", "alloc$", "resv", "reserved", "boot", "boot^", "reboot^", "idle@"), AWAY),
    **dict.fromkeys(("inval", "futr", "npc", "block", "drng~", "down~"), AWAY),
    **dict.fromkeys(("", "a-state-of-2031", "idle?"), AWAY),
}


@pytest.mark.parametrize("state", STATES)
def test_a_node_is_asked_now_later_when_woken_or_not(state: str) -> None:
    assert standing(state) == STATES[state]


@given(st.text())
def test_no_text_makes_it_fail(state: str) -> None:
    assert standing(state) in Standing
