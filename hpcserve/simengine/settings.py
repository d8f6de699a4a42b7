"""The simulated engine's argv and variables, in vLLM's words."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, ValidationError, field_validator

from hpcserve.errors import InputError, Mistake
from hpcserve.model import shape_of
from hpcserve.nouns import ModelShape, Noun
from hpcserve.simengine.kv import CHUNK

__all__ = ["Settings", "read_settings"]

_ARGV = "argv"
_DEFAULT_CONTEXT = 8192
_DEFAULT_KV_BYTES = 512 * 2**20
PositiveInt = Annotated[int, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Transfer(Noun):
    """--kv-transfer-config as far as the handoff is concerned, with vLLM's defaults."""

    role: Literal["kv_producer", "kv_consumer", "kv_both"]
    lease_s: Annotated[float, Field(gt=0)] = 30
    recompute: bool = False
    """kv_load_failure_policy: recompute instead of fail."""
    host: str = "localhost"
    port: Annotated[int, Field(ge=0, le=65535)] = 5600


class Events(Noun):
    """--kv-events-config, with vLLM's names and defaults (config/kv_events.py)."""

    enable_kv_cache_events: bool = False
    publisher: Literal["zmq", "null"] = "zmq"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: PositiveInt = 10_000
    hwm: Annotated[int, Field(ge=0)] = 100_000
    max_queue_size: PositiveInt = 100_000
    """Has no meaning here: batches are sent as they are made."""
    topic: str = ""


class Settings(Noun):
    """Everything that one simulated engine is started with."""

    model: str
    served_name: str
    host: str
    port: Annotated[int, Field(ge=0, le=65535)]
    """0: any free port, printed when it listens."""
    api_key: str | None
    max_model_len: PositiveInt
    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    block_size: PositiveInt
    kv_cache_bytes: PositiveInt
    kv_bytes_per_token: PositiveInt
    prefix_caching: bool
    tensor_parallel: PositiveInt
    pipeline_parallel: PositiveInt
    transfer: Transfer | None
    events: Events | None = None
    """None: no KV events are published."""
    dev_mode: bool = False
    """VLLM_SERVER_DEV_MODE: `/reset_prefix_cache` is there."""
    model_tokenizer: bool = False
    """Whether texts are tokenized as the model's own files say, and not by the rule of `tokens`."""
    prefill_ms_per_token: NotNegative
    decode_ms_per_token: NotNegative
    """One step of all running requests together."""
    gb_per_s: dict[str, Annotated[float, Field(gt=0)]]
    """Rate of pulls by the peer's side channel, `address:port` or `address`, in GB/s; `*` for the rest."""
    ignored: tuple[str, ...] = ()
    """Words of argv that vLLM knows and this engine has no use for."""

    @field_validator("block_size")
    @classmethod
    def _whole_chunks(cls, size: int) -> int:
        if size % CHUNK:
            raise ValueError(f"a multiple of {CHUNK} was wanted")
        return size

    @property
    def blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.kv_cache_bytes // (self.kv_bytes_per_token * self.block_size)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _mistake(message, "an argument of `vllm serve` or a --sim one was wanted")


