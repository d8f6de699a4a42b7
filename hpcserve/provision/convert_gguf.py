"""Turn a GGUF file into a Hugging Face model directory. Run as a script by the engine environment's Python.

In: argv: folder of the GGUF file, its name, folder to write. Out: lines `SHARE TEXT` on stdout, SHARE from 0 to 1.
It imports nothing of hpcserve: that environment does not have it.
"""

import sys

__all__ = ["convert"]


def convert(folder: str, name: str, to: str) -> None:
    """Write config, bf16 safetensors, tokenizer and chat template of the GGUF file `name` in `folder` to `to`."""
    _tell(0.0, "loading torch and transformers")
    import torch  # noqa: PLC0415  # seconds each: said first, loaded then
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    _tell(0.2, "reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    _tell(0.4, "de-quantizing the weights to bf16")
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    _tell(0.9, "writing safetensors, tokenizer and chat template")
    model.save_pretrained(to)
    tokenizer.save_pretrained(to)


def _tell(share: float, text: str) -> None:
    print(f"{share:.2f} {text}", flush=True)  # noqa: T201  # stdout is this script's channel to its caller


if __name__ == "__main__":
    convert(*sys.argv[1:])
