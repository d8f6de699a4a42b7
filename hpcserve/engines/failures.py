"""What went wrong with a worker, in words, from the last lines of its log."""

import re
from collections.abc import Sequence

__all__ = ["explain_failure"]

# Each: what to find in one line, and the sentence it stands for; groups of the pattern fill it. The first that is found
# anywhere wins, so causes stand before what they cause. Texts: glibc, torch 2.13, vllm 0.32, nixl 1.5, ucx 1.23.
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), sentence)
    for pattern, sentence in (
        (
            r"Address already in use(?: \(addr='(?P<a>[^']+)'\))?",
            "a port of this worker is in use by another process of the node; it is started again on other ports",
        ),
        (
            r"(?P<a>CUDA out of memory|HIP out of memory|OutOfMemoryError|No available memory for the cache blocks)",
            "the GPU's memory is too small ({a}); lower --max-model-len, or raise tensor_parallel",
        ),
        (
            r"(?P<a>Free memory on device .* is less than desired GPU memory utilization[^.]*)",
            "{a}: another process holds the GPU's memory; look at nvidia-smi on the node",
        ),
        (
            r"larger than the available KV cache memory|max seq len .* is larger than the maximum number of tokens",
            "the KV cache is smaller than one longest request; lower --max-model-len or give the KV cache more memory",
        ),
        (
            r"(?P<a>DefaultCPUAllocator: can't allocate memory|Cannot allocate memory|MemoryError|oom[-_ ]kill)",
            "the node's memory is too small ({a}); ask for more of it, or lower --kv-cache-memory-bytes",
        ),
        (
            r"no kernel image is available for execution on the device",
            "this vLLM (or torch) was not built for the node's GPU; install a build that lists its compute capability",
        ),
        (
            r"CUDA driver version is insufficient|forward compatibility was attempted|Found no NVIDIA driver",
            "the node's NVIDIA driver is too old for the engine's CUDA; use an engine build for the driver's CUDA",
        ),
        (
            r"No common block size for (?P<a>\d+)",
            "no attention backend takes KV blocks of {a} tokens; on CPU --block-size must be a multiple of 32",
        ),
        (
            r"Invalid repository ID or local directory|Can't load the configuration of|LocalEntryNotFoundError",
            "the model is not where the service says, or has no config.json; `hpcserve model fetch` brings it",
        ),
        (
            r"No such file or directory.*safetensors|Cannot find any model weights",
            "the model's directory lacks weight files; fetch the model again",
        ),
        (
            r"network device '?(?P<a>[\w.:-]+)'? is not available",
            "UCX does not find the network device {a} on this node; correct the NIC names in the site file",
        ),
        (
            r"(?P<a>NIXL_ERR_\w+)",
            "NIXL failed with {a}: look in the site file for a UCX_TLS without a network transport, or wrong NICs",
        ),
        (
            r"NIXL is not available|No module named 'nixl'",
            "the engine's environment has no nixl; install it there, or serve aggregated",
        ),
        (
            r"unrecognized arguments?: (?P<a>.+)",
            "the installed engine does not know the argument {a}; correct args in the service file",
        ),
        (
            r"(?P<a>\S+: (?:command not found|No such file or directory))$",
            "{a}: the engine's runtime in the site file does not lead to it",
        ),
    )
)


def explain_failure(log_tail: Sequence[str]) -> str | None:
    """One sentence on why the worker that wrote these lines failed; None where nothing known is in them."""
    for pattern, sentence in _CAUSES:
        for line in reversed(log_tail):
            found = pattern.search(line)
            if found:
                return sentence.format(**{name: (text or "").strip() for name, text in found.groupdict().items()})
    return None
