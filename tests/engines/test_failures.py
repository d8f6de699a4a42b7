import pytest

from hpcserve.engines import explain_failure


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "zmq.error.ZMQError: Address already in use (addr='tcp://10.20.0.3:21001')",
            "a port of this worker is in use",
        ),
        ("OSError: [Errno 98] Address already in use", "a port of this worker is in use"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "GPU's memory is too small"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "the node's memory is too small"),
        (
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
            "lower --kv-cache-memory",
        ),
        ("CUDA error: no kernel image is available for execution on the device", "was not built for the node's GPU"),
        ("OSError: Can't load the configuration of '/models/none'.", "the model is not where the service says"),
        ("nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND", "NIXL failed with NIXL_ERR_BACKEND"),
        ("ucp_context.c:853  UCX  WARN network device 'mlx5_9:1' is not available", "network device mlx5_9:1"),
        ("ValueError: No common block size for 16 (CPU_ATTN: [MultipleOf(32)])", "KV blocks of 16 tokens"),
        ("vllm: error: unrecognized arguments: --enforce-eagre", "does not know the argument --enforce-eagre"),
        ("workers/prefill-0.sh: line 9: vllm: command not found", "runtime in the site file"),
        (
            "ValueError: To serve at least one request, 4.0 GiB is larger than the available KV cache memory",
            "lower --max-",
        ),
    ],
)
def test_known_causes(line: str, words: str) -> None:
    found = explain_failure(["INFO loading", line, "INFO engine core shut down"])
    assert found is not None
    assert words in found


def test_cause_wins_over_what_follows_from_it() -> None:
    tail = ["network device 'mlx5_9:1' is not available", "nixlBackendError: NIXL_ERR_BACKEND"]
    found = explain_failure(tail)
    assert found is not None
    assert "mlx5_9:1" in found


def test_unknown_text_is_not_explained() -> None:
    assert explain_failure([]) is None
    assert explain_failure(["INFO: ready", "Traceback (most recent call last):"]) is None
