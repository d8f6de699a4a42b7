"""What Slurm prints, and what is read from it."""

import re

import pytest

from hpcserve.scheduler import array_sizes, clean_environment, parse_max_array_size
from hpcserve.scheduler.slurm_text import (
    array_tasks,
    explain_refusal,
    is_unknown_job,
    job_row,
    parse_sacct,
    parse_squeue,
    parse_submitted,
    stuck_step,
)
from hpcserve.scheduler.states import SLURM_PHASES, phase_of, reason_in_words

SACCT = """\
JobID|State|ExitCode|NodeList|Start
812|COMPLETED|0:0|gpu[001-002]|2026-03-01T10:00:00
812.batch|COMPLETED|0:0|gpu001|2026-03-01T10:00:00
812.extern|COMPLETED|0:0|gpu[001-002]|2026-03-01T10:00:00
812.0|FAILED|1:0|gpu001|2026-03-01T10:00:05
813_1|RUNNING|0:0|gpu003|2026-03-01T11:00:00
813_[2-5%2]|PENDING|0:0|None assigned|Unknown
814|PREEMPTED|0:0|gpu004|2026-03-01T09:00:00
814|PENDING|0:0|None assigned|Unknown
815|CANCELLED by 1000|0:15|gpu002|2026-03-01T10:00:05
816|FAILED|139:0|gpu002|2026-03-01T10:00:05
"""


def test_only_the_job_row_says_how_the_job_is() -> None:
    rows = parse_sacct(SACCT)
    assert rows["812"].state == "COMPLETED"
    assert rows["812"].nodes == ("gpu001", "gpu002")
    assert not [name for name in rows if "." in name]


def test_of_a_requeued_job_the_newest_row_counts() -> None:
    row = parse_sacct(SACCT)["814"]
    assert (row.state, row.nodes, row.start) == ("PENDING", (), None)


def test_pending_tasks_of_an_array_are_each_there() -> None:
    rows = parse_sacct(SACCT)
    assert {name: rows[name].state for name in rows if name.startswith("813")} == {
        "813_1": "RUNNING",
        **{f"813_{index}": "PENDING" for index in (2, 3, 4, 5)},
    }
    assert array_tasks("9_[1,3-7:2]") == ("9_1", "9_3", "9_5", "9_7")
    assert array_tasks("9") == ("9",)


def test_a_state_with_words_behind_it_is_its_first_word() -> None:
    rows = parse_sacct(SACCT)
    assert rows["815"].state == "CANCELLED"
    assert rows["816"].exit_code == 139


@pytest.mark.parametrize("text", ["", "\n", "JobID|State\n", "Slurm accounting storage is disabled\n", "JobID\n1\n"])
def test_sacct_that_says_nothing_gives_no_row(text: str) -> None:
    assert parse_sacct(text) == {}


def test_squeue_rows() -> None:
    rows = parse_squeue(
        "7|PENDING|JobHeldUser||N/A\n"
        "8|RUNNING|None|node[01-02,04]|2026-03-01T10:00:00\n"
        "9|PENDING|Nodes required for job are DOWN, DRAINED or reserved||2026-03-01T12:00:00\n"
        "slurm_load_jobs: warning of some site\n"
    )
    assert rows["7"].state == "PENDING"
    assert rows["7"].start is None
    assert rows["8"].nodes == ("node01", "node02", "node04")
    assert rows["9"].reason == "Nodes required for job are DOWN, DRAINED or reserved"
    assert set(rows) == {"7", "8", "9"}


@pytest.mark.parametrize(
    ("output", "identity"),
    [("42\n", "42"), ("42;main\n", "42;main"), ("Welcome to the cluster\n42\n", "42"), ("", None), ("error\n", None)],
)
def test_the_id_that_sbatch_prints(output: str, identity: str | None) -> None:
    assert parse_submitted(output) == identity


def test_a_job_that_slurm_forgot_is_told_from_a_slurm_that_does_not_answer() -> None:
    assert is_unknown_job("slurm_load_jobs error: Invalid job id specified")
    assert not is_unknown_job("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")


STEP_LOG = """\
hello
srun: Job 812 step creation temporarily disabled, retrying (Requested nodes are busy)
srun: Job 812 step creation still disabled, retrying (Requested nodes are busy)
"""


def test_a_step_that_does_not_start_is_told() -> None:
    assert "another step holds the nodes" in (stuck_step(STEP_LOG.splitlines()) or "")
    assert "did not start" in (
        stuck_step(["srun: error: Unable to create step for job 2: Requested nodes are busy"]) or ""
    )
    assert stuck_step(
        ["srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive."]
    )
    assert stuck_step(["srun: cluster configuration lacks support for cpu binding", "all is well"]) is None


