"""`#SBATCH` lines: what sbatch reads from them, and what is refused."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.errors import PlacementError
from hpcserve.nouns import Service, SlurmDialect
from hpcserve.render import asked_options, directive_lines, with_options
from hpcserve.render.directives import quoted_option
from tests.golden.cases import case

DIRECTORY = "/shared/jobs/smollm2-1"
values = st.text(alphabet=st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=60)


def as_sbatch_reads(line: str) -> str:
    """The rules of sbatch's `_get_argument`: quotes of both kinds, a backslash everywhere, `#` ends the line."""
    argument, quote, escaped = "", "", False
    for mark in line:
        if escaped:
            argument, escaped = argument + mark, False
        elif mark == "\\":
            escaped = True
        elif quote:
            if mark == quote:
                quote = ""
            else:
                argument += mark
        elif mark in "\"'":
            quote = mark
        elif mark == "#" or mark.isspace():
            break
        else:
            argument += mark
    assert not quote
    return argument


@given(values)
def test_sbatch_reads_every_value_back_unchanged(value: str) -> None:
    assert as_sbatch_reads(quoted_option(f"--account={value}")) == f"--account={value}"


@pytest.mark.parametrize("mark", ["\n", "\r", "\0"])
def test_a_line_end_in_a_directive_is_refused(mark: str) -> None:
    with pytest.raises(PlacementError, match="line end"):
        quoted_option(f"--account=a{mark}#SBATCH --uid=0")


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("--nodelist=" + ",".join(f"node{number:05}" for number in range(2000)), "use fewer nodes"),
        ("--exclude=" + ",".join(f"node{number:05}" for number in range(2000)), "too small"),
        ("--account=" + "a" * 9000, "shorter value"),
    ],
)
def test_a_value_that_sbatch_would_cut_is_refused(option: str, remedy: str) -> None:
    with pytest.raises(PlacementError, match="8000") as refused:
        quoted_option(option)
    assert remedy in refused.value.remedy


def changed(
    name: str, *, directory: str = DIRECTORY, dialect: SlurmDialect | None = None, **service: object
) -> list[str]:
    found = case(name)
    site = found.site if dialect is None else found.site.model_copy(update={"slurm": dialect})
    wanted: Service = found.service.model_copy(update=service)
    return [
        as_sbatch_reads(line)
        for line in directive_lines(plan=found.plan, site=site, service=wanted, directory=directory)
    ]


def test_site_directives_come_last_and_verbatim() -> None:
    dialect = SlurmDialect(
        gpu_request="none", exclusive=False, switches_option=False, directives=("--qos=gpu", '--comment="a b"')
    )
    found = case("onebox.smollm2")
    site = found.site.model_copy(update={"slurm": dialect})
    lines = directive_lines(plan=found.plan, site=site, service=found.service, directory=DIRECTORY)
    assert lines[-2:] == ("--qos=gpu", '--comment="a b"')
    assert not [line for line in lines if "gres" in line or "switches" in line]


def test_what_slurm_is_asked_for_are_the_options_that_decide_on_nodes() -> None:
    found = case("h100-ib.llama")
    assert asked_options(plan=found.plan, site=found.site, service=found.service) == (
        *("--partition=gpu", "--account=lab's account", "--time=1-00:00:00", "--nodes=2", "--switches=1"),
        *("--gres=gpu:8", "--exclusive", "--mem=0", "--ntasks-per-node=1", "--cpus-per-task=96"),
    )
    assert found.site.slurm is not None
    own = found.site.slurm.model_copy(update={"directives": ("--qos=gpu --signal=USR1", "--comment=it's")})
    site = found.site.model_copy(update={"slurm": own})
    asked = with_options(found.plan, site=site, service=found.service).ask.options
    assert asked[-2:] == ("--qos=gpu", "--comment=it's")


def test_whole_nodes_are_asked_for_with_all_their_memory() -> None:
    assert {"--exclusive", "--mem=0", "--cpus-per-task=96"} <= set(changed("h100-ib.llama"))


def test_a_part_of_a_node_gets_the_cores_of_its_gpus() -> None:
    dialect = SlurmDialect(gpu_request="gpus-per-node", exclusive=False, switches_option=False)
    lines = changed("h100-ib.llama", dialect=dialect)
    assert "--gpus-per-node=8" in lines
    assert "--exclusive" not in lines


def with_site(name: str, *, gres: str | None = None, spares: int = 0, **partition: object) -> list[str]:
    """The directives of a case whose partitions and GPUs are changed."""
    found = case(name)
    site = found.site.model_copy(
        update={
            "partitions": {key: one.model_copy(update=partition) for key, one in found.site.partitions.items()},
            "node_types": {
                key: one.model_copy(update={"gpu": one.gpu.model_copy(update={"gres": gres})})
                for key, one in found.site.node_types.items()
            },
        }
    )
    wanted = found.service.model_copy(update={"spares": spares})
    return list(directive_lines(plan=found.plan, site=site, service=wanted, directory=DIRECTORY))


