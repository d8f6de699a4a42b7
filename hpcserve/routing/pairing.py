"""Whether two engines may hand KV to one another."""

from hpcserve.nouns import Endpoint

__all__ = ["mismatch"]


def mismatch(prefill: Endpoint, decode: Endpoint) -> str:
    """Why this decode worker must not pull KV from this prefill worker, in words; empty where it may.

    Engines check little of this themselves: with differing block sizes vLLM 0.32 answers 200 with wrong tokens.
    """
    ours, theirs = prefill.handoff, decode.handoff
    if ours is None or theirs is None:
        silent = prefill.id if ours is None else decode.id
        return f"{silent} has no KV connector"
    facts = (
        ("model", prefill.model, decode.model),
        ("engine", prefill.engine, decode.engine),
        ("engine version", prefill.engine_version, decode.engine_version),
        ("handoff", ours.kind, theirs.kind),
        ("connector", ours.connector, theirs.connector),
        ("connector version", ours.connector_version, theirs.connector_version),
        ("block_size", ours.block_size, theirs.block_size),
        ("kv_dtype", ours.kv_dtype, theirs.kv_dtype),
    )
    for name, here, there in facts:
        if here != there:
            return f"{name}: {prefill.id} has {here}, {decode.id} has {there}"
    smaller, larger = sorted((ours.tensor_parallel, theirs.tensor_parallel))
    if larger % smaller:
        return (
            f"tensor_parallel: {prefill.id} has {ours.tensor_parallel}, {decode.id} has {theirs.tensor_parallel}; "
            "one must divide the other"
        )
    return ""
