"""Every module imports alone, with nothing of hpcserve above it imported before, and warnings as errors."""

import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hpcserve

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(hpcserve.__path__, "hpcserve.")
    if not module.name.endswith("__main__")
)


LAYERS = tuple(
    re.findall(r"\w+", layer)
    for contract in tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    if contract["type"] == "layers"
    for layer in reversed(contract["layers"])
)
"""Rooms from the bottom of the import contract up: once all modules of a layer import alone, they are kept."""

PROGRAM = """
import importlib, os, sys, warnings
warnings.simplefilter("error")
failed = 0
for name in sys.argv[1:]:
    if name.startswith("+"):
        importlib.import_module(name[1:])
        continue
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {error!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    failed |= os.waitpid(child, 0)[1]
sys.exit(1 if failed else 0)
"""


@pytest.mark.timeout(400)
def test_each_module_imports_alone() -> None:
    order = ["+asyncio", "+pydantic", "+click", "+jinja2", "+pandas", "+rich.console"]
    for layer in LAYERS:
        order += [name for name in MODULES if name.split(".")[1] in layer]
        order += [f"+hpcserve.{room}" for room in layer if f"hpcserve.{room}" in MODULES]
    assert {name.removeprefix("+") for name in order} > set(MODULES)
    done = subprocess.run([sys.executable, "-c", PROGRAM, *order], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
