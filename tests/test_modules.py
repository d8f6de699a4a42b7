"""Every module imports alone, with nothing of hpcserve above it imported before, and warnings as errors."""

import pkgutil
import subprocess
import sys

import hpcserve

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(hpcserve.__path__, "hpcserve.")
    if not module.name.endswith("__main__")
)


FOUNDATION = ("units", "errors", "nouns", "wire")
"""Rooms at the bottom of the import contract: once each of their modules is known to import alone, they are kept."""

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


def test_each_module_imports_alone() -> None:
    lowest = [name for name in MODULES if name.split(".")[1] in FOUNDATION]
    others = [name for name in MODULES if name not in lowest]
    kept_first = ["+asyncio", "+pydantic"]
    kept_then = [f"+hpcserve.{room}" for room in FOUNDATION]
    order = [*kept_first, *lowest, *kept_then, "+click", "+jinja2", "+pandas", "+rich.console", *others]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *order], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(MODULES) > 20
