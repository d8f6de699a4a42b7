"""What a plan says is moved: windows cut off, states added, latent vectors to every rank."""

from hpcserve.fabric import fabric_of
from hpcserve.model import shape_of
from hpcserve.nouns import ModelShape, Workload
from hpcserve.placement import place
from tests.model.configs import text_of
from tests.placement.test_place import H100, pools, service


def moved(name: str, ranks: int) -> int:
    shape: ModelShape = shape_of(text_of(name), name=name, source="config.json", weights_bytes=None)
    wanted = service(
        H100,
        pools=pools(1, ranks, 1, ranks),
        workload=Workload(input_tokens=4096, output_tokens=16),
    )
    [path] = place(fabric=fabric_of(H100), site=H100, shape=shape, service=wanted).paths
    return path.kv_bytes


def test_a_window_moves_once_and_a_state_once() -> None:
    assert moved("gpt-oss-120b", 1) == 155_713_536
    assert moved("Nemotron-3-Nano-30B", 1) == 6_144 * 4096 + 49_082_368


def test_every_rank_reads_the_latent_vector_whole() -> None:
    assert moved("DeepSeek-V3", 8) == 8 * 287_834_112
    assert moved("Llama-3.1-70B", 8) == 1_342_177_280
