"""Things that are really broken on this host, for the length of a test, and what the checks then say."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpcserve.doctor import look_at_host
from hpcserve.doctor import look_at_node as node_looks
from hpcserve.doctor.catalogue import NODE, examine
from hpcserve.doctor.evidence import Wanted
from hpcserve.doctor.finding import Severity
from hpcserve.doctor.gate import gate_failures
from hpcserve.doctor.look_at_node import look_at_engine, look_at_node
from hpcserve.doctor.meeting import FOLDERS, answer_pings, meet
from tests.doctor.hosts import ETHERNET, RDMA, bad, site_of

LOOPBACK = (
    ETHERNET.replace("interface: ctl0", "interface: lo")
    .replace("interface: data0", "interface: lo")
    .replace("name: data0", "name: lo")
)

LIMITED = """
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
sys.path.insert(0, os.getcwd())
from hpcserve.doctor.catalogue import NODE, examine
from hpcserve.doctor.look_at_node import look_at_node
from tests.doctor.hosts import bad, rdma_site
wanted = rdma_site()
found = bad(examine(NODE, look_at_node(wanted, environment={}, quick=True), wanted))
print(json.dumps([[one.check, one.what] for one in found]))
"""


def here(environment: dict[str, str]) -> list[str]:
    wanted = Wanted(site=site_of(LOOPBACK), node="p1")
    found = bad(examine(NODE, look_at_node(wanted, environment=environment, quick=False), wanted))
    return [f"{one.check}: {one.what}" for one in found if one.check != "host-name"]


def test_this_host_is_a_sound_node_of_a_site_without_gpus() -> None:
    assert here({"HOME": "/root"}) == []


def test_variables_and_proxies_of_the_environment_are_told() -> None:
    found = here({"UCX_TLS": "shm", "NCCL_DEBUG": "INFO", "http_proxy": "http://127.0.0.1:9"})
    assert [line.partition(":")[0] for line in found] == ["inherited-transport", "proxies"]
    assert "NCCL_DEBUG=INFO" in found[0]


def test_a_real_limit_of_locked_memory_is_told() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True, timeout=60)
    found = dict(json.loads(done.stdout))
    assert found["locked-memory"] == "locked memory is limited to 64 KiB"
    assert "no RDMA device at all" in found["rdma-devices"]


def test_a_full_file_system_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    # in a mount namespace of its own, which ends with the command
    script = (
        f"mount -t tmpfs -o size=64k none {tmp_path} && exec {sys.executable} -c "
        "'import sys; from hpcserve.doctor.look_at_host import look_at_disks; "
        'print(look_at_disks({"paths.jobs": (sys.argv[1], True)})[0].trouble)\' ' + str(tmp_path)
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.stdout.strip() == "cannot be written: No space left on device"


def test_a_directory_of_somebody_else_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    (disk,) = look_at_host.look_at_disks({"paths.jobs": (str(blocked), True)})
    assert "Not a directory" in disk.trouble


def test_a_gate_lets_this_host_pass_where_it_is_fit_and_not_where_the_site_wants_more() -> None:
    plain, rich = site_of(LOOPBACK), site_of(RDMA)
    assert gate_failures(plain, "p1", moves_kv=True, environment={}) == ()
    checks = {one.check for one in gate_failures(rich, "r1", moves_kv=True, environment={"UCX_IB_SL": "1"})}
    assert {"networks", "gpus", "rdma-devices"} <= checks
    without_kv = {one.check for one in gate_failures(rich, "r1", moves_kv=False, environment={})}
    assert "rdma-devices" not in without_kv
    assert gate_failures(plain, "unknown", moves_kv=True, environment={}) == ()


def test_commands_that_are_slow_refuse_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia-smi", "ip"):
        (tmp_path / name).write_text("#!/bin/sh\nsleep 30\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(node_looks, "_QUICK_S", 0.3)
    wanted = Wanted(site=site_of(RDMA), node="r1")
    assert gate_failures(wanted.site, "r1", moves_kv=False, environment={}) == ()
    seen = look_at_node(wanted, environment={}, quick=True)
    assert seen.gpus_unseen == "nvidia-smi did not end in 0.3 s"
    assert seen.interfaces_unseen == "ip did not end in 0.3 s"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found' >&2; exit 6\n")
    (refused,) = gate_failures(wanted.site, "r1", moves_kv=False, environment={})
    assert (refused.check, refused.what) == ("gpus", "the GPUs cannot be asked: No devices were found")


def test_taken_ports_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        monkeypatch.setattr(look_at_host, "WORKER_PORTS", (number, number + 31))
        tried, free = look_at_host.free_ports(["127.0.0.1"])
    assert tried == 32
    assert free < 32
    assert look_at_host.free_ports(()) == (0, 0)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    return tmp_path


def test_a_node_and_the_login_node_meet_and_compare_clocks(shared: Path) -> None:
    answered: set[str] = set()

    def answer() -> None:
        while not answered:
            answer_pings(shared, answered)
            time.sleep(0.02)

    login = threading.Thread(target=answer)
    login.start()
    met = meet(shared, "n1", patience_s=20)
    login.join()
    assert met.rename_trouble == ""
    assert met.round_trip_s is not None
    assert met.clock_ahead_s is not None
    assert abs(met.clock_ahead_s) <= met.round_trip_s


def test_a_login_node_that_does_not_answer_is_told_as_none_and_a_directory_that_is_gone_as_trouble(
    shared: Path,
) -> None:
    assert meet(shared, "n1", patience_s=0.2).round_trip_s is None
    assert "No such file" in meet(shared / "gone", "n1", patience_s=0.2).rename_trouble


def test_a_runtime_that_cannot_be_entered_is_told_in_its_own_words(tmp_path: Path) -> None:
    script = tmp_path / "vllm.sh"
    script.write_text("echo 'module: command not found' >&2; exit 1\n")
    wanted = Wanted(site=site_of(LOOPBACK), node="p1")
    assert look_at_engine("vllm", wanted, script=script, timeout_s=20).trouble == "module: command not found"
    script.write_text("echo 'Loading gcc/12'\n")
    assert "Loading gcc/12" in look_at_engine("vllm", wanted, script=script, timeout_s=20).trouble
    script.write_text("""
echo "[1.0] [n:1:0] ucp_context.c:1 UCX  ERROR no usable transports/devices (asked tcp on network:lo)"
echo '{"backend_trouble": "nixlBackendError: NIXL_ERR_BACKEND", "versions": {"vllm": "0.32.0"}}'
echo "[1.0] [n:1:0] memtype_cache.c:1 UCX  WARN  something at the end"
""")
    seen = look_at_engine("vllm", wanted, script=script, timeout_s=20)
    assert (seen.trouble, dict(seen.versions)) == ("", {"vllm": "0.32.0"})
    assert "NIXL_ERR_BACKEND (ERROR no usable transports/devices (asked tcp" in seen.backend_trouble
    script.write_text("echo 'Lmod is asking its cache' >&2; sleep 30\n")
    seen = look_at_engine("vllm", wanted, script=script, timeout_s=0.5)
    assert (seen.trouble, seen.late) == ("bash did not end in 0.5 s: Lmod is asking its cache", True)


def test_this_process_has_the_limits_that_are_told() -> None:
    seen = look_at_node(Wanted(site=site_of(LOOPBACK), node="p1"), environment={}, quick=True)
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    assert seen.locked_memory_bytes == (None if soft == resource.RLIM_INFINITY else soft)
    assert {one.severity for one in examine(NODE, seen, Wanted(site=site_of(LOOPBACK), node="p1"))} >= {Severity.OK}
