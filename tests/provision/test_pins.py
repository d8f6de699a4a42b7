import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.provision.pins import Pin, parse_pins, pinned_version

NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)
VERSIONS = st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,3}){0,3}(rc1)?(\+cpu)?", fullmatch=True)


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@given(st.lists(st.tuples(NAMES, VERSIONS), max_size=8, unique_by=lambda pin: normalised(pin[0])))
def test_what_is_written_is_read_back(written: list[tuple[str, str]]) -> None:
    pins = tuple(Pin(name=name, version=version) for name, version in written)
    text = "# a comment\n\n" + "".join(f"  {pin}   # why\n" for pin in pins)
    assert parse_pins(text, file="x.lock") == pins
    for pin in pins:
        assert pinned_version(pins, pin.name.upper()) == pin.version


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    with pytest.raises(InputError) as caught:
        parse_pins(
            "torch>=2\nnumpy==2.3.5\n  a b==1\nNumPy==2.3.6\nvllm[x]==1\nz==1 ; python_version<'3'\n", file="x.lock"
        )
    places = [(mistake.file, mistake.line, mistake.column) for mistake in caught.value.mistakes]
    assert places == [("x.lock", 1, 1), ("x.lock", 3, 3), ("x.lock", 4, 1), ("x.lock", 5, 1), ("x.lock", 6, 1)]
    assert "NumPy==2.3.6 after numpy==2.3.5" in str(caught.value)


def test_the_shipped_lock_pins_a_cpu_torch_and_nothing_that_needs_a_gpu() -> None:
    pins = parse_pins(files("hpcserve.provision").joinpath("vllm_cpu.lock").read_text(encoding="utf-8"), file="lock")
    names = {normalised(pin.name) for pin in pins}
    assert pinned_version(pins, "torch").endswith("+cpu")
    assert {"vllm-cpu", "nixl", "nixl-cu12", "gguf", "accelerate"} <= names
    assert not names & {"triton", "nixl-cu13", "vllm"}
    assert not [name for name in names if name.startswith("nvidia-")]
