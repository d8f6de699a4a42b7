"""The scripts, run by a real bash with stand-ins for what they start."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcserve.engines import EngineCommand
from hpcserve.errors import InputError
from hpcserve.nouns import JobFile
from hpcserve.render import render_job, render_worker
from hpcserve.scheduler.processes import marked
from tests.golden.cases import TEMPLATES, Case, case

TOLD_WITHIN_S = 20.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
values = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
SHOW = (sys.executable, "-c", "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))")


def written(directory: Path, files: tuple[JobFile, ...]) -> None:
    for folder in ("nodes", "workers", "endpoints", "heartbeats", "logs"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for file in files:
        path = directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8", newline="")


def job_in(directory: Path, name: str, *, python_folder: Path) -> Case:
    found = case(name)
    job = render_job(
        plan=found.plan,
        site=found.site,
        service=found.service,
        texts={},
        templates=TEMPLATES,
        directory=str(directory),
        python_folder=str(python_folder),
        launcher="local" if found.site.slurm is None else "slurm",
        keys={"api.key": "client secret", "engine.key": "engine secret"},
    )
    written(directory, job.files)
    return found


@contextmanager
def leading(script: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The script as leader of a session of its own; nothing of it is left afterwards, whatever happens meanwhile."""
    with subprocess.Popen(["bash", str(script)], env=environment, start_new_session=True) as leader:
        try:
            yield leader
        finally:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)


def stopped_when(leader: subprocess.Popen[bytes], ready: Callable[[], bool]) -> int:
    """The exit code of a script that is told to stop as soon as it has come so far."""
    end = time.monotonic() + TOLD_WITHIN_S
    while not ready():
        assert leader.poll() is None, f"it ended with {leader.returncode} before"
        assert time.monotonic() < end, "it did not come so far"
        time.sleep(0.02)
    leader.send_signal(signal.SIGTERM)
    return leader.wait(timeout=TOLD_WITHIN_S)


def agent_stand_in(folder: Path, body: str) -> Path:
    """A `python` that stands in for the agent: `body` is bash, its arguments are the agent's. Nobody sleeps long."""
    folder.mkdir()
    for name, text in {"python": body, "sleep": 'exec /bin/sleep "$(($1 > 9 ? $1 : 0))"'}.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def test_an_agent_that_dies_at_once_again_and_again_is_given_up_and_its_workers_are_ended(tmp_path: Path) -> None:
    folder = agent_stand_in(tmp_path / "bin", 'echo "$@" >>"$HPCSERVE_JOB/seen.$6"; exit 127')
    (folder / "sleep").write_text("#!/bin/bash\n")
    job = tmp_path / "job"
    job_in(job, "local.sim", python_folder=folder)
    assert run_local(job) == 127
    seen = (job / "seen.local1").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in seen] == ["--head"] * 10 + ["--end-leftovers"]
    log = (job / "logs" / "agent.local1.log").read_text()
    assert re.findall(r"starting it again in (\d+) s", log) == ["1", "2", "4", "8", "16", "32", "32", "32", "32"]
    assert "ended with 127, 10 times in a row; given up" in log
    assert json.loads((job / "exit.json").read_text())["code"] == 127


