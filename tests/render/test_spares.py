"""Spare nodes are asked for beside those of the plan."""

from hpcserve.render import directive_lines
from tests.synthetic import plan, service, site


def test_spares_are_more_nodes_under_at_most_one_more_switch() -> None:
    asked = plan()
    asked = asked.model_copy(update={"ask": asked.ask.model_copy(update={"switches": 1, "nodelist": None})})
    dialect = site().slurm
    assert dialect is not None
    where = site().model_copy(update={"slurm": dialect.model_copy(update={"switches_option": True})})

    def options(spares: int) -> set[str]:
        wanted = service().model_copy(update={"spares": spares})
        return set(map(str, directive_lines(plan=asked, site=where, service=wanted, directory="/jobs/x-1")))

    nodes = asked.ask.nodes
    assert {f"--nodes={nodes}", "--switches=1"} <= options(0)
    assert {f"--nodes={nodes + 2}", "--switches=2"} <= options(2)
