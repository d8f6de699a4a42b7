from pathlib import Path

import pytest

from hpcserve.errors import InputError
from hpcserve.simengine import read_settings

SIZE = ("--sim-kv-bytes-per-token", "1000")
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"kv_lease_duration":7}}'


def test_vllm_words_are_understood_and_unknown_ones_kept_apart() -> None:
    words = ["name", *SIZE, "--block_size=64", "--no-enable-prefix-caching", "--enforce-eager", "--seed", "0"]
    settings = read_settings(words, {"VLLM_API_KEY": "k"})
    assert (settings.block_size, settings.prefix_caching, settings.api_key) == (64, False, "k")
    assert settings.ignored == ("--enforce-eager", "--seed", "0")
    assert settings.transfer is None


def test_connector_takes_lease_and_side_channel() -> None:
    environment = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": "7000"}
    transfer = read_settings(["name", *SIZE, "--kv-transfer-config", NIXL], environment).transfer
    assert transfer is not None
    assert (transfer.lease_s, transfer.host, transfer.port, transfer.recompute) == (7, "10.0.0.1", 7000, False)


def test_model_directory_gives_sizes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":576,"num_attention_heads":9,'
        '"num_key_value_heads":3,"num_hidden_layers":30,"max_position_embeddings":8192,"torch_dtype":"bfloat16"}'
    )
    settings = read_settings([str(tmp_path)], {})
    assert (settings.kv_bytes_per_token, settings.max_model_len) == (23040, 8192)


def test_kv_events_are_asked_for_in_vllms_words() -> None:
    config = '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:7000","topic":"kv-events"}'
    events = read_settings(["name", *SIZE, "--kv-events-config", config], {}).events
    assert events is not None
    assert (events.endpoint, events.replay_endpoint, events.topic) == ("tcp://*:7000", None, "kv-events")
    for off in ("", '{"enable_kv_cache_events":false}', '{"enable_kv_cache_events":true,"publisher":"null"}'):
        assert read_settings(["name", *SIZE, "--kv-events-config", off], {}).events is None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["name"], "no directory with a config.json"),
        ([], "model"),
        (["name", *SIZE, "--sim-decode-ms", "1"], "--sim-decode-ms"),
        (["name", *SIZE, "--block-size", "20"], "multiple of 16"),
        (["name", *SIZE, "--block-size", "x"], "--block-size"),
        (["name", *SIZE, "--max-num-seqs", "0"], "max_num_seqs"),
        (["name", *SIZE, "--max-model-len", "600000"], "--max-model-len"),
        (["name", *SIZE, "--kv-transfer-config", "{"], "JSON was wanted"),
        (["name", *SIZE, "--kv-transfer-config", '{"kv_connector":"Other"}'], "only NixlConnector"),
        (["name", *SIZE, "--kv-transfer-config", '{"kv_connector":"NixlConnector"}'], "role"),
        (["name", *SIZE, "--sim-gb-per-s", '{"a":0}'], "gb_per_s"),
        (["name", *SIZE, "--kv-events-config", '{"publisher":"nats"}'], "publisher"),
        (["name", *SIZE, "--kv-events-config", '{"port":1}'], "port"),
    ],
)
def test_wrong_words_are_named(words: list[str], found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_settings(words, {})


def test_stages_are_taken_but_where_kv_arrives() -> None:
    """As vLLM: its connector refuses a consumer of several."""
    words = ["m", "--sim-kv-bytes-per-token", "64", "--pipeline-parallel-size", "2"]
    assert read_settings(words, {}).pipeline_parallel == 2
    config = ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}']
    with pytest.raises(InputError, match="--pipeline-parallel-size 2 of a kv_consumer"):
        read_settings([*words, *config], {})


def test_port_of_the_side_channel_must_be_one() -> None:
    with pytest.raises(InputError, match="VLLM_NIXL_SIDE_CHANNEL_PORT"):
        read_settings(["n", *SIZE, "--kv-transfer-config", NIXL], {"VLLM_NIXL_SIDE_CHANNEL_PORT": "x"})
