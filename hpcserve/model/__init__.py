"""A model's Hugging Face `config.json` -> `ModelShape` and the arithmetic behind it.

In: the texts of the files. Out: heads, context, KV bytes per token and per rank, states, legal parallelism, how many
tokens fit, or a refusal that names the keys. Touches: nothing.
"""

from hpcserve.model.explain import explain
from hpcserve.model.facts import facts_of
from hpcserve.model.layout import KvLayout, layout_of
from hpcserve.model.legal import Cut, cut_of, pipeline_obstacle, tensor_parallel_pairs, tensor_parallel_sizes
from hpcserve.model.parallel import Capacity, capacity, largest_stage_bytes, rank_bytes, sequence_bytes, stage_layers
from hpcserve.model.shape import kept_bytes, shape_of, stage_bytes
from hpcserve.model.weights import WeightsCount, count_weights, header_bytes, index_bytes

__all__ = [
    "Capacity",
    "Cut",
    "KvLayout",
    "WeightsCount",
    "capacity",
    "count_weights",
    "cut_of",
    "explain",
    "facts_of",
    "header_bytes",
    "index_bytes",
    "kept_bytes",
    "largest_stage_bytes",
    "layout_of",
    "pipeline_obstacle",
    "rank_bytes",
    "sequence_bytes",
    "shape_of",
    "stage_bytes",
    "stage_layers",
    "tensor_parallel_pairs",
    "tensor_parallel_sizes",
]
