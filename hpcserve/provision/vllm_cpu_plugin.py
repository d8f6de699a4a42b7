"""vLLM general plugin, installed in the vLLM CPU environment: NIXL workers share cores, old CPUs are quick.

In: vLLM calls `register` once in each of its processes. Out: nothing. May touch: classes of nixl and vLLM, os.environ.
It is copied into that environment as the module `hpcserve_vllm_cpu` and imports nothing of hpcserve.
"""

import os
from typing import Any

__all__ = ["register"]

_DELAY_VARIABLE = "HPCSERVE_NIXL_PROGRESS_DELAY_US"
# With 0 the progress thread polls without pause and keeps one core busy, idle or not: 100 % of a core for an agent that
# does nothing, 3 % with 1 ms (measured with nixl-cu12 1.5.1). A wait ends early when a descriptor has news.
_DEFAULT_DELAY_US = 1000


def register() -> None:
    """Slow NIXL's progress thread down, leave cores unpinned, and multiply in float32 where the CPU has no AVX-512.

    The progress thread waits HPCSERVE_NIXL_PROGRESS_DELAY_US (default 1000) a turn. Raises ValueError where
    that is no whole number of microseconds, 0 or more: the engine then does not start.
    """
    # vLLM sets this before its own import of nixl (vllm/distributed/nixl_utils.py); importing it first must keep it.
    os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")
    _slow_progress_thread(_delay_us(os.environ.get(_DELAY_VARIABLE, str(_DEFAULT_DELAY_US))))
    _leave_cores_unpinned()
    _multiply_in_float32()


def _delay_us(text: str) -> int:
    """Microseconds written in `text`."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{_DELAY_VARIABLE}={text!r}: a whole number of microseconds, 0 or more, was wanted")
    return int(text)


def _slow_progress_thread(delay_us: int) -> None:
    """Make every NIXL agent created from now on wait up to `delay_us` per turn; nixl/_api.py hard-codes 0."""
    from nixl import _bindings  # noqa: PLC0415  # only after the environment variable above is set

    create_agent = getattr(_bindings.nixlAgent, "hpcserve_original", _bindings.nixlAgent)

    def create_patient_agent(name: str, config: Any) -> Any:
        config.pthrDelay = delay_us
        return create_agent(name, config)

    create_patient_agent.hpcserve_original = create_agent  # type: ignore[attr-defined]  # found again on a second call
    _bindings.nixlAgent = create_patient_agent


def _leave_cores_unpinned() -> None:
    """Make vLLM's NIXL worker find no core to pin itself to.

    On CPU it binds its main thread to the last core of each NUMA node; several workers of one host then share that one
    core while the others idle.
    """
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415  # heavy, and only vLLM's processes have it

    def no_reserved_cores(_platform: type) -> list[list[int]]:
        return []

    CpuPlatform.discover_numa_topology = classmethod(no_reserved_cores)


def _multiply_in_float32() -> None:
    """Make linear layers keep a float32 copy of 16-bit weights where PyTorch's kernels reach AVX2 only.

    oneDNN has no 16-bit kernels there and PyTorch multiplies one dot product at a time: 8 GFLOP/s on one core of an AMD
    EPYC with AVX2 where float32 reaches 55 (PyTorch 2.13). Activations and the KV cache keep their type.
    """
    import torch  # noqa: PLC0415  # heavy, and only vLLM's processes have it

    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        return
    from vllm.model_executor.layers import utils  # noqa: PLC0415

    dispatch = getattr(utils.dispatch_cpu_unquantized_gemm, "hpcserve_original", utils.dispatch_cpu_unquantized_gemm)

    def dispatch_wide(layer: Any, remove_weight: bool) -> None:  # vLLM's signature
        weight = layer.weight
        narrow = weight.ndim == 2 and not weight.is_meta and weight.dtype in {torch.bfloat16, torch.float16}  # noqa: PLR2004
        wide = weight.detach().float() if narrow else None
        dispatch(layer, remove_weight)
        if wide is None:
            return

        def multiply(x: Any, _weight: Any, bias: Any) -> Any:
            bias = None if bias is None else bias.float()
            return torch.nn.functional.linear(x.float(), wide, bias).to(x.dtype)

        layer.cpu_linear = multiply

    dispatch_wide.hpcserve_original = dispatch  # type: ignore[attr-defined]  # found again on a second call
    utils.dispatch_cpu_unquantized_gemm = dispatch_wide