def read_settings(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from the words after `serve`; raises InputError with the argument that is wrong."""
    given, rest = _parser().parse_known_args([_dashes(word) for word in argv])
    wrong = [word for word in rest if word.startswith("--sim")]
    if wrong:
        raise _mistake(wrong[0], "the simulated engine has no such argument")
    shape = _shape(Path(given.model))
    try:
        settings = Settings(
            model=given.model,
            served_name=given.served_model_name or given.model,
            host=given.host,
            port=given.port,
            api_key=environment.get("VLLM_API_KEY") or None,
            max_model_len=given.max_model_len or (shape.max_context_tokens if shape else _DEFAULT_CONTEXT),
            max_num_seqs=given.max_num_seqs,
            max_num_batched_tokens=given.max_num_batched_tokens,
            block_size=given.block_size,
            kv_cache_bytes=given.kv_cache_memory_bytes,
            kv_bytes_per_token=given.sim_kv_bytes_per_token or _kv_bytes(shape, given.model),
            prefix_caching=given.enable_prefix_caching,
            tensor_parallel=given.tensor_parallel_size,
            pipeline_parallel=given.pipeline_parallel_size,
            transfer=_transfer(given.kv_transfer_config, environment),
            events=_events(given.kv_events_config),
            dev_mode=environment.get("VLLM_SERVER_DEV_MODE") == "1",
            model_tokenizer=given.sim_model_tokenizer,
            prefill_ms_per_token=given.sim_prefill_ms_per_token,
            decode_ms_per_token=given.sim_decode_ms_per_token,
            gb_per_s=_object(given.sim_gb_per_s, "--sim-gb-per-s"),
            ignored=tuple(rest),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _mistake(f"{first['loc'][0]}: {first['input']!r}", first["msg"]) from None
    if settings.blocks * settings.block_size < settings.max_model_len:
        # vLLM refuses this too (v1/core/kv_cache_utils.py): the longest request could never be served.
        found = f"a KV cache of {settings.blocks * settings.block_size} tokens"
        wanted = f"room for --max-model-len {settings.max_model_len} was wanted"
        raise _mistake(found, wanted, "lower it or raise --kv-cache-memory-bytes")
    if settings.pipeline_parallel > 1 and settings.transfer is not None and settings.transfer.role == "kv_consumer":
        # So does vLLM (kv_connector/v1/nixl/base_worker.py).
        found = f"--pipeline-parallel-size {settings.pipeline_parallel} of a kv_consumer"
        raise _mistake(found, "1 was wanted: NixlConnector takes no KV with several stages")
    return settings


def _parser() -> _Parser:
    parser = _Parser(prog="python -m hpcserve.simengine serve", allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--kv-cache-memory-bytes", type=int, default=_DEFAULT_KV_BYTES)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", type=int, default=1)
    parser.add_argument("--kv-transfer-config", default="")
    parser.add_argument("--kv-events-config", default="")
    parser.add_argument("--sim-model-tokenizer", action="store_true")
    parser.add_argument("--sim-kv-bytes-per-token", type=int)
    parser.add_argument("--sim-prefill-ms-per-token", type=float, default=0.0)
    parser.add_argument("--sim-decode-ms-per-token", type=float, default=0.0)
    parser.add_argument("--sim-gb-per-s", default="")
    return parser


def _dashes(word: str) -> str:
    """`--block_size=32` as `--block-size=32`, which vLLM takes as well."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _object(text: str, option: str) -> dict[str, Any]:
    """A JSON object given as an argument; empty where it is not given."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _mistake(f"{option} {text}", f"JSON was wanted: {error}") from None
    if not isinstance(found, dict):
        raise _mistake(f"{option} {text}", "a JSON object was wanted")
    return found


def _transfer(text: str, environment: Mapping[str, str]) -> Transfer | None:
    config = _object(text, "--kv-transfer-config")
    if not config:
        return None
    if config.get("kv_connector") != "NixlConnector":
        raise _mistake(f"kv_connector {config.get('kv_connector')!r}", "only NixlConnector is simulated")
    policy = config.get("kv_load_failure_policy", "fail")
    if policy not in {"fail", "recompute"}:
        raise _mistake(f"kv_load_failure_policy {policy!r}", "fail or recompute was wanted")
    port = environment.get("VLLM_NIXL_SIDE_CHANNEL_PORT", "5600")
    if not port.isdigit():
        raise _mistake(f"VLLM_NIXL_SIDE_CHANNEL_PORT={port!r}", "a port was wanted")
    return Transfer.model_validate(
        {
            "role": config.get("kv_role"),
            "lease_s": config.get("kv_connector_extra_config", {}).get("kv_lease_duration", 30),
            "recompute": policy == "recompute",
            "host": environment.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"),
            "port": int(port),
        }
    )


def _events(text: str) -> Events | None:
    events = Events.model_validate(_object(text, "--kv-events-config"))
    return events if events.enable_kv_cache_events and events.publisher == "zmq" else None


def _shape(model: Path) -> ModelShape | None:
    """The shape of a model directory; None where the model is only a name."""
    path = model / "config.json"
    if not path.is_file():
        return None
    return shape_of(path.read_text(encoding="utf-8"), name=model.name, source=str(path), weights_bytes=None)


def _kv_bytes(shape: ModelShape | None, model: str) -> int:
    if shape is None:
        found = f"{model} is no directory with a config.json"
        raise _mistake(found, "the size of its KV was wanted", "give --sim-kv-bytes-per-token")
    return shape.kv_bytes_per_token


def _mistake(found: str, wanted: str, remedy: str = "correct it or leave it out") -> InputError:
    return InputError([Mistake(file=_ARGV, line=1, column=1, found=found, wanted=wanted, remedy=remedy)])
