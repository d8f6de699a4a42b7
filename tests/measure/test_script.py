"""The script of a measuring job, whole, and what is refused before there is one."""

import os
import subprocess
from pathlib import Path

import pytest

from hpcserve.errors import PlacementError
from hpcserve.measure import plan_errand, time_limit_s
from hpcserve.nouns import Job, Runtime, RuntimeKind, Site
from hpcserve.render import MEASURE_TEMPLATE_NAMES, render_measurement
from tests.measure.grounds import fat_tree, nodes_of, shipped

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
TEMPLATES = {name: (ROOT / "job_templates" / name).read_text(encoding="utf-8") for name in MEASURE_TEMPLATE_NAMES}


def job(site: Site, *, directory: str = "/shared/jobs/measure-1", account: str | None = None) -> Job:
    errand = plan_errand(site, nodes=nodes_of(site), seconds=1.5)
    return render_measurement(
        about="what the links really carry",
        site=site,
        nodes=errand.nodes,
        ranks_per_node=errand.places,
        limit_s=time_limit_s(errand),
        partition=next(iter(site.partitions)),
        account=account,
        texts={},
        templates=TEMPLATES,
        directory=directory,
        python_folder="/opt/hpcserve/bin",
    )


@pytest.mark.parametrize(
    ("name", "site"),
    [("onebox", shipped("onebox")), ("tree", fat_tree(leaves=2, nodes_per_leaf=2, nics=2))],
)
def test_the_script_is_as_it_was_reviewed(name: str, site: Site) -> None:
    made = job(site, account="project-7").file("measure.sbatch").text
    path = GOLDEN / f"{name}.measure.sbatch"
    if os.environ.get("HPCSERVE_UPDATE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8")
    done = subprocess.run(["bash", "-n"], input=made, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_directory_with_odd_characters_is_quoted() -> None:
    text = job(shipped("onebox"), directory="/shared/it's 5% $HOME/m-1").file("measure.sbatch").text
    assert '#SBATCH "--output=/shared/it\'s 5%% $HOME/m-1/logs/slurm.out"' in text
    assert "cd -- '/shared/it'\"'\"'s 5% $HOME/m-1' || exit 1" in text


def test_no_slurm_no_mpi_type_and_no_engine_are_refused_in_words() -> None:
    site = shipped("onebox")
    assert site.slurm is not None
    with pytest.raises(PlacementError, match="no Slurm"):
        job(site.model_copy(update={"slurm": None}))
    with pytest.raises(PlacementError, match="srun --mpi=list"):
        job(site.model_copy(update={"slurm": site.slurm.model_copy(update={"mpi": None})}))
    with pytest.raises(PlacementError, match="runtime `vllm`"):
        job(site.model_copy(update={"runtimes": {"hpcserve": Runtime(kind=RuntimeKind.NONE)}}))
    pyxis = Runtime(kind=RuntimeKind.PYXIS, path="/images/vllm.sqsh")
    with pytest.raises(PlacementError, match="Pyxis"):
        job(site.model_copy(update={"runtimes": {"hpcserve": Runtime(kind=RuntimeKind.NONE), "vllm": pyxis}}))