@pytest.mark.parametrize(("name", "exclusive"), [("h100-ib.llama", False), ("onebox.smollm2", True)])
def test_a_partition_says_for_itself_whether_whole_nodes_are_asked_for(name: str, exclusive: bool) -> None:
    assert ("--exclusive" in with_site(name)) is not exclusive
    assert ("--exclusive" in with_site(name, exclusive=exclusive)) is exclusive


def test_gpus_are_asked_for_by_the_type_that_gres_has_for_them() -> None:
    assert "--gres=gpu:8" in with_site("h100-ib.llama")
    assert "--gres=gpu:h100:8" in with_site("h100-ib.llama", gres="h100")


def test_more_nodes_than_a_partition_gives_are_refused_before_sbatch_is_asked() -> None:
    nodes = case("h100-ib.llama").plan.ask.nodes
    assert f"--nodes={nodes}" in with_site("h100-ib.llama", max_nodes=nodes)
    with pytest.raises(PlacementError, match=f"{nodes + 1} nodes, and partition gpu gives a job {nodes} at most"):
        with_site("h100-ib.llama", max_nodes=nodes, spares=1)


def test_a_percent_sign_in_the_path_is_no_pattern() -> None:
    assert "--output=/j/100%%j/smollm2-1/logs/slurm.out" in changed("onebox.smollm2", directory="/j/100%j/smollm2-1")


def test_a_path_that_output_cannot_carry_is_refused() -> None:
    with pytest.raises(PlacementError, match="backslash"):
        changed("onebox.smollm2", directory="/j/a\\b/smollm2-1")


@pytest.mark.parametrize(("time", "fits"), [("0:02:59", False), ("0:03:00", True), ("1-00:00:00", True)])
def test_a_time_limit_that_leaves_no_time_to_serve_is_refused(time: str, fits: bool) -> None:
    if fits:
        assert f"--time={time}" in changed("onebox.smollm2", time=time)
    else:
        with pytest.raises(PlacementError, match="no time to serve"):
            changed("onebox.smollm2", time=time)


def test_directives_stand_right_after_the_shebang_with_plain_line_ends() -> None:
    for name in ("onebox.smollm2", "h100-ib.llama"):
        job = case(name).job
        text = job.file("job.sbatch").text
        lines = text.split("\n")
        assert "\r" not in text
        assert lines[0] == "#!/bin/bash"
        assert lines[1 : 1 + len(job.directives)] == [f"#SBATCH {line}" for line in job.directives]
        assert not [line for line in lines[1 + len(job.directives) :] if line.startswith("#SBATCH")]


@pytest.mark.real
@pytest.mark.whole_cluster
def test_the_real_sbatch_takes_the_script_and_reads_the_names(tmp_path: Path) -> None:
    nasty = tmp_path / "a b'\"$HOME`id`%j é#"
    (nasty / "logs").mkdir(parents=True)
    found = case("onebox.smollm2")
    lines = directive_lines(plan=found.plan, site=found.site, service=found.service, directory=str(nasty))
    head = "\n".join(f"#SBATCH {line}" for line in lines)
    script = tmp_path / "x.sbatch"
    script.write_text(f"#!/bin/bash\n{head}\necho here\n", encoding="utf-8")
    subprocess.run(["sbatch", "--wait", str(script)], check=True, capture_output=True, timeout=100)
    assert (nasty / "logs" / "slurm.out").read_text() == "here\n"


def test_a_plan_over_two_partitions_is_a_job_of_two_components() -> None:
    lines = changed("mixed.llama8b")
    first, second = lines[: lines.index("hetjob")], lines[lines.index("hetjob") + 1 :]
    both = {"--job-name=smollm2-1", "--account=lab's account", "--time=1-00:00:00", "--no-kill", "--qos=serve"}
    assert both <= set(first)
    assert both <= set(second)
    assert {"--partition=fast", "--nodes=2", "--gres=gpu:h100:8", "--exclusive", "--cpus-per-task=96"} <= set(first)
    assert {"--partition=wide", "--nodes=4", "--gres=gpu:a100:2", "--switches=2", "--cpus-per-task=32"} <= set(second)
    assert {"--exclusive", "--mem=0"}.isdisjoint(second)
    of_the_script = {"--output=/shared/jobs/smollm2-1/logs/slurm.out", "--open-mode=append", "--signal=B:TERM@60"}
    assert of_the_script <= set(first)
    assert of_the_script.isdisjoint(second)


def test_the_most_nodes_are_each_partitions_own() -> None:
    with pytest.raises(PlacementError, match="5 nodes, and partition fast gives a job 4 at most"):
        changed("mixed.llama8b", spares=4)
