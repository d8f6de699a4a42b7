import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.site.slurm_text import parse_gres, usable


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("gpu:h200:8(S:0-3)", {"h200": 8}),
        ("gpu:4(S:0,2,4,6)", {"untyped": 4}),
        ("gpu:a100:2(S:0),gpu:t4:1,nic:mlx:2", {"a100": 2, "t4": 1}),
        ("gpu:a100:2,gpu:a100:2(S:1)", {"a100": 4}),
        ("gpu", {"untyped": 1}),
        ("gpu:a40", {"a40": 1}),
        ("gpu:a40:no_consume:2", {"a40": 2}),
        ("gpu:A100-SXM4.80GB:8(IDX:0-7)", {"A100-SXM4.80GB": 8}),
        ("gpu:0", {}),
        ("shard:a40:400,gpu:a40:2,mps:100", {"a40": 2}),
        ("mps:200", {}),
        ("craynetwork:4K", {}),
        ("gres/gpu:4", {"untyped": 4}),
        ("gres:gpu:h100:4", {"h100": 4}),
        ("Gres=gpu:h100:4", {"h100": 4}),
        ("cpu=8,gres/gpu=2", {"untyped": 2}),
        ("(null)", {}),
        ("", {}),
        ("N/A", {}),
        ("cpu=8,mem=64G,gres/gpu=4,gres/gpu:v100=4", {"v100": 4}),
        ("gres/gpu:v100=2,gres/gpu=3", {"v100": 2, "untyped": 1}),
        ("gres/gpu:v100=2,gres/gpu:t4=1", {"v100": 2, "t4": 1}),
        ("gres/shard=64,cpu=2", {}),
    ],
)
def test_gpus_by_type(text: str, types: dict[str, int]) -> None:
    found = parse_gres(text)
    assert (found.types, found.gpus) == (types, sum(types.values()))


@pytest.mark.parametrize("text", ["gpu:h100:x:8", "gpu:(S:0", "gpu:8)", ":8", "gpu:8,,nic:1", "gres/gpu=many"])
def test_what_is_no_gres_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        parse_gres(text)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.integers(1, 99), max_size=4))
def test_both_forms_say_the_same(types: dict[str, int]) -> None:
    listed = ",".join(f"gpu:{kind}:{count}(S:0-{count})" for kind, count in types.items())
    tracked = "cpu=4,gres/gpu=" + str(sum(types.values())) + "".join(f",gres/gpu:{k}={n}" for k, n in types.items())
    # A type called `untyped` cannot be told from none; nor does Slurm have flags as types.
    assert parse_gres(listed).gpus == parse_gres(tracked).gpus == sum(types.values())
    assert parse_gres(tracked).types == types


@pytest.mark.parametrize(
    ("state", "free"),
    [
        ("IDLE", True),
        ("idle", True),
        ("mix", True),
        ("mix-", True),
        ("MIXED+CLOUD", True),
        ("IDLE+DYNAMIC_NORM+PLANNED", True),
        ("ALLOC+", False),
        ("allocated+", False),
        ("plnd", True),
        ("alloc", False),
        ("ALLOCATED+COMPLETING", False),
        ("drng", False),
        ("drain*", False),
        ("down~", False),
        ("idle*", False),
        ("idle$", False),
        ("IDLE+NOT_RESPONDING", False),
        ("IDLE+MAINTENANCE", False),
        ("IDLE+FAIL", False),
        ("INVAL", False),
        ("idle~", None),
        ("idle#", None),
        ("idle%", None),
        ("mix@", None),
        ("resv", None),
        ("IDLE+POWERING_UP", None),
        ("IDLE+RESERVED", None),
        ("IDLE+SOMETHING_NEW", None),
    ],
)
def test_whether_a_job_could_start(state: str, free: bool | None) -> None:
    assert usable(state) is free


@pytest.mark.parametrize("state", ["", "sleepy", "IDLE+", "+IDLE", "idle node", "12", "n/a"])
def test_what_is_no_state_is_refused(state: str) -> None:
    with pytest.raises(ValueError, match="is not a node state"):
        usable(state)
