"""A tokenizer and a chat template, all that a simulated engine and the router's KV knowledge need of a model."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from hpcserve.router.tokens import PromptTokens, load_prompt_tokens

CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|im_start|>", "<|im_end|>", "<s>")
CORPUS = ["the wind blows over the sea", "Name three rivers.", "1 2 3 déjà vu", "    return x\n"] * 4


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    made.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in SPECIAL])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))])
    return made


def write_tokenizer(
    directory: Path, tokenizer: Tokenizer | None = None, *, template: str | None = CHATML, **config: Any
) -> None:
    """Write them as a model directory has them; the tokenizer is `byte_level` unless one is given."""
    (tokenizer or byte_level()).save(str(directory / "tokenizer.json"))
    settings = {"bos_token": "<s>", "chat_template": template, **config}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def loaded(tokenizer: Tokenizer, directory: Path, *, template: str | None = CHATML, **config: Any) -> PromptTokens:
    """What the router makes of such a directory."""
    write_tokenizer(directory, tokenizer, template=template, **config)
    return load_prompt_tokens(directory)
