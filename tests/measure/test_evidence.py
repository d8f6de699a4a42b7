from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.measure.evidence import nic_received_bytes, read_transport

TABLE = """\
[1.0] [n:1:0]  ucp_worker.c:1997 UCX  INFO    a inter-node cfg#1 rma_am(tcp/ctl0) am(tcp/ctl0)
[1.0] [n:1:0]   +--------+-------------+------------+
[1.0] [n:1:0]   | a cfg#1                           |
[1.0] [n:1:0]   | active message by ucp_am_send* from host memory |
[1.0] [n:1:0]   | 0..inf | zero-copy   | tcp/lo     |
[1.0] [n:1:0]   | remote memory read by ucp_get*(multi) into {into} |
[1.0] [n:1:0]   +--------+-------------+------------+
[1.0] [n:1:0]   | Range  | Description | Config     |
[1.0] [n:1:0]   | 0..inf | {how} | {lanes} |
[1.0] [n:1:0]   +--------+-------------+------------+
[1.0] [n:1:0]   | remote memory write by ucp_put* from host memory to host |
[1.0] [n:1:0]   | 0..inf | zero-copy   | sysv/memory |
"""


@pytest.mark.parametrize(
    ("into", "how", "lanes", "wanted"),
    [
        ("host memory from host", "software emulation", "tcp/data0", ("tcp", "data0")),
        ("cuda/GPU0 from cuda", "zero-copy", "rc_mlx5/mlx5_0:1", ("rc_mlx5", "mlx5_0:1")),
        (
            "cuda from cuda",
            "zero-copy",
            "50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_1:1",
            ("rc_mlx5", "mlx5_0:1+mlx5_1:1"),
        ),
    ],
)
def test_what_ucx_reads_with_is_read_from_the_table_of_reads(
    into: str, how: str, lanes: str, wanted: tuple[str, str]
) -> None:
    assert read_transport(TABLE.format(into=into, how=how, lanes=lanes)) == wanted


def test_the_last_word_counts_and_no_word_is_none() -> None:
    twice = TABLE.format(into="host", how="x", lanes="tcp/eth0") + TABLE.format(into="host", how="x", lanes="tcp/data0")
    assert read_transport(twice) == ("tcp", "data0")
    assert read_transport("") is None
    assert read_transport("| remote memory write by ucp_put*\n| 0..inf | tcp/lo |\n") is None


@given(st.text(alphabet="ucp_get remote memory read by/|:\n*+tcp", max_size=400))
def test_no_text_breaks_it(text: str) -> None:
    read_transport(text)


def test_counters_are_bytes_whatever_the_nic_counts_in(tmp_path: Path) -> None:
    network = tmp_path / "net" / "data0" / "statistics"
    rdma = tmp_path / "infiniband" / "mlx5_0" / "ports" / "2" / "counters"
    for folder, name, text in ((network, "rx_bytes", "1024\n"), (rdma, "port_rcv_data", "1024\n")):
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
    assert nic_received_bytes("data0", sysfs=tmp_path) == 1024
    assert nic_received_bytes("mlx5_0:2", sysfs=tmp_path) == 4096
    assert nic_received_bytes("mlx5_0:1", sysfs=tmp_path) is None
    assert nic_received_bytes("eth9", sysfs=tmp_path) is None
