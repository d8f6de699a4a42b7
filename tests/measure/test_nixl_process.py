import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcserve.measure.nixl_process import NixlProcess, NixlProcessError, child_environment

ECHO = """
import json, os, sys, time
print("Loading cuda/12.4", '{"a": 1}', "[7]", "7", sep="\\n")
print(json.dumps({"name": "me", "answers": 0}), flush=True)
late = ""
for line in sys.stdin:
    said = json.loads(line)
    number = said.pop("number")
    if said["do"] == "die":
        print("ucx: cannot do that", file=sys.stderr, flush=True)
        os._exit(7)
    if said["do"] == "sleep":
        time.sleep(60)
    if said["do"] == "fail":
        said = {"error": "NIXL_ERR_BACKEND"}
    answer = json.dumps({**said, "answers": number})
    if said.get("do") == "late":
        late = answer
        continue
    print(late, "of a container: ", sep="\\n", end="")
    print("", answer, sep="\\n", flush=True)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NixlProcess]:
    made = NixlProcess([sys.executable, "-c", ECHO], env={}, log=tmp_path / "log")
    try:
        assert made.answer(within_s=20) == {"name": "me"}
        yield made
    finally:
        made.end()


def test_a_command_is_answered(process: NixlProcess) -> None:
    assert process.ask(within_s=20, do="x", size=2**20) == {"do": "x", "size": 2**20}


def test_what_others_print_is_logged_and_no_answer(process: NixlProcess, tmp_path: Path) -> None:
    assert process.ask(within_s=20, do="x") == {"do": "x"}
    assert (tmp_path / "log").read_text().splitlines()[:2] == ["Loading cuda/12.4", '{"a": 1}']
    assert "of a container: " in (tmp_path / "log").read_text()


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(process: NixlProcess) -> None:
    with pytest.raises(NixlProcessError, match=r"within 0\.5 s"):
        process.ask(within_s=0.5, do="late", size=1)
    assert process.ask(within_s=20, do="x", size=2) == {"do": "x", "size": 2}


def test_an_error_is_raised_and_the_process_lives_on(process: NixlProcess) -> None:
    with pytest.raises(NixlProcessError, match="NIXL_ERR_BACKEND"):
        process.ask(within_s=20, do="fail")
    assert process.ask(within_s=20, do="x")["do"] == "x"


def test_a_process_that_dies_says_how_and_its_last_words(process: NixlProcess) -> None:
    with pytest.raises(NixlProcessError, match="ended with 7: ucx: cannot do that"):
        process.ask(within_s=20, do="die")
    with pytest.raises(NixlProcessError, match="ended with 7"):
        process.ask(within_s=20, do="x")


def test_one_that_does_not_answer_is_given_up_and_can_be_ended(process: NixlProcess) -> None:
    process.ask(within_s=20, do="x")
    with pytest.raises(NixlProcessError, match=r"within 0\.2 s"):
        process.ask(within_s=0.2, do="sleep")


def test_settings_of_the_users_shell_and_of_mpi_do_not_reach_nixl() -> None:
    inherited = {"UCX_TLS": "all", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "SLURM_PROCID": "1", "HOME": "/h"}
    made = child_environment(inherited, {"UCX_TLS": "tcp"})
    assert made == {"HOME": "/h", "UCX_TLS": "tcp", "UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info"}
