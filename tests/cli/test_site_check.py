"""`hpcserve site check` says what a site describes and what it does not know yet."""

from pathlib import Path

from click.testing import CliRunner

from hpcserve.cli import program
from hpcserve.wire import encode_yaml
from tests.fabric.made import rails, two_sockets


def check(file: Path) -> str:
    done = CliRunner().invoke(program, ["site", "check", str(file)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_unknown_rates_are_listed_with_their_keys_and_why(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(encode_yaml(two_sockets(nic_gb_per_s=None)))
    printed = check(file)
    assert "1 rate is still unknown" in printed
    assert "node_types, box, nics, mlx5_0:1, rate" in printed
    assert "NDR" in printed


def test_a_node_of_a_rail_fabric_is_listed_under_the_leaf_of_each_rail(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(encode_yaml(rails()))
    printed = check(file)
    assert [line.split()[:2] for line in printed.splitlines()[3:]] == [
        [leaf, "2"] for leaf in ("u1r0", "u1r1", "u2r0", "u2r1")
    ]
    assert "unknown" not in printed
