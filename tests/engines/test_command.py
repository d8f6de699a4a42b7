import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.engines import Adapter, adapter_for, peer_gpus, transfer_rates
from hpcserve.errors import PlacementError
from hpcserve.nouns import Allocation, EngineFacts, Pool, Role, Service
from tests import synthetic
from tests.engines.cases import CPU, CUDA, GOLDEN, SIM, commands, golden_text, node, service, site, worker

WORDS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)


def make(adapter: Adapter, given_service: Service, role: Role = Role.PREFILL, **changes: Any) -> tuple[str, ...]:
    arguments: dict[str, Any] = {
        "worker": worker(role, "node01", gpus=(0,), nics=("data0",)),
        "service": given_service,
        "site": site("onebox"),
        "node": node("node01", CPU),
        "model_dir": "/m",
        **changes,
    }
    return adapter.command(**arguments).argv


@pytest.mark.parametrize("name", sorted(commands()))
def test_golden_commands(name: str) -> None:
    assert golden_text(commands()[name]) == (GOLDEN / f"{name}.json").read_text(encoding="utf-8")


def test_every_golden_file_has_its_case() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(commands())


@given(words=st.lists(WORDS, max_size=5), name=WORDS, value=WORDS)
@pytest.mark.parametrize("engine", ["vllm", "sim"])
def test_user_words_arrive_unchanged(engine: Any, words: list[str], name: str, value: str) -> None:
    free = [word for word in words if not word.startswith("--")]
    made = adapter_for(engine).command(
        worker=worker(Role.DECODE, "node01", gpus=(0,), nics=("data0",)),
        service=synthetic.service(
            engine=engine,
            served_name=name,
            pools=(Pool(role=Role.DECODE, workers=1, args=tuple(free), env={"USERS": value}),),
        ),
        site=site("onebox"),
        node=node("node01", CPU),
        model_dir="/a b/$(c)",
    )
    assert made.argv[len(made.argv) - len(free) :] == tuple(free)
    assert made.argv[made.argv.index("--served-model-name") + 1] == name
    assert "/a b/$(c)" in made.argv
    assert made.env["USERS"] == value


def test_the_key_is_named_and_stands_nowhere() -> None:
    for made in commands().values():
        assert made.key_variable == "VLLM_API_KEY"
        assert "VLLM_API_KEY" not in made.env
        assert "--api-key" not in made.argv


@pytest.mark.parametrize("engine", ["vllm", "sim"])
def test_transfer_config_carries_policy_and_lease(engine: Any) -> None:
    for role, kv_role in ((Role.PREFILL, "kv_producer"), (Role.DECODE, "kv_consumer")):
        argv = make(adapter_for(engine), service(engine=engine), role)
        config = json.loads(argv[argv.index("--kv-transfer-config") + 1])
        assert config["kv_connector"] == "NixlConnector"
        assert config["kv_role"] == kv_role
        assert config["kv_load_failure_policy"] == "fail"
        assert config["kv_connector_extra_config"] == {"kv_lease_duration": 20}


def test_aggregated_workers_have_no_connector_and_follow_the_decode_pool() -> None:
    made = commands()["vllm-cpu-aggregated"]
    assert "--kv-transfer-config" not in made.argv
    assert not [name for name in made.env if name.startswith(("UCX_NET", "VLLM_NIXL"))]
    assert made.argv[-1] == "--no-enable-prefix-caching"
    assert adapter_for("vllm").handoff(service(), worker(Role.AGGREGATED, "a", gpus=(0,), nics=()), CPU) is None


def test_second_pool_of_a_role_is_found_by_number() -> None:
    pools = (
        Pool(role=Role.PREFILL, workers=2, args=("--first",)),
        Pool(role=Role.DECODE, workers=1),
        Pool(role=Role.PREFILL, workers=1, args=("--second",)),
    )
    for number, word in ((0, "--first"), (1, "--first"), (2, "--second")):
        chosen = worker(Role.PREFILL, "node01", gpus=(0,), nics=("data0",)).model_copy(
            update={"id": f"prefill-{number}"}
        )
        assert make(adapter_for("vllm"), service(), worker=chosen, service=synthetic.service(pools=pools))[-1] == word


def test_own_gpus_come_first_then_peers_and_no_cpu_settings() -> None:
    made = commands()["vllm-gpu-prefill"]
    visible = made.env["CUDA_VISIBLE_DEVICES"].split(",")
    assert visible == [f"GPU-{index:08d}-aaaa" for index in (2, 3, 0, 1)]
    assert not [name for name in made.env if "CPU" in name or name.startswith(("OMP", "GLOO"))]
    assert "--enforce-eager" not in made.argv
    assert json.loads(made.argv[made.argv.index("--kv-transfer-config") + 1])["kv_buffer_device"] == "cuda"


def test_peers_are_partners_on_the_same_node() -> None:
    near = synthetic.plan(decode_node="node01")
    assert peer_gpus(near, near.worker("prefill-0")) == (1,)
    assert peer_gpus(near, near.worker("decode-0")) == (0,)
    far = synthetic.plan()
    assert peer_gpus(far, far.worker("prefill-0")) == ()


