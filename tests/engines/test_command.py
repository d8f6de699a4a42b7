import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.engines import Adapter, adapter_for, keeps_prefixes, peer_gpus, transfer_rates
from hpcserve.errors import PlacementError
from hpcserve.nouns import Allocation, EngineFacts, PlannedWorker, Pool, Role, RouterSettings, Service
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
        ({"ranks": one.ranks * 2}, "prefill-0 has 2 pipeline stages, and vLLM 0.32 hands no KV over"),
        (
            {"role": Role.AGGREGATED, "ranks": (*one.ranks, one.ranks[0].model_copy(update={"node": "node02"}))},
            "spans node01, node02: that is planned, not started",
        ),
        ({"tensor_parallel": 2}, "was given 1 GPUs"),
    ):
        with pytest.raises(PlacementError, match=words):
            make(
                adapter_for("vllm"),
                service(),
                worker=one.model_copy(update=changed),
                node=node("node01", CUDA, gpus=1),
            )


def staged(*gpus: tuple[int, ...], node_name: str = "node01") -> PlannedWorker:
    """An aggregated worker with a stage on each of these GPUs of one node."""
    one = worker(Role.AGGREGATED, node_name, gpus=gpus[0], nics=("data0",))
    ranks = tuple(
        one.ranks[0].model_copy(update={"gpus": own, "cores": (2 * at, 2 * at + 1)}) for at, own in enumerate(gpus)
    )
    return one.model_copy(update={"ranks": ranks})


def test_stages_on_one_node_are_said_to_vllm_and_see_their_gpus_in_order() -> None:
    """vLLM numbers ranks stage by stage, and takes the visible GPUs in that order."""
    made = adapter_for("vllm").command(
        worker=staged((2, 3), (0, 1)),
        service=service(),
        site=site("onebox"),
        node=node("node01", CUDA, gpus=4),
        model_dir="/m",
    )
    at = made.argv.index("--tensor-parallel-size")
    assert made.argv[at : at + 4] == ("--tensor-parallel-size", "2", "--pipeline-parallel-size", "2")
    assert made.env["CUDA_VISIBLE_DEVICES"].split(",") == [f"GPU-{index:08d}-aaaa" for index in (2, 3, 0, 1)]


def test_stages_on_cpu_share_the_workers_cores_and_run_in_processes_of_their_own() -> None:
    made = adapter_for("vllm").command(
        worker=staged((0,), (1,)), service=service(), site=site("onebox"), node=node("node01", CPU), model_dir="/m"
    )
    assert made.env["OMP_NUM_THREADS"] == "3"  # the decode pool's own, which goes before the plan's
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in made.env
    plain = synthetic.service(pools=(Pool(role=Role.AGGREGATED, workers=1, pipeline_parallel=2),))
    made = adapter_for("vllm").command(
        worker=staged((0,), (1,)), service=plain, site=site("onebox"), node=node("node01", CPU), model_dir="/m"
    )
    assert made.env["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize("engine", ["vllm", "sim"])
def test_plans_that_cannot_be_started_are_told_before_a_job_is_made(engine: Any) -> None:
    adapter = adapter_for(engine)
    plan = synthetic.plan()
    assert adapter.start_obstacle(plan) is None
    two = tuple(one.model_copy(update={"ranks": one.ranks * 2}) for one in plan.workers)
    obstacle = adapter.start_obstacle(plan.model_copy(update={"workers": two}))
    assert obstacle is not None
    assert "pipeline_parallel" in obstacle.message
    assert obstacle.remedy == "set pipeline_parallel: 1 and more tensor_parallel, or mode: aggregated"
    assert adapter.start_obstacle(plan.model_copy(update={"workers": (staged((0,), (1,)),)})) is None


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


def test_kv_events_are_published_on_the_ports_behind_the_side_channels() -> None:
    asked = service(router=RouterSettings(kv="events"))
    adapter = adapter_for("vllm")
    wide = worker(Role.PREFILL, "node01", gpus=(0, 1), nics=("data0",))
    argv = make(adapter, asked, worker=wide)
    config = json.loads(argv[argv.index("--kv-events-config") + 1])
    assert config["enable_kv_cache_events"] is True
    assert (config["endpoint"], config["replay_endpoint"]) == ("tcp://*:21003", "tcp://*:21004")
    assert adapter.event_ports(asked, wide) == (21003, 21004)
    assert "--kv-events-config" not in make(adapter, service())
    assert adapter.event_ports(service(), wide) is None
    small = node("node01", CPU).model_copy(update={"ports": ((21000, 4),)})
    with pytest.raises(PlacementError, match="needs 5 ports"):
        make(adapter, asked, worker=wide, node=small)


def test_the_simulated_engine_publishes_the_same_and_tokenizes_as_the_model_does() -> None:
    asked = service(engine="sim", router=RouterSettings(kv="events"))
    argv = make(adapter_for("sim"), asked)
    place = argv.index("--kv-events-config")
    real = make(adapter_for("vllm"), service(router=RouterSettings(kv="events")))
    assert argv[place + 1] == real[real.index("--kv-events-config") + 1]
    assert argv[place + 2] == "--sim-model-tokenizer"
    assert "--sim-model-tokenizer" not in make(adapter_for("sim"), service(engine="sim"))
    assert adapter_for("sim").complaints(asked) == ()
    own = synthetic.service(engine="sim", args=("--sim-model-tokenizer",))
    (complaint,) = adapter_for("sim").complaints(own)
    assert complaint.path == ("args", 0)


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ((), True),
        (("--no-enable-prefix-caching",), False),
        (("--no_enable_prefix_caching",), False),
        (("--no-enable-prefix-caching", "--enable-prefix-caching"), True),
    ],
)
def test_a_worker_without_a_prefix_cache_publishes_nothing(args: tuple[str, ...], kept: bool) -> None:
    one = worker(Role.PREFILL, "node01", gpus=(0,), nics=("data0",))
    asked = synthetic.service(args=args, router=RouterSettings(kv="events"))
    assert keeps_prefixes(asked, one) == kept
    assert (adapter_for("vllm").event_ports(asked, one) is not None) == kept