@pytest.mark.parametrize("after_ms", [8, 16, 24, 32])
def test_a_stop_while_the_agents_are_started_leaves_none(tmp_path: Path, after_ms: int) -> None:
    body = 'if [[ $* == *--end-leftovers ]]; then exit 0; fi; trap "exit 0" TERM; while true; do /bin/sleep 0.05; done'
    folder = agent_stand_in(tmp_path / "bin", body)
    job = tmp_path / "job"
    job_in(job, "local.sim", python_folder=folder)
    script = job / "local.sh"
    many = script.read_text().replace("for node in local1 local2", "for node in local{1..25}")
    assert "{1..25}" in many
    script.write_text(many)
    with leading(script, ENVIRONMENT) as leader:
        time.sleep(after_ms / 1000)
        leader.send_signal(signal.SIGTERM)
        leader.wait(timeout=TOLD_WITHIN_S)
        end = time.monotonic() + 5
        while (left := marked("HPCSERVE_JOB", str(job))) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    argv=st.lists(values, max_size=6), env=st.dictionaries(st.sampled_from(["A", "B_C", "_x"]), values), where=values
)
def test_every_word_and_variable_reaches_the_engine(
    tmp_path: Path, argv: list[str], env: dict[str, str], where: str
) -> None:
    folder = "".join("_" if mark == "/" or not mark.isprintable() else mark for mark in where)[:20]
    directory = tmp_path / f"job {folder}'\"$x"
    found = job_in(directory, "local.sim", python_folder=Path(sys.executable).parent)
    command = EngineCommand(argv=(*SHOW, *argv), env=env)
    worker = found.granted.workers[0]
    rank = worker.ranks[0].model_copy(update={"cores": ()})
    file = render_worker(
        worker=worker.model_copy(update={"ranks": (rank,)}),
        command=command,
        engine="sim",
        site=found.site,
        templates=TEMPLATES,
        directory=str(directory),
        why=where,
    )
    written(directory, (file,))
    done = subprocess.run(
        ["bash", str(directory / file.path)], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    seen_argv, seen_env = json.loads(done.stdout)
    assert seen_argv == argv
    assert {name: seen_env[name] for name in env} == env
    assert seen_env["VLLM_API_KEY"] == "engine secret"


def test_values_with_commas_arrive_whole(tmp_path: Path) -> None:
    found = job_in(tmp_path, "local.sim", python_folder=Path(sys.executable).parent)
    wanted = {"CUDA_VISIBLE_DEVICES": "0,1", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1", "NOTE": 'it\'s "quoted" $HOME %j'}
    worker = found.granted.workers[0]
    rank = worker.ranks[0].model_copy(update={"cores": (0,)})
    file = render_worker(
        worker=worker.model_copy(update={"ranks": (rank,)}),
        command=EngineCommand(argv=SHOW, env=wanted),
        engine="sim",
        site=found.site,
        templates=TEMPLATES,
        directory=str(tmp_path),
        why="",
    )
    written(tmp_path, (file,))
    done = subprocess.run(["bash", str(tmp_path / file.path)], env=ENVIRONMENT, capture_output=True, check=True)
    seen = json.loads(done.stdout)[1]
    assert {name: seen[name] for name in wanted} == wanted
    assert "--export" not in case("onebox.smollm2").scripts["job.sbatch"]


def test_a_value_that_cannot_arrive_is_refused_with_its_place() -> None:
    found = case("local.sim")
    with pytest.raises(InputError) as caught:
        render_worker(
            worker=found.granted.workers[0],
            command=EngineCommand(argv=("x",), env={"A": "a\0b"}),
            engine="sim",
            site=found.site,
            templates=TEMPLATES,
            directory="/j",
            why="",
        )
    (mistake,) = caught.value.mistakes
    assert mistake.file == "worker.sh.j2"
    assert mistake.line > 1
    assert "NUL" in mistake.found


def run_local(directory: Path) -> int:
    """The exit code of the local script."""
    with leading(directory / "local.sh", ENVIRONMENT) as leader:
        return leader.wait(timeout=60)


def test_the_local_script_starts_one_agent_a_node_and_one_head(tmp_path: Path) -> None:
    folder = agent_stand_in(tmp_path / "bin", 'echo "$@" >>"$HPCSERVE_JOB/seen"')
    job_in(tmp_path / "job", "local.sim", python_folder=folder)
    assert run_local(tmp_path / "job") == 0
    seen = sorted((tmp_path / "job" / "seen").read_text().splitlines())
    job = tmp_path / "job"
    assert seen == [
        f"-m hpcserve.agent --job {job} --node local1 --nodes 2 --head",
        f"-m hpcserve.agent --job {job} --node local2 --nodes 2",
    ]
    assert json.loads((job / "exit.json").read_text()) == {"schema": "hpcserve.exit/1", "code": 0}


def test_an_agent_that_dies_is_started_again(tmp_path: Path) -> None:
    body = 'n=$HPCSERVE_JOB/lives.$6; echo x >>"$n"; [[ $(wc -l <"$n") -ge 3 ]] || kill -KILL $$'
    folder = agent_stand_in(tmp_path / "bin", body)
    job_in(tmp_path / "job", "local.sim", python_folder=folder)
    assert run_local(tmp_path / "job") == 0
    assert (tmp_path / "job" / "lives.local1").read_text() == "x\n" * 3
    assert "ended with 137; starting it again in 1 s" in (tmp_path / "job" / "logs" / "agent.local1.log").read_text()


def test_a_job_whose_service_gave_up_does_not_end_well(tmp_path: Path) -> None:
    folder = agent_stand_in(tmp_path / "bin", 'echo "{}" >"$HPCSERVE_JOB/failed.json"; exit 0')
    job_in(tmp_path / "job", "local.sim", python_folder=folder)
    assert run_local(tmp_path / "job") == 1
    assert json.loads((tmp_path / "job" / "exit.json").read_text())["code"] == 1


def test_an_agent_that_gives_up_is_not_started_again_and_its_workers_are_ended(tmp_path: Path) -> None:
    body = 'echo "$@" >>"$HPCSERVE_JOB/seen.$6"; echo "{}" >"$HPCSERVE_JOB/failed.json"; exit 3'
    folder = agent_stand_in(tmp_path / "bin", body)
    job_in(tmp_path / "job", "local.sim", python_folder=folder)
    assert run_local(tmp_path / "job") == 3
    seen = (tmp_path / "job" / "seen.local1").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in seen] == ["--head", "--end-leftovers"]


def test_a_second_start_reads_nothing_that_the_first_left(tmp_path: Path) -> None:
    job = tmp_path / "job"
    folder = agent_stand_in(tmp_path / "bin", 'ls "$HPCSERVE_JOB" "$HPCSERVE_JOB"/*/ >>"$HPCSERVE_JOB/found"')
    job_in(job, "local.sim", python_folder=folder)
    stale = ["plan.json", "failed.json", "router.json", "router.state.json", "nodes/local1.json", "endpoints/p.json"]
    stale += ["heartbeats/local1.json", "workers/p.state.json", "exit.json", "decided.json"]
    for name in stale:
        (job / name).write_text("{}")
    (job / "logs" / "agent.local1.log").write_text("first life\n")
    assert run_local(job) == 0
    found = (job / "found").read_text().splitlines()
    assert not {Path(name).name for name in stale} & set(found)
    assert "plan.asked.json" in found
    assert (job / "logs" / "agent.local1.log").read_text().startswith("first life\n")


def test_term_reaches_the_agents_and_the_job_ends_well(tmp_path: Path) -> None:
    body = 'trap \'echo told >>"$HPCSERVE_JOB/told"; exit 0\' TERM; touch "$HPCSERVE_JOB/up.$6"; sleep 20 & wait $!'
    folder = agent_stand_in(tmp_path / "bin", body + "; kill $!")
    job = tmp_path / "job"
    job_in(job, "local.sim", python_folder=folder)
    with leading(job / "local.sh", ENVIRONMENT) as leader:
        assert stopped_when(leader, lambda: len(list(job.glob("up.*"))) == 2) == 0
    assert (job / "told").read_text() == "told\n" * 2
    assert json.loads((job / "exit.json").read_text())["code"] == 0


SLURM_STAND_INS = {
    "srun": (
        'env | grep ^SLURM_ | sort >"$SEEN/env"; printf "%s\\n" "$@" >"$SEEN/srun"; '
        'if [[ $ENDS == told ]]; then touch "$SEEN/up"; while [[ ! -e stop.json ]]; do sleep 0.1; done; exit 143; fi; '
        'exit "${ENDS:-0}"'
    ),
    "scontrol": "echo node03; echo node04",
}


def batch_environment(tmp_path: Path, *, of: str = "onebox.smollm2", **more: str) -> dict[str, str]:
    """The environment of a batch script on node03, with stand-ins for Slurm's commands, and the job written."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name, body in SLURM_STAND_INS.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    job_in(tmp_path / "job", of, python_folder=tmp_path)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SEEN": str(tmp_path),
        "SLURM_JOB_ID": "4242",
        "SLURM_JOB_NODELIST": "node[03-04]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CONF": "/etc/slurm.conf",
        **more,
    }


def run_sbatch(tmp_path: Path, **more: str) -> tuple[int, list[str], list[str]]:
    """Exit code, SLURM variables that srun would see, its arguments."""
    done = subprocess.run(
        ["bash", str(tmp_path / "job" / "job.sbatch")],
        env=batch_environment(tmp_path, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stderr == ""
    return done.returncode, (tmp_path / "env").read_text().splitlines(), (tmp_path / "srun").read_text().splitlines()


LEAKS = {
    "SLURM_MEM_PER_CPU": "4000",
    "SLURM_MEM_PER_NODE": "64000",
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
    "SLURM_CPU_BIND_LIST": "0x1",
    "SLURM_TRES_PER_TASK": "cpu:4",
    "SLURM_CPUS_PER_TASK": "4",
    "SLURM_NTASKS": "1",
    "SLURM_GPUS": "1",
    "SLURM_GPUS_PER_TASK": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_ARRAY_JOB_ID": "90",
    "SLURM_ARRAY_TASK_ID": "3",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_DISTRIBUTION": "cyclic",
    "SBATCH_EXCLUSIVE": "1",
    "HPCSERVE_NODE": "elsewhere",
}


def test_nothing_of_an_outer_job_reaches_srun(tmp_path: Path) -> None:
    code, seen, _ = run_sbatch(tmp_path, **LEAKS)
    assert code == 0
    assert seen == [
        "SLURM_CONF=/etc/slurm.conf",
        "SLURM_JOB_ID=4242",
        "SLURM_JOB_NODELIST=node[03-04]",
        "SLURM_JOB_NUM_NODES=2",
    ]


def test_srun_says_cpus_binding_memory_overlap_and_a_bounded_wait(tmp_path: Path) -> None:
    _, _, words = run_sbatch(tmp_path)
    assert words[-2:] == ["bash", "agent.sh"]
    assert {
        "--nodes=2",
        "--nodelist=node[03-04]",
        "--ntasks-per-node=1",
        "--cpus-per-task=8",
        "--gres=gpu:1",
        "--mem=0",
        "--cpu-bind=none",
        "--gpu-bind=none",
        "--overlap",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--immediate=60",
    } <= set(words)


def test_the_job_ends_as_srun_ends(tmp_path: Path) -> None:
    code, _, _ = run_sbatch(tmp_path, ENDS="139")
    assert code == 139
    assert json.loads((tmp_path / "job" / "exit.json").read_text())["code"] == code


def test_a_stop_before_the_agents_have_started_is_not_lost(tmp_path: Path) -> None:
    environment = batch_environment(tmp_path, ENDS="told")
    (tmp_path / "commands" / "scontrol").write_text('#!/bin/bash\ntouch "$SEEN/asked"; sleep 0.5; echo node03\n')
    with leading(tmp_path / "job" / "job.sbatch", environment) as batch:
        assert stopped_when(batch, (tmp_path / "asked").exists) == 0
    assert (tmp_path / "up").exists()  # the agents' step was started, and was told by the file
    assert json.loads((tmp_path / "job" / "stop.json").read_text())["life"] == "4242.0"
    assert json.loads((tmp_path / "job" / "exit.json").read_text())["code"] == 0


def test_a_job_that_cannot_learn_its_nodes_says_so_and_ends(tmp_path: Path) -> None:
    environment = batch_environment(tmp_path)
    (tmp_path / "commands" / "scontrol").write_text("#!/bin/bash\nexit 1\n")
    done = subprocess.run(
        ["bash", str(tmp_path / "job" / "job.sbatch")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert "scontrol names no node of node[03-04]" in done.stderr
    assert json.loads((tmp_path / "job" / "exit.json").read_text())["code"] == 1
    assert not (tmp_path / "srun").exists()


def test_a_job_that_is_told_to_stop_tells_the_agents_by_a_file(tmp_path: Path) -> None:
    environment = batch_environment(tmp_path, ENDS="told", SLURM_RESTART_COUNT="2")
    with leading(tmp_path / "job" / "job.sbatch", environment) as batch:
        assert stopped_when(batch, (tmp_path / "up").exists) == 0
    told = json.loads((tmp_path / "job" / "stop.json").read_text())
    assert told == {"schema": "hpcserve.stop/1", "life": "4242.2"}


COMPONENTS = {
    "SLURM_JOB_NODELIST": "h[1-2]",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "h[1-2]",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "a[1-3]",
    "SLURM_JOB_NUM_NODES_HET_GROUP_0": "2",
    "SLURM_JOB_NUM_NODES_HET_GROUP_1": "3",
    "SLURM_MEM_PER_NODE_HET_GROUP_1": "64000",
}


def test_a_job_of_several_components_starts_a_step_in_each(tmp_path: Path) -> None:
    environment = batch_environment(tmp_path, of="mixed.llama8b", **COMPONENTS)
    commands = {
        "scontrol": 'echo "$3" >"$SEEN/asked"; echo h1; echo h2',
        "srun": (
            'env | grep -E "^(SLURM|HPCSERVE)_" | sort >"$SEEN/env$1"; printf "%s\\n" "$@" >"$SEEN/srun$1"; '
            "[[ $1 != --het-group=1 ]] || exit 7"
        ),
    }
    for name, body in commands.items():
        (tmp_path / "commands" / name).write_text(f"#!/bin/bash\n{body}\n")
    done = subprocess.run(
        ["bash", str(tmp_path / "job" / "job.sbatch")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert json.loads((tmp_path / "job" / "exit.json").read_text())["code"] == 7
    assert (tmp_path / "asked").read_text() == "h[1-2]\n"
    first, second = (set((tmp_path / f"srun--het-group={number}").read_text().splitlines()) for number in range(2))
    assert {"--nodes=2", "--nodelist=h[1-2]", "--gres=gpu:h100:8", "--cpus-per-task=96", "agent.sh"} <= first
    assert {"--nodes=3", "--nodelist=a[1-3]", "--gres=gpu:a100:2", "--cpus-per-task=32", "agent.sh"} <= second
    seen = (tmp_path / "env--het-group=1").read_text().splitlines()
    assert {"HPCSERVE_HEAD=h1", "HPCSERVE_NODES=5", "SLURM_JOB_ID=4242"} <= set(seen)
    assert {f"{name}={COMPONENTS[name]}" for name in COMPONENTS if "NODELIST_HET" in name} <= set(seen)
    assert not [line for line in seen if "MEM_PER_NODE" in line]


def test_a_step_of_each_component_is_told_to_stop(tmp_path: Path) -> None:
    environment = batch_environment(tmp_path, of="mixed.llama8b", **COMPONENTS)
    (tmp_path / "commands" / "srun").write_text(
        '#!/bin/bash\ntouch "$SEEN/up$1"; while [[ ! -e stop.json ]]; do sleep 0.1; done; exit 143\n'
    )
    with leading(tmp_path / "job" / "job.sbatch", environment) as batch:
        assert stopped_when(batch, lambda: len(list(tmp_path.glob("up*"))) == 2) == 0
    assert len(list(tmp_path.glob("up*"))) == 2
    assert json.loads((tmp_path / "job" / "exit.json").read_text())["code"] == 0
