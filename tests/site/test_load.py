import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.nouns import Service, Site
from hpcserve.site import hosts_of, load_service, load_site, load_sweep
from hpcserve.wire import encode_yaml
from tests.golden.cases import onebox_with
from tests.strategies import services, sites

ROOT = Path(__file__).parents[2]
ONEBOX_TEXT = (ROOT / "site_configs" / "onebox.yaml").read_text()
SERVICE_TEXT = (ROOT / "docs" / "examples" / "smollm2.yaml").read_text()
SWEEP_TEXT = (ROOT / "docs" / "examples" / "sweep.yaml").read_text()


def site(text: str = ONEBOX_TEXT) -> Site:
    return load_site(text, source="site.yaml")


def mistakes_of_site(*replacements: tuple[str, str]) -> str:
    text = ONEBOX_TEXT
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(InputError) as caught:
        site(text)
    return str(caught.value)


def mistakes_of_service(*replacements: tuple[str, str], of: Site | None = None) -> str:
    text = SERVICE_TEXT
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(InputError) as caught:
        load_service(text, source="service.yaml", site=of or site())
    return str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "site_configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_sites_load_under_their_own_name(path: Path) -> None:
    loaded = load_site(path.read_text(), source=path.name)
    assert loaded.name == path.stem
    assert len(hosts_of(loaded)) >= 2


@pytest.mark.parametrize(("example", "of"), [("smollm2.yaml", "onebox"), ("sim.yaml", "local")], ids=["smollm2", "sim"])
def test_examples_load_against_their_site(example: str, of: str) -> None:
    against = load_site((ROOT / "site_configs" / f"{of}.yaml").read_text(), source=of)
    load_service((ROOT / "docs" / "examples" / example).read_text(), source=example, site=against)


@pytest.mark.parametrize("sweep", ["sweep.yaml", "sim-sweep.yaml"])
def test_example_sweeps_name_a_service_that_is_there(sweep: str) -> None:
    loaded = load_sweep((ROOT / "docs" / "examples" / sweep).read_text(), source=sweep)
    assert (ROOT / "docs" / "examples" / loaded.service).is_file()


def test_hosts_keep_the_sites_order() -> None:
    assert list(hosts_of(site())) == ["node01", "node02", "node03", "node04"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "type: slot",
            "type: solt",
            "site.yaml:30:11: unknown node type `solt`; a key of `node_types` was wanted; did ",
        ),
        ("count: 1", "count: 2", "site.yaml:15:5: GPU 1 of `slot` near no NIC"),
        ("gpus: [0]", "gpus: [0, 3]", "site.yaml:22:19: GPU 3, and `slot` has 1 GPUs; an index from 0 to 0 was wanted"),
        ("hosts: node[01-02]", "hosts: node01", "site.yaml:38:1: node02 in no leaf switch"),
        ("hosts: node[03-04]", "hosts: node[02-04]", "node `node02` a second time, already under `leaf1`"),
        ("hosts: node[03-04]", "hosts: node[03-05]", "unknown node `node05`"),
        ("switches: leaf[1-2]", "switches: leaf[1-3]", "unknown switch `leaf3`"),
        ("switches: leaf[1-2]", "switches: leaf1", "switch `leaf2` has an uplink and is under no switch"),
        ("name: leaf2", "name: leaf1", "switch `leaf1` a second time"),
        ("    hosts: node[01-02]\n", "", "switch `leaf1` has neither `hosts` nor `switches`"),
        ("    switches: leaf[1-2]", "    switches: leaf[1-2]\n    hosts: node01", "has both `hosts` and `switches`"),
        ("    uplink: *uplink\n", "", "switch `leaf2` is under `spine` and has no `uplink`"),
        ("hosts: node[03-04]", "hosts: node[03-04", "host list `node[03-04`: its brackets do not match"),
        ("    interface: ctl0", "    {}", "the control network has neither `interface` nor `subnet`"),
        ("    interface: ctl0", "    subnet: 10.1.0.9/16", "10.1.0.9/16 has host bits set"),
        ("    path: ~/.cache/hpcserve/engines/vllm-cpu\n", "", "runtime `vllm` of kind venv has no `path`"),
        ("models: ~/.cache", "models: .cache", ":11: `.cache/hpcserve/models`, which would depend on the"),
        ("UCX_TLS: tcp", "UCX_NET_DEVICES: eth0", "`UCX_NET_DEVICES`; it follows from the NICs that each worker is"),
        ("  hpcserve:\n", "  hpserve:\n", "`runtimes` has no `hpcserve`"),
        ("    hosts: node[01-04]\n    max", "    hosts: node[01-05]\n    max", "unknown node `node05`"),
    ],
)
def test_a_mistake_in_a_site_is_named_with_its_place(old: str, new: str, said: str) -> None:
    assert said in mistakes_of_site((old, new))