def test_a_refusal_says_what_to_do() -> None:
    said = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)"
    assert "limit of your account" in explain_refusal(said)
    assert explain_refusal("sbatch: error: something new") == ""


# squeue(1) and sacct(1), JOB STATE CODES, Slurm 22.05 to 25.11
DOCUMENTED = re.findall(
    r"\w+",
    """
    BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE EXPEDITING FAILED LAUNCH_FAILED NODE_FAIL
    OUT_OF_MEMORY PENDING POWER_UP_NODE PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING
    RECONFIG_FAIL REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT UPDATE_DB
    """,
)


def test_every_documented_state_has_a_meaning_and_new_ones_are_unknown() -> None:
    assert set(SLURM_PHASES) == set(DOCUMENTED)
    assert phase_of("QUANTUM_LEAP") == "unknown"


def test_pending_reasons_are_told_in_words_with_slurms_own() -> None:
    assert reason_in_words("JobHeldUser").startswith("held by its owner")
    assert reason_in_words("(Resources)") == "waiting for nodes to become free (Resources)"
    assert reason_in_words("QOSGrpNodeLimit") == "a limit of the QOS is reached (QOSGrpNodeLimit)"
    assert reason_in_words("AssocMaxJobsLimit") == "a limit of your account is reached (AssocMaxJobsLimit)"
    assert reason_in_words("SomethingNew") == "SomethingNew"
    assert reason_in_words("") == ""


def test_max_array_size_caps_the_largest_index() -> None:
    text = "Configuration data as of 2026-03-01T00:00:00\nMaxArraySize            = 1001\nMaxJobCount  = 10000\n"
    size = parse_max_array_size(text)
    assert size == 1001
    assert array_sizes(1001, max_array_size=size) == (1001,)
    assert array_sizes(2500, max_array_size=size) == (1001, 1001, 498)
    assert array_sizes(0, max_array_size=size) == ()
    assert parse_max_array_size("nothing") is None
    with pytest.raises(ValueError, match="no job arrays"):
        array_sizes(1, max_array_size=0)


def test_the_environment_keeps_what_finds_the_controller_and_nothing_of_an_outer_job() -> None:
    outer = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "main",
        "SLURM_JOB_ID": "200",
        "SLURM_ARRAY_JOB_ID": "90",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
        "SLURM_MEM_PER_CPU": "4000",
        "SLURM_EXPORT_ENV": "NONE",
        "SLURMD_NODENAME": "gpu001",
        "SBATCH_PARTITION": "debug",
        "SQUEUE_FORMAT": "%i",
        "HPCSERVE_NODE": "gpu001",
        "HPCSERVE_SITE": "onebox",
    }
    assert clean_environment(outer) == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "main",
        "HPCSERVE_SITE": "onebox",
    }


def test_the_components_of_a_heterogeneous_job_are_one_job_in_its_first_ones_state() -> None:
    rows = parse_squeue(
        "70+0|RUNNING|None|x1|2026-03-01T09:00:00\n"
        "7+10|RUNNING|None|c1|2026-03-01T10:00:00\n"
        "7+2|CANCELLED|None|b1|2026-03-01T10:00:00\n"
        "7+0|RUNNING|None|a[1-2]|2026-03-01T10:00:00\n"
    )
    row = job_row(rows, "7")
    assert row is not None
    assert (row.id, row.state, row.reason) == ("7", "RUNNING", "None")
    assert row.nodes == ("a1", "a2", "b1", "c1")
    assert job_row(rows, "8") is None


def test_a_heterogeneous_job_waits_for_what_its_last_component_waits_for() -> None:
    rows = parse_squeue("7+0|PENDING|None||2026-03-01T10:00:00\n7+1|PENDING|Resources||2026-03-01T12:00:00\n")
    row = job_row(rows, "7")
    assert row is not None
    assert (row.state, row.reason, row.start) == ("PENDING", "Resources", "2026-03-01T12:00:00")


def test_accounting_of_a_heterogeneous_job_is_its_scripts() -> None:
    text = (
        "JobID|State|ExitCode|NodeList|Start\n7+0|FAILED|3:0|a1|x\n7+0.batch|FAILED|3:0|a1|x\n"
        "7+0.0|COMPLETED|0:0|a1|x\n7+1|COMPLETED|0:0|b1|x\n7+1.0|COMPLETED|0:0|b1|x\n"
    )
    row = job_row(parse_sacct(text), "7")
    assert row is not None
    assert (row.state, row.exit_code, row.nodes) == ("FAILED", 3, ("a1", "b1"))
