"""The order of the granted nodes: the scheduler's, head first, and never a guess."""

import pytest

from hpcserve.agent.head import granted_names
from hpcserve.errors import ServiceError
from tests.synthetic import plan

ASKED = plan()


def test_slurms_list_is_expanded_in_its_order_with_the_head_first() -> None:
    environment = {"SLURM_JOB_NODELIST": "gpu[09-11],gpu02"}
    assert granted_names(ASKED, environment, head="gpu09", count=4) == ("gpu09", "gpu10", "gpu11", "gpu02")
    assert granted_names(ASKED, environment, head="gpu02", count=4) == ("gpu02", "gpu09", "gpu10", "gpu11")


def test_without_slurm_the_nodes_are_the_plans() -> None:
    names = ASKED.nodes
    assert granted_names(ASKED, {}, head=names[0], count=len(names)) == names


@pytest.mark.parametrize(("head", "count"), [("gpu99", 3), ("gpu09", 2)])
def test_a_list_without_the_head_or_of_another_length_is_refused(head: str, count: int) -> None:
    with pytest.raises(ServiceError, match="gpu10"):
        granted_names(ASKED, {"SLURM_JOB_NODELIST": "gpu[09-11]"}, head=head, count=count)


def test_the_nodes_of_a_job_of_several_components_are_those_of_all() -> None:
    asked = ASKED.model_copy(update={"further_asks": (ASKED.ask.model_copy(update={"partition": "b"}),)})
    environment = {
        "SLURM_STEP_NODELIST": "gpu[09-10]",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[09-10]",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "cpu[1-2]",
    }
    assert granted_names(asked, environment, head="gpu09", count=4) == ("gpu09", "gpu10", "cpu1", "cpu2")