def test_a_count_of_no_gpus_is_one_mistake_and_not_one_for_each_index() -> None:
    lines = mistakes_of_site(("count: 1", "count: 0")).splitlines()
    assert [line for line in lines if "GPU" in line] == []
    assert any("`node_types.slot.gpu.count` is number 0" in line for line in lines)


def test_a_long_list_of_unknown_nodes_is_one_mistake() -> None:
    lines = mistakes_of_site(("hosts: node[03-04]", "hosts: node[01-9000]")).splitlines()
    assert len(lines) == 2
    assert "unknown node `node05` and 8995 more" in lines[0] + lines[1]
    assert "node `node01` and 1 more a second time, already under `leaf1`" in lines[0] + lines[1]


@pytest.mark.parametrize(("old", "new"), [("count: 1", "count: 1000000000"), ("cores: 8", "cores: 1000000000")])
def test_counts_that_nobody_means_are_refused_at_once(old: str, new: str) -> None:
    assert "at most" in mistakes_of_site((old, new))


def test_a_long_list_of_nodes_without_a_leaf_is_one_line() -> None:
    text = mistakes_of_site(("  - hosts: node[01-04]\n    type", "  - hosts: node[01-04],n[1-999]x\n    type"))
    assert "node `n1x` and 998 more in no leaf switch" in text


def test_gpu_numbers_that_are_no_numbers_are_told_and_not_compared() -> None:
    lines = mistakes_of_site(("gpus: [0]", "gpus: [0, a, true, 1.5]")).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["site.yaml:22:19", "site.yaml:22:22", "site.yaml:22:28"]


@pytest.mark.parametrize("figure", ["1.0e-320", "1.0e999", "0.0", "-1"])
def test_figures_that_would_overflow_are_refused(figure: str) -> None:
    assert "nominal_gb_per_s` is number" in mistakes_of_site(("nominal_gb_per_s: 0.125", f"nominal_gb_per_s: {figure}"))


def test_double_nodes_and_islands_are_named() -> None:
    text = mistakes_of_site(
        (
            "  - hosts: node[01-04]\n    type: slot",
            "  - {hosts: 'node[01-04]', type: slot}\n  - {hosts: node03, type: slot}",
        ),
        ("count: 1", "count: 2"),
        ("gpus: [0]", "gpus: [0, 1]"),
        (
            "    host_path:",
            "    nvlink: [{gpus: [0, 1], rate: &nv {}}, {gpus: [1, 2], rate: *nv}]\n    host_path:",
        ),
    )
    assert "node `node03` a second time" in text
    assert "GPU 1 a second time, it is already in NVLink island 0" in text
    assert "GPU 2, and `slot` has 2 GPUs" in text


def test_switches_in_a_loop_are_named_once() -> None:
    text = mistakes_of_site(
        (
            "switches: leaf[1-2]",
            "switches: leaf[1-2],core\n    uplink: *uplink\n  - name: core\n    switches: spine\n    uplink: *uplink",
        )
    )
    assert text.count("switches in a loop") == 1
    assert "spine under core under spine" in text or "core under spine under core" in text


def test_several_roots_are_no_mistake() -> None:
    text = ONEBOX_TEXT.replace("  - name: spine\n    switches: leaf[1-2]\n", "").replace("    uplink: *uplink\n", "")
    start, end = text.index("    uplink: &uplink"), text.index("  - name: leaf2")
    assert len(site(text[:start] + text[end:]).switches) == 2