def test_transfer_rates_name_the_side_channel_of_each_prefill_worker() -> None:
    plan = synthetic.plan()
    workers = tuple(one.model_copy(update={"port": 1, "side_channel_port": 9}) for one in plan.workers)
    plan = plan.model_copy(update={"workers": workers})
    allocation = Allocation(nodes=(node("node01", SIM), node("node02", SIM)))
    assert transfer_rates(plan, allocation, plan.worker("decode-0")) == {"10.20.0.3:9": 0.1195}
    assert transfer_rates(plan, allocation, plan.worker("prefill-0")) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"worker": worker(Role.PREFILL, "node02", gpus=(0,), nics=("data0",))}, "planned on node02"),
        ({"worker": worker(Role.PREFILL, "node01", gpus=(0,), nics=("ib9",))}, "NIC ib9"),
        ({"worker": worker(Role.PREFILL, "node01", gpus=(0,), nics=())}, "no NIC"),
        ({"node": node("node01", CPU.model_copy(update={"kv_connectors": ()}))}, "lacks NixlConnector"),
        ({"node": node("node01", CPU.model_copy(update={"kv_options": ()}))}, "lacks kv_load_failure_policy"),
        ({"node": node("node01", CPU.model_copy(update={"platform": "rocm"}))}, "built for rocm"),
        ({"node": node("node01", CUDA)}, "has no UUID"),
        ({"service": synthetic.service(args=("--block-size", "16"))}, "--block-size 16 on CPU"),
        ({"service": synthetic.service(args=("--block_size=-32",))}, "--block-size -32 on CPU"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        make(adapter_for("vllm"), service(), **changes)


def test_unplaced_or_spread_workers_are_refused() -> None:
    one = worker(Role.PREFILL, "node01", gpus=(0,), nics=("data0",))
    for changed, words in (
        ({"port": None}, "no ports"),
        ({"ranks": one.ranks * 2}, "spans node01, node01"),
        ({"tensor_parallel": 2}, "was given 1 GPUs"),
    ):
        with pytest.raises(PlacementError, match=words):
            make(
                adapter_for("vllm"),
                service(),
                worker=one.model_copy(update=changed),
                node=node("node01", CUDA, gpus=1),
            )


def test_cpu_defaults_give_way_to_the_users_words() -> None:
    argv = make(adapter_for("vllm"), synthetic.service(args=("--block_size=64", "--kv-cache-memory-bytes", "7")))
    assert [word for word in argv if "block" in word] == ["--block_size=64"]
    assert argv.count("--kv-cache-memory-bytes") == 1


def test_reserved_words_are_complained_of_with_their_place() -> None:
    pools = (
        Pool(role=Role.PREFILL, workers=1, args=("--max-num-seqs", "8", "--kv_transfer_config={}")),
        Pool(role=Role.DECODE, workers=1, env={"UCX_NET_DEVICES": "all"}),
    )
    wrong = synthetic.service(args=("--port", "1"), env={"VLLM_API_KEY": "k"}, pools=pools)
    places = [complaint.path for complaint in adapter_for("vllm").complaints(wrong)]
    assert places == [
        ("args", 0),
        ("env", "VLLM_API_KEY"),
        ("pools", 0, "args", 2),
        ("pools", 1, "env", "UCX_NET_DEVICES"),
    ]
    assert adapter_for("vllm").complaints(service()) == ()


def test_handoff_terms() -> None:
    one = worker(Role.DECODE, "node01", gpus=(0,), nics=("data0",))
    cpu = adapter_for("vllm").handoff(service(), one, CPU)
    assert cpu is not None
    assert (cpu.block_size, cpu.kv_dtype, cpu.lease_s, cpu.connector_version) == (32, "auto", 20, "0.32.0+cpu")
    cuda = adapter_for("vllm").handoff(synthetic.service(args=("--kv-cache-dtype", "fp8")), one, CUDA)
    assert cuda is not None
    assert (cuda.block_size, cuda.kv_dtype) == (16, "fp8")
    given_size = adapter_for("vllm").handoff(synthetic.service(args=("--block-size=64",)), one, CUDA)
    assert given_size is not None
    assert given_size.block_size == 64


@pytest.mark.parametrize(("engine", "facts"), [("vllm", CUDA), ("sim", SIM)])
def test_a_running_engines_block_size_goes_first(engine: Any, facts: EngineFacts) -> None:
    text = (GOLDEN.parent / "recorded" / "vllm-0.32-decode.metrics").read_text(encoding="utf-8")
    counters = adapter_for(engine).read_counters(text.replace('block_size="32"', 'block_size="128"'))
    one = worker(Role.DECODE, "node01", gpus=(0,), nics=("data0",))
    terms = adapter_for(engine).handoff(synthetic.service(args=("--block-size", "64")), one, facts, counters)
    assert terms is not None
    assert terms.block_size == 128
