"""In what the model computes, and in what its KV is kept: `dtype`, and what a quantisation says of the cache."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from hpcserve.errors import InputError, Mistake
from hpcserve.model.config import Config
from hpcserve.nouns import KvDtype

__all__ = ["model_dtype", "quantised_kv", "state_bytes"]

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_REMEDY = "correct it, or fetch the whole config.json"
_BITS_8, _BITS_4 = 8, 4


def model_dtype(config: Config) -> Literal["bfloat16", "float16"]:
    """What the engine computes in, from `dtype` (`torch_dtype` before Transformers 4.56) of the file or its section.

    vLLM's `auto`: 16-bit types stay; float32, and models that name no type, run in bfloat16 on what has it (a model
    whose weights are float16 stays float16). Two bytes in every case.
    """
    for keys in (config.root, config.keys, config.root.get("vision_config")):
        if not isinstance(keys, dict):
            continue
        for key in ("dtype", "torch_dtype"):
            match keys.get(key):
                case None:
                    continue
                case "float16" | "half":
                    return "float16"
                case "bfloat16":
                    return "bfloat16"
                case "float32" | "float":
                    config.notes.append(f"`{key}` is float32: vLLM serves it in 16 bits, bfloat16 where the GPU has it")
                    return "bfloat16"
                case other:
                    config.refuse(
                        key,
                        f"`{key}` is {json.dumps(other)[:60]}",
                        wanted="bfloat16, float16 or float32 was wanted",
                        remedy=f"set `{key}` in a copy of the config",
                    )
                    return "bfloat16"
    config.notes.append("no `dtype`: vLLM serves the weights' own 16-bit type, or bfloat16")
    return "bfloat16"


def state_bytes(config: Config, *names: str, usual: int | None) -> int:
    """Bytes of one element of a layer's state: what a key of `names` says, else `usual`, else the model's own type."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, str) and value in _STATE_BYTES:
            return _STATE_BYTES[value]
        config.refuse(name, f"`{name}` is {json.dumps(value)[:60]}", wanted="float32, bfloat16 or float16 was wanted")
    return 2 if usual is None else usual


def quantised_kv(config: Config, side_text: str | None, *, side_source: str) -> KvDtype | None:
    """The type that the checkpoint's quantisation gives its KV; None where it gives none: weights alone say nothing.

    vLLM's rule for `--kv-cache-dtype auto`: `quantization_config` of the file, else of the section, else (`side_text`)
    `hf_quant_config.json`; ModelOpt says `kv_cache_quant_algo` or `kv_cache_scheme`, compressed-tensors
    `kv_cache_scheme` (vllm/utils/torch_utils.py, vllm/model_executor/layers/attention/attention.py).
    """
    found = config.root.get("quantization_config")
    if found is None:
        found = config.keys.get("quantization_config")
    if found is None and side_text is not None:
        found = _side_file(side_text, side_source)
    if not isinstance(found, dict):
        if found is not None:
            config.refuse("quantization_config", "`quantization_config` is no object", wanted="an object was wanted")
        return None
    inner = found.get("quantization")
    places = [keys for keys in (inner, found) if isinstance(keys, dict)]
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for keys in places:
            if keys.get(key) is not None:
                return _cache_type(config, key, keys[key])
    return None


def _side_file(text: str, source: str) -> Mapping[str, Any]:
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if isinstance(keys, dict):
        return keys
    mistake = Mistake(
        file=source, line=1, column=1, found="no JSON object", wanted="a quantisation was wanted", remedy=_REMEDY
    )
    raise InputError([mistake])


def _cache_type(config: Config, key: str, value: object) -> KvDtype | None:
    if isinstance(value, dict):
        floating, bits = value.get("type") == "float", value.get("num_bits")
        if floating and bits == _BITS_8:
            return "fp8"
        if floating and bits == _BITS_4:
            return "nvfp4"
    elif isinstance(value, str):
        match value.lower():
            case "fp8" | "fp8_e4m3":
                return "fp8"
            case "nvfp4":
                return "nvfp4"
            case "none" | "auto":
                return None
    config.refuse(key, f"`{key}` is {json.dumps(value)[:60]}", wanted="FP8 or NVFP4 was wanted", remedy=_REMEDY)
    return None
