"""No text whatever makes a reader fail in another way than by InputError, nor take long."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.site import KINDS, Kind, recognise
from hpcserve.site.slurm_text import KINDS as SLURM_KINDS

SAMPLES = {
    "topology.conf": "SwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n[1-2] # x\nSwitchName=s2 \\\n Nodes=n3\n",
    "topology.yaml": "- topology: a\n  cluster_default: true\n  tree: {switches: [{switch: s, nodes: 'n[1-2]'}]}\n",
    "scontrol-show-topology": "SwitchName=s1 Level=0 Nodes=n1\nSwitchName=t Level=1 Nodes=n[1-2] Switches=s1\n",
    "slurm.conf": "NodeName=DEFAULT CPUs=4\nNodeName=n[1-2] Gres=gpu:2\nNodeSet=s Feature=f\nPartitionName=p Nodes=s\n",
    "scontrol-show-node": "NodeName=n1 Arch=x CoresPerSocket=2\n  CPUAlloc=0 CPUTot=4 Gres=gpu:2 State=IDLE OS=Linux\n",
    "scontrol-show-partition": "PartitionName=p\n   Nodes=n[1-2] MaxTime=UNLIMITED TotalNodes=2 Default=YES\n",
    "scontrol-show-config": "Configuration data as of now\nSLURM_VERSION           = 23.11\n",
    "slurm-json": '{"nodes": [{"name": "n1", "state": ["IDLE"], "gres": "gpu:2", "cpus": 4}], "partitions": []}',
    "sinfo": "NODELIST|PARTITION|STATE|GRES\nn1|p*|idle|gpu:2(S:0)\nn2|p*|mix|(null)\n",
    "gres": "gpu:h100:8(S:0-1),shard:4\ncpu=4,gres/gpu=2\n",
    "node-states": "IDLE+DRAIN\nidle~\n",
    "hostlist": "n[01-04,07]\nr[1-2]c[1-3]\n",
}
by_kind = pytest.mark.parametrize("kind", SLURM_KINDS, ids=lambda kind: kind.name)


def read(kind: Kind[object], text: str) -> None:
    try:
        found = kind.parse(text, "any.txt")
    except InputError as error:
        assert error.mistakes  # noqa: PT017 - an error without one would tell nothing
        return
    kind.understood(found)


@by_kind
def test_each_sample_is_recognised_and_understood(kind: Kind[object]) -> None:
    text = SAMPLES[kind.name]
    assert recognise(text, "any.txt").name == kind.name
    assert kind.mistakes(kind.parse(text, "any.txt")) == ()


alphabet = st.sampled_from("=,[]()-:*+|~{}\"'\\#\n\t \0\ud800é0123456789") | st.characters()
any_text = st.text(alphabet, max_size=200)


@settings(max_examples=60, deadline=None)
@given(any_text)
def test_any_text(text: str) -> None:
    for kind in SLURM_KINDS:
        read(kind, text)
    for kind in KINDS:
        kind.looks_like(text)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A sample with pieces cut out, doubled, or replaced."""
    text = draw(st.sampled_from(list(SAMPLES.values())))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        piece = draw(st.just("") | st.just(text[start:end] * 3) | any_text.map(lambda one: one[:6]))
        text = text[:start] + piece + text[end:]
    return text


@settings(max_examples=100, deadline=None)
@given(damaged())
def test_damaged_samples(text: str) -> None:
    for kind in SLURM_KINDS:
        read(kind, text)


SIZE = 2**16
LARGE = {
    "one word": "a" * SIZE,
    "blanks": " " * SIZE,
    "line ends": "\n" * SIZE,
    "brackets": "n[" * (SIZE // 2),
    "commas": "," * SIZE,
    "parentheses": "gpu(" * (SIZE // 4),
    "quotes": 'a="' * (SIZE // 3),
    "keys": "a=b " * (SIZE // 4),
    "continued": "a=b \\\n" * (SIZE // 6),
    "unknown keys": "SwitchName=a Nodse=b\n" * (SIZE // 21),
    "switches": "".join(f"SwitchName=s{i} Level=0 Nodes=n{i}\n" for i in range(SIZE // 36)),
    "deep": "".join(f"SwitchName=s{i} Switches=s{i + 1}\n" for i in range(SIZE // 36)),
    "loop": "".join(f"SwitchName=s{i} Switches=s{(i + 1) % 3000}\n" for i in range(3000)),
    "wide": "".join(f"SwitchName=s{i} Nodes=n[1-65536]\n" for i in range(SIZE // 36)),
    "many wide": "".join(f"NodeName=n{i}x[1-65536] CPUs=1\n" for i in range(SIZE // 36)),
    "everybody": "NodeName=n[1-60000]\n" + "".join(f"PartitionName=p{i} Nodes=ALL\n" for i in range(SIZE // 30)),
    "records": "PartitionName=p Nodes=n[1-65536] MaxTime=1\n" * (SIZE // 43),
    "table": "NODELIST|PARTITION|STATE\n" + "n[1-999]|p*|idle\n" * (SIZE // 17),
    "yaml list": "- topology: a\n  tree: {switches: []}\n" * (SIZE // 40),
    "yaml flow": "- topology: a\n  tree: {switches: [" + "{switch: s, nodes: n}," * (SIZE // 22) + "]}\n",
    "json": '{"nodes": ['
    + ",".join('{"name": "n", "gres": "gpu:2", "state": "idle"}' for _ in range(SIZE // 48))
    + "]}",
    "states": "idle+" * (SIZE // 5),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_no_text_takes_long(text: str) -> None:
    """Tenths of a second; a reader whose time grows with the square of the text takes many."""
    for kind in KINDS:
        started = time.process_time()
        kind.looks_like(text)
        assert time.process_time() - started < 1, f"looks_like of {kind.name}"
    for kind in SLURM_KINDS:
        started = time.process_time()
        read(kind, text)
        # What is limited by the number of host names, not by the text's length, takes up to a second.
        assert time.process_time() - started < 3, kind.name