def test_schema_and_meaning_are_reported_together() -> None:
    text = mistakes_of_site(
        ("cores: 8", "cores: eight"), ("type: slot", "type: solt"), ("kind: ethernet", "kind: ethernit")
    )
    assert [line.split(": ")[0] for line in text.splitlines()] == [
        "site.yaml:9:12",
        "site.yaml:17:15",
        "site.yaml:30:11",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "partition: main",
            "partition: mian",
            "service.yaml:9:12: unknown partition `mian`; one of site `onebox` was wanted; did you mean `main`?",
        ),
        ("partition: main", "partition: null", "service.yaml:9:12: no partition; one of site `onebox` was wanted"),
        ("time: 1:00:00", "time: 8-00:00:00", "service.yaml:10:7: a time of 8-00:00:00; at most 7-00:00:00 was wanted"),
        ("time: 1:00:00", "time: 0:02:59", "service.yaml:10:7: a time of 0:02:59; at least 3 minutes were wanted"),
        ("workers: 1", "workers: 1000000000", "is number 1000000000; at most 10000 was wanted"),
        ("role: decode", "role: prefill", "service.yaml:12:1: no decode pool, and `mode` is disaggregated"),
        ("cached_prefix_tokens: 992", "cached_prefix_tokens: 1024", "1024 cached tokens of 1024"),
    ],
)
def test_a_mistake_in_a_service_is_named_with_its_place(old: str, new: str, said: str) -> None:
    assert said in mistakes_of_service((old, new))


def test_six_mistakes_come_with_six_places() -> None:
    text = mistakes_of_service(
        ("engine: vllm", "engine: vlm"),
        ("mode: disaggregated", "mode: disagregated"),
        ("partition: main", "partition: mian"),
        ("time: 1:00:00", "time: 1:00"),
        ("workers: 1", "workers: none"),
        ("ttft_ms: 3000.0", "tftt_ms: 3000.0"),
    )
    places = {tuple(line.split(":")[1:3]) for line in text.splitlines()}
    assert places >= {("7", "9"), ("8", "7"), ("9", "12"), ("10", "7"), ("14", "14"), ("16", "14"), ("21", "3")}


TWO_PARTITIONS = (
    "  main:\n    hosts: node[01-02]\n    max_time: 7-00:00:00\n    account_required: false\n"
    "  far:\n    hosts: node[03-04]\n    max_time: 0:30:00\n    account_required: true\n"
)


def two_partitions(*replacements: tuple[str, str]) -> Site:
    """The one-machine cluster with its leaves as partitions `main` and `far`."""
    text = onebox_with(TWO_PARTITIONS)
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return site(text)


def test_a_pool_may_name_its_own_partition() -> None:
    text = SERVICE_TEXT.replace("  - role: decode\n", "  - role: decode\n    partition: far\n")
    text = text.replace("time: 1:00:00", "time: 0:20:00\naccount: physics")
    loaded = load_service(text, source="s", site=two_partitions())
    assert loaded.partitions == ("main", "far")


def test_mistakes_of_pools_partitions_come_together_and_limits_are_each_partitions_own() -> None:
    text = mistakes_of_service(
        ("  - role: prefill\n", "  - role: prefill\n    partition: fra\n"),
        ("  - role: decode\n", "  - role: decode\n    partition: far\n"),
        of=two_partitions(),
    )
    assert text.splitlines() == [
        (
            "service.yaml:10:7: a time of 1:00:00; at most 0:30:00 was wanted, the limit of partition `far`; ask for "
            "less, or for another partition"
        ),
        "service.yaml:14:16: unknown partition `fra`; one of site `onebox` was wanted; did you mean `far`?",
        "service.yaml:17:5: no account; partition `far` takes no job without one; add `account:`",
    ]


def test_a_partition_that_no_pool_is_in_limits_nothing() -> None:
    text = SERVICE_TEXT.replace("partition: main", "partition: far")
    text = text.replace("    workers: 1\n", "    workers: 1\n    partition: main\n")
    assert load_service(text, source="s", site=two_partitions()).partitions == ("main",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("switches_option: true", "switches_option: true\n  hetjobs: false"),
            "16:16: partition `far` beside `main`; one partition was wanted: site `onebox` takes no heterogeneous jobs",
        ),
        (
            ("hosts: node[03-04]\n    max", "hosts: node[02-04]\n    max"),
            "16:16: partition `far`, which shares node02 with `main`; partitions without nodes in common were wanted",
        ),
    ],
)
def test_partitions_that_cannot_be_in_one_job_are_refused(change: tuple[str, str], said: str) -> None:
    of = two_partitions(("0:30:00", "1-00:00:00"), ("account_required: true", "account_required: false"), change)
    pool = ("  - role: decode\n", "  - role: decode\n    partition: far\n")
    assert mistakes_of_service(pool, of=of).startswith(f"service.yaml:{said}")


