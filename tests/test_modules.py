"""Every module imports alone, in a fresh interpreter, with warnings as errors."""

import pkgutil
import subprocess
import sys

import hpcserve

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(hpcserve.__path__, "hpcserve.")
    if not module.name.endswith("__main__")
)


def test_each_module_imports_alone() -> None:
    program = (
        "import importlib, os, sys, warnings\n"
        "warnings.simplefilter('error')\n"
        "failed = []\n"
        "for name in sys.argv[1:]:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            importlib.import_module(name)\n"
        "        except BaseException as error:\n"
        "            print(f'{name}: {error!r}', file=sys.stderr)\n"
        "            os._exit(1)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        failed.append(name)\n"
        "sys.exit(1 if failed else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *MODULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(MODULES) > 20
