"""Into how many ranks a model can be cut, which numbers can hand KV to each other, and what is in the way."""

from dataclasses import dataclass

from hpcserve.model.layout import KvLayout
from hpcserve.model.shape import groups_in
from hpcserve.nouns import ModelShape

__all__ = ["Cut", "cut_of", "pipeline_obstacle", "tensor_parallel_pairs", "tensor_parallel_sizes"]

_MOST_RANKS = 64  # no tensor-parallel group that vLLM documents is larger


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What tensor parallelism divides in a model.

    The rules are vLLM's: ranks divide the attention heads and a dense MLP; KV heads are divided, or copied to the same
    number of ranks each; heads of a state are divided (`verify_with_parallel_config`, `QKVParallelLinear`, `divide`).
    What else an engine asks of a quantised or expert layer is not in the config's keys and not judged.
    """

    attention_heads: int
    intermediate_size: int | None
    kv_heads: frozenset[int]
    """Of layers with keys and values: numbers that occur."""
    state_heads: frozenset[int]
    """Of layers with a state: numbers that occur."""

    def obstacle(self, ranks: int) -> str | None:
        """Why `ranks` ranks cannot be, as `does not divide the 9 attention heads`; None where they can."""
        if self.attention_heads % ranks:
            return f"does not divide the {self.attention_heads} attention heads"
        if self.intermediate_size is not None and self.intermediate_size % ranks:
            return f"does not divide the MLP's width, {self.intermediate_size}"
        for heads in sorted(self.kv_heads):
            if max(ranks, heads) % min(ranks, heads):
                return f"is neither a divisor nor a multiple of the {heads} KV heads"
        for heads in sorted(self.state_heads):
            if heads % ranks:
                return f"does not divide the {heads} heads of a state"
        return None

    def sizes(self) -> tuple[int, ...]:
        """Numbers of ranks that can be, up to 64."""
        return tuple(ranks for ranks in range(1, _MOST_RANKS + 1) if self.obstacle(ranks) is None)

    def pair_obstacle(self, prefill: int, decode: int) -> str | None:
        """Why so many ranks of prefill cannot hand KV to so many of decode, as the end of a sentence; None: they can.

        vLLM's NIXL connector: one is a multiple of the other, and no KV head is copied. Latent vectors are copies on
        every rank and can be read from any. States are cut as the ranks are: equal numbers only.
        """
        if prefill == decode:
            return None
        if max(prefill, decode) % min(prefill, decode):
            return "neither is a multiple of the other"
        if self.state_heads:
            return "its layers without attention keep states, which are cut as the ranks are"
        if self.kv_heads and max(prefill, decode) > min(self.kv_heads):
            return f"it has only {min(self.kv_heads)} KV heads"
        return None


def cut_of(model: KvLayout | ModelShape) -> Cut:
    """What can be divided in a model, from its layers."""
    kept = model.layers if isinstance(model, KvLayout) else groups_in(model)
    return Cut(
        attention_heads=model.attention_heads,
        intermediate_size=model.intermediate_size,
        kv_heads=frozenset(one.kv_heads for one in kept if one.kv_heads and one.kind != "latent_attention"),
        state_heads=frozenset(one.state.heads for one in kept if one.state is not None),
    )


def pipeline_obstacle(shape: ModelShape, stages: int) -> str | None:
    """Why a model cannot be cut into so many stages, as `is more than its 30 layers`; None where it can.

    vLLM's rule: each stage has a layer at least (`get_pp_indices`). What one stage keeps must be known, too.
    """
    if stages > shape.layers:
        return f"is more than its {shape.layers} layers"
    if stages > 1 and len(shape.groups) > 1 and len(shape.group_of_layer) != shape.layers:
        return "cannot be judged: nobody knows which of its layers keep what"
    return None


def tensor_parallel_sizes(layout: KvLayout) -> tuple[int, ...]:
    """Tensor-parallel sizes that vLLM accepts, up to 64; `Cut` has the rules."""
    return cut_of(layout).sizes()


def tensor_parallel_pairs(layout: KvLayout) -> tuple[tuple[int, int], ...]:
    """Which sizes of prefill and decode, in this order, can hand KV to each other though they differ."""
    cut = cut_of(layout)
    sizes = cut.sizes()
    return tuple(
        (prefill, decode)
        for prefill in sizes
        for decode in sizes
        if prefill != decode and cut.pair_obstacle(prefill, decode) is None
    )
