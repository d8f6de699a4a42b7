"""A model's Hugging Face `config.json` -> `ModelShape`.

In: the text of the file. Out: heads, context, KV bytes per token, or a refusal that names the keys. Touches: nothing.
"""

from hpcserve.model.shape import shape_of

__all__ = ["shape_of"]