def test_a_partition_that_wants_an_account_gets_one() -> None:
    strict = site(ONEBOX_TEXT.replace("account_required: false", "account_required: true"))
    assert "no account; partition `main` takes no job without one" in mistakes_of_service(
        ("partition: main", "partition: main"), of=strict
    )
    with_account = SERVICE_TEXT.replace("partition: main", "partition: main\naccount: physics")
    assert load_service(with_account, source="s", site=strict).account == "physics"


def test_an_engine_that_the_site_does_not_describe() -> None:
    bare = site().model_copy(update={"runtimes": {"hpcserve": site().runtimes["hpcserve"]}})
    assert "service.yaml:7:9: site `onebox` says nothing of how vllm is entered" in mistakes_of_service(
        ("engine: vllm", "engine: vllm"), of=bare
    )


def test_without_a_site_only_the_service_itself_is_judged() -> None:
    assert load_service(SERVICE_TEXT.replace("main", "anything"), source="s", site=None).partition == "anything"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: across-leaves", "name: same-leaf", "two placements named `same-leaf`"),
        ("request_rate: 1.5", "request_rate: 0.8", "request_rate 0.8 twice"),
        ("time: 0:30:00", "time: 0:02:00", "sweep.yaml:20:7: a time of 0:02:00"),
        (
            "mode: disaggregated\n    distance: across",
            "mode: aggregated\n    distance: across",
            "distance across-leaves of",
        ),
    ],
)
def test_a_mistake_in_a_sweep_is_named(old: str, new: str, said: str) -> None:
    assert old in SWEEP_TEXT
    with pytest.raises(InputError) as caught:
        load_sweep(SWEEP_TEXT.replace(old, new), source="sweep.yaml")
    assert said in str(caught.value)


@settings(deadline=None)
@given(drawn=sites(joined=False))
def test_a_site_that_hangs_together_is_read_back_equal(drawn: Site) -> None:
    assert load_site(encode_yaml(drawn), source="drawn.yaml") == drawn


@settings(deadline=None)
@given(drawn=services())
def test_a_service_is_read_back_equal(drawn: Service) -> None:
    assert load_service(encode_yaml(drawn), source="drawn.yaml", site=site()) == drawn


junk: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=4) | st.just([]) | st.just({}) | st.just([[1]])
)


def plain_of(text: str) -> Any:
    """Plain data of a shipped text, as it is really read: PyYAML alone would make numbers of `1:00:00`."""
    noun = (
        load_site(text, source="f") if text == ONEBOX_TEXT
        else load_service(text, source="f", site=None) if text == SERVICE_TEXT
        else load_sweep(text, source="f")
    )  # fmt: skip
    return json.loads(noun.model_dump_json(by_alias=True))


def paths_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(below for key, value in inner for below in paths_in(value, (*path, key)))]


@settings(deadline=None)
@given(data=st.data(), text=st.sampled_from([ONEBOX_TEXT, SERVICE_TEXT, SWEEP_TEXT]), value=junk)
def test_any_value_anywhere_is_read_or_refused_with_places(data: st.DataObject, text: str, value: Any) -> None:
    plain = plain_of(text)
    path = data.draw(st.sampled_from(paths_in(plain)[1:]))
    owner = plain
    for step in path[:-1]:
        owner = owner[step]
    owner[path[-1]] = value
    broken = json.dumps(plain, indent=1)
    try:
        if text == ONEBOX_TEXT:
            load_site(broken, source="f.yaml")
        elif text == SERVICE_TEXT:
            load_service(broken, source="f.yaml", site=site())
        else:
            load_sweep(broken, source="f.yaml")
    except InputError as error:
        lines = broken.count("\n") + 1
        assert all(1 <= mistake.line <= lines for mistake in error.mistakes)  # noqa: PT017 - not the point of the test
