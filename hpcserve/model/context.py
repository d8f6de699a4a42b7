"""The longest context, by vLLM's rule."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpcserve.model.config import Config

__all__ = ["read_context"]

# The smallest of these counts (vLLM's `derive_max_model_len_and_key`).
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
)

# Rope scalings that leave the positions as they are, and those that multiply them by `factor`; the rule of vLLM's
# ModelConfig (`_get_and_verify_max_len`).
_ROPE_KEEPS = frozenset({"default", "llama3", "longrope", "su", "mrope", "proportional"})
_ROPE_STRETCHES = frozenset({"linear", "dynamic", "yarn"})
_LARGEST_FACTOR = 4096


def read_context(config: Config) -> int:
    """Longest context in tokens; mistakes are noted in `config`."""
    said = [name for name in _POSITIONS if config.get(name) is not None] or [_POSITIONS[0]]
    positions = min(config.count(name) for name in said)
    if str(config.root.get("model_type")).startswith("gemma3"):
        return positions  # they are scaled already, as vLLM notes
    return max((_stretched(config, positions, rope) for rope in _ropes(config)), default=positions)


def _ropes(config: Config) -> Sequence[Mapping[str, Any]]:
    """What the config says of rope: once, or once for each kind of layer."""
    rope = config.get("rope_scaling")
    if not isinstance(rope, dict):
        rope = config.get("rope_parameters")
    if not isinstance(rope, dict):
        return ()
    inner = [one for one in rope.values() if isinstance(one, dict)]
    return inner if inner and len(inner) == len(rope) else (rope,)


def _stretched(config: Config, positions: int, rope: Mapping[str, Any]) -> int:
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind in _ROPE_KEEPS:
        return positions
    factor = rope.get("factor")
    if kind not in _ROPE_STRETCHES or not isinstance(factor, int | float) or not 1 <= factor <= _LARGEST_FACTOR:
        config.refuse("rope_scaling", f"`rope_scaling` of type {kind}", wanted="one whose factor is known was wanted")
        return positions
    original = rope.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(original, int) and 0 < original <= positions * factor:
        positions = original
    return int(positions * factor)
