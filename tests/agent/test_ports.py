"""Ports: no two jobs on one node get the same, engines can bind what is held, and nothing leaks."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from hpcserve.agent.listeners import listening_inodes, listens_on
from hpcserve.agent.ports import Ports, reserve
from hpcserve.errors import ServiceError

HOST = "127.0.0.1"


def numbers(ports: Ports) -> set[int]:
    return {port for first, count in ports.blocks for port in range(first, first + count)}


def engine(port: int, host: str = HOST) -> socket.socket:
    """What uvicorn and ZeroMQ do."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen()
    return listener


def test_blocks_are_contiguous_disjoint_and_below_the_ephemeral_range() -> None:
    ports = reserve((HOST,), [5, 3, 3, 1])
    try:
        assert [count for _, count in ports.blocks] == [5, 3, 3, 1]
        assert len(numbers(ports)) == 12
        assert max(numbers(ports)) < 32768
    finally:
        ports.close()


def test_many_agents_that_reserve_at_once_on_one_node_share_no_port() -> None:
    taken: list[Ports] = []
    barrier = threading.Barrier(12)

    def agent() -> None:
        barrier.wait()
        taken.append(reserve((HOST, "127.0.0.2"), [3, 3, 1]))

    threads = [threading.Thread(target=agent) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert len(set().union(*(numbers(ports) for ports in taken))) == 12 * 7
    finally:
        for ports in taken:
            ports.close()


def test_an_agent_of_another_process_is_excluded_by_the_reservation_alone() -> None:
    ports = reserve((HOST,), [1])
    try:
        program = (
            "import sys\nfrom hpcserve.agent.ports import reserve\nfrom hpcserve.errors import ServiceError\n"
            "try:\n    reserve(('127.0.0.1',), [1], fixed_last=int(sys.argv[1]))\n"
            "except ServiceError as error:\n    print(error)\n"
        )
        argv = [sys.executable, "-c", program, str(ports.blocks[0][0])]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert f"port {ports.blocks[0][0]} is in use" in done.stdout
    finally:
        ports.close()


@pytest.mark.parametrize("host", [HOST, "0.0.0.0"])  # noqa: S104 - what some engines bind
def test_an_engine_binds_and_listens_on_a_port_that_is_held_again_and_again(host: str) -> None:
    ports = reserve((HOST,), [2])
    try:
        for _ in range(3):
            listener = engine(ports.blocks[0][0], host)
            with socket.create_connection((HOST, ports.blocks[0][0])) as client, listener.accept()[0] as served:
                served.sendall(b"x")
                assert client.recv(1) == b"x"
            listener.close()
    finally:
        ports.close()


def test_a_restarted_agent_holds_what_it_can_and_names_what_its_workers_listen_on() -> None:
    first = reserve((HOST,), [3])
    start = first.blocks[0][0]
    worker = engine(start + 1)
    first.close()  # the agent was killed
    again = Ports((HOST,), first.blocks)
    try:
        assert again.hold() == (start + 1,)
        assert again.hold() == (start + 1,)
        worker.close()
        assert again.hold() == ()
        with pytest.raises(ServiceError, match=str(start + 1)):
            reserve((HOST,), [1], fixed_last=start + 1)
    finally:
        worker.close()
        again.close()


def test_a_fixed_port_that_is_taken_is_refused_and_holds_nothing() -> None:
    with engine(0) as neighbour:
        port = neighbour.getsockname()[1]
        with pytest.raises(ServiceError, match=rf"port {port} is in use.*router\.port"):
            reserve((HOST,), [2, 1], fixed_last=port)


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7001 1 0000 100 0 0 10 0
   1: 0100007F:4E20 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 7002 1 0000 20 4 30 10 -1
   2: 00000000:4E21 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7003 1 0000 100 0 0 10 0
"""


def test_only_sockets_that_listen_count() -> None:
    assert listening_inodes(TABLE, 20000) == {7001}
    assert listening_inodes(TABLE, 20001) == {7003}
    assert listening_inodes(TABLE, 54321) == frozenset()


def test_a_listener_belongs_to_the_process_that_holds_it() -> None:
    with engine(0) as listener:
        port = listener.getsockname()[1]
        assert listens_on(port, [os.getpid()])
        assert not listens_on(port, [os.getppid()])
        assert not listens_on(port, [])
    assert not listens_on(port, [os.getpid()])
