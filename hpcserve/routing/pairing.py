"""Whether two engines may hand KV to one another."""

from hpcserve.nouns import Endpoint

__all__ = ["Facts", "facts_of", "mismatch"]

_EQUAL = (
    "model",
    "engine",
    "engine version",
    "handoff",
    "connector",
    "connector version",
    "block_size",
    "kv_dtype",
)
Facts = tuple[tuple[str | int, ...], int]
"""What must be equal, in the order of `_EQUAL`, and the tensor parallelism, of which one must divide the other."""


def facts_of(endpoint: Endpoint) -> Facts | None:
    """What pairs are judged by; None where there is no KV connector. Workers of one pool have the same."""
    handoff = endpoint.handoff
    if handoff is None:
        return None
    equal = (
        endpoint.model,
        endpoint.engine,
        endpoint.engine_version,
        handoff.kind,
        handoff.connector,
        handoff.connector_version,
        handoff.block_size,
        handoff.kv_dtype,
    )
    return equal, handoff.tensor_parallel


def mismatch(prefill: Endpoint, decode: Endpoint) -> str:
    """Why this decode worker must not pull KV from this prefill worker, in words; empty where it may.

    Engines check little of this themselves: with differing block sizes vLLM 0.32 answers 200 with wrong tokens.
    """
    ours, theirs = facts_of(prefill), facts_of(decode)
    if ours is None or theirs is None:
        silent = prefill.id if ours is None else decode.id
        return f"{silent} has no KV connector"
    for name, here, there in zip(_EQUAL, ours[0], theirs[0], strict=True):
        if here != there:
            return f"{name}: {prefill.id} has {here}, {decode.id} has {there}"
    smaller, larger = sorted((ours[1], theirs[1]))
    if larger % smaller:
        return f"tensor_parallel: {prefill.id} has {ours[1]}, {decode.id} has {theirs[1]}; one must divide the other"
    return ""
