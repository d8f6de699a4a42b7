"""Engine arguments and variables that a service may not set, because the plan, the site or the job sets them."""

from collections.abc import Iterator, Mapping

from hpcserve.engines.words import option_name
from hpcserve.nouns import Service
from hpcserve.wire import Complaint

__all__ = ["reserved_complaints"]

# What placement, the site or the job decides; a second value of a user's would make the plan untrue.
_RESERVED_OPTIONS = {
    "--host": "the worker's address follows from the site's control network",
    "--port": "ports are reserved on the node",
    "--uds": "the router reaches workers by TCP",
    "--model": "the service's `model` says it",
    "--served-model-name": "the service's `served_name` says it",
    "--tensor-parallel-size": "the pool's `tensor_parallel` says it",
    "-tp": "the pool's `tensor_parallel` says it",
    "--pipeline-parallel-size": "the pool's `pipeline_parallel` says it",
    "-pp": "the pool's `pipeline_parallel` says it",
    "--kv-transfer-config": "it follows from the worker's role",
    "--kv-events-config": "the service's `router.kv` says it",
    "--api-key": "the job makes its own key, and argv is visible to everyone on the node",
}
_RESERVED_VARIABLES = {
    "VLLM_API_KEY": "the job makes its own key",
    "VLLM_HOST_IP": "it follows from the site's control network",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "it follows from the site's data network",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "ports are reserved on the node",
    "UCX_NET_DEVICES": "it follows from the NICs that the worker was placed on",
    "CUDA_VISIBLE_DEVICES": "it follows from the GPUs that the worker was placed on",
}


def reserved_complaints(service: Service, options: Mapping[str, str] | None = None) -> tuple[Complaint, ...]:
    """Everything in the service's args and env that hpcserve sets itself; `options` are an engine's further ones."""
    reserved = {**_RESERVED_OPTIONS, **(options or {})}
    return tuple(_complaints(service, reserved))


def _complaints(service: Service, reserved: Mapping[str, str]) -> Iterator[Complaint]:
    parts: list[tuple[tuple[str | int, ...], tuple[str, ...], Mapping[str, str]]] = [((), service.args, service.env)]
    parts += [(("pools", index), pool.args, pool.env) for index, pool in enumerate(service.pools)]
    for path, args, env in parts:
        for index, word in enumerate(args):
            why = reserved.get(option_name(word) or word)
            if why is not None:
                yield Complaint(path=(*path, "args", index), found=word, wanted=why, remedy="leave it out")
        for name in env:
            why = _RESERVED_VARIABLES.get(name)
            if why is not None:
                yield Complaint(path=(*path, "env", name), found=name, wanted=why, remedy="leave it out", at_key=True)
