"""No text makes a reader of tools' output raise anything but InputError, or takes it long."""

import gc
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError, Mistake
from hpcserve.site import gpu_text, host_text, infiniband_text
from hpcserve.site.kind import Kind
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import lines_of
from tests.site.infiniband_text.wiring import fat_tree

KINDS: tuple[Kind[Any], ...] = (*infiniband_text.KINDS, *gpu_text.KINDS, *host_text.KINDS)
NET = fat_tree(leaves=2, hosts=2, spines=1, idle=1)
SAMPLES = [
    NET.as_ibnetdiscover(),
    NET.as_port_list(),
    NET.as_iblinkinfo(),
    NET.as_iblinkinfo_lines(),
    "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n",
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV4\tPIX\t0-7\t0\nGPU1\tNV4\tX\tSYS\t0-7\t0\n",
    "Driver Version : 1\nAttached GPUs : 1\nGPU 00000000:08:00.0\n    FB Memory Usage\n        Total : 1 MiB\n",
    "index, name, memory.total [MiB]\n0, A100, 40960 MiB\n",
    "Architecture: x86_64\nCPU(s): 8\nNUMA node0 CPU(s): 0-7\n",
    '[{"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]}]',
    "/sys/devices/system/node/node0/cpulist:0-7\n/sys/class/net/e0/speed:1000\n",
    "ibwarn: [1] x: can't open UMAD port\nibnetdiscover: iberror: failed: discover failed\n",
]
PIECES = [
    "[1]",
    '"',
    "'",
    "# ",
    "==(",
    ")==>",
    "GPU0",
    "NIC0",
    " : ",
    ": ",
    "CA ",
    "\t",
    "٣",
    "\x85",
    "\x00",
    "0x",
    "Could be ",
]
NOWHERE = Mistake(file="any.txt", line=0, column=0, found="", wanted="", remedy="")


def read_all(text: str) -> None:
    for kind in KINDS:
        kind.looks_like(text)
        mistakes: tuple[Mistake, ...] = ()
        try:
            kind.understood(kind.parse(text, "any.txt"))
        except InputError as error:
            mistakes = error.mistakes or (NOWHERE,)
        assert all(mistake.line >= 1 and mistake.column >= 1 for mistake in mistakes)


@settings(max_examples=60, deadline=None)
@given(text=st.text() | st.lists(st.sampled_from([*PIECES, "\n", " ", "1", "a"])).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_all(text)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_spoilt_output_is_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SAMPLES))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 30)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=4)) + text[end:]
    read_all(text)


@pytest.mark.parametrize("text", SAMPLES)
def test_each_output_is_known_by_one_kind_only(text: str) -> None:
    assert len([kind.name for kind in KINDS if kind.looks_like(text)]) == 1


KIB_64 = 2**16


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "\n",
            " ",
            "ib",
            "[1]",
            '"',
            "'' - '",
            "==(",
            "GPU0 ",
            "GPU0\n",
            "a:\n b:\n  c:\n",
            "\x1b[",
            "[[",
            "n1: x\nn2: y\n",
        )
    ],
)
def test_no_text_takes_more_than_a_second_per_mib(piece: str) -> None:
    """A sixteenth of a MiB in less than a quarter of a second: room for a slow machine."""
    lines = piece * (4000 // len(piece)) + "\n" * ("\n" not in piece)
    text = lines * (KIB_64 // len(lines))
    for kind in KINDS:
        assert min(_read_s(kind, text) for _ in range(2)) < 0.25, kind.name


def _read_s(kind: Kind[Any], text: str) -> float:
    """Processor time of one reading, without that of collecting what earlier tests left in memory."""
    gc.collect()
    gc.disable()
    try:
        before_s = time.process_time()
        kind.looks_like(text)
        with pytest.raises(InputError):
            kind.parse(text, "any.txt")
        return time.process_time() - before_s
    finally:
        gc.enable()


def test_a_line_that_no_tool_prints_is_refused() -> None:
    mistakes = Mistakes("any.txt")
    assert [line.text for line in lines_of("a\n" + "b" * 5000 + "\nc\n", mistakes)] == ["a", "c"]
    assert str(mistakes.error()).startswith("any.txt:2:1: a line of 5000 characters")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("n1: a\nn1: \nn1:  b\n", ["a", " b"]),
        ("n1: a\nn1:\nn1: b\n", ["a", "b"]),
        ("n1: a\n", ["n1: a"]),
        ("n1: a\nb\n", ["n1: a", "b"]),
        ("ibwarn: a\nibwarn: b\n", ["ibwarn: a", "ibwarn: b"]),
        ("\x1b[1mn1: a\x1b[0m\nn1: b", ["a", "b"]),
    ],
)
def test_prefixes_of_a_host_are_cut_where_all_lines_have_them(text: str, kept: list[str]) -> None:
    mistakes = Mistakes("any.txt")
    assert [line.text for line in lines_of(text, mistakes)] == kept
    assert mistakes.found == ()


def test_more_lines_than_a_host_prints_are_not_read() -> None:
    mistakes = Mistakes("any.txt")
    assert lines_of("a\n" * 11, mistakes, most=10) == ()
    assert str(mistakes.error()).startswith("any.txt:1:1: 11 lines; at most 10: ")
    assert len(lines_of("a\n" * 10, Mistakes("any.txt"), most=10)) == 10
