"""Mistakes of rails, meshes, domains, blocks and rates: each told with its place, what was wanted and what to do."""

import pytest

from hpcserve.errors import InputError
from hpcserve.nouns import Site
from hpcserve.site import load_service, load_site

TEXT = """\
schema: hpcserve.site/1
name: pods
description: two racks on two rails
node_types:
  tray:
    cores: 64
    memory_gib: 512.0
    gpu: {model: h100-sxm, count: 2, memory_gib: 80.0, numa: [0, 1], cpus: ['0-31', '32-63']}
    nics:
      - {name: 'mlx5_0:1', kind: infiniband, rate: &ndr {effective_gb_per_s: 38.0, source: vendor}, rail: 0, gpus: [0]}
      - {name: 'mlx5_1:1', kind: infiniband, rate: *ndr, rail: 1, gpus: [1]}
    nvlink:
      - {gpus: [0, 1], rate: {nominal_gb_per_s: 450.0, efficiency: 0.8, source: vendor}}
    host_path: {unknown: true, source: nobody measured it}
  login:
    cores: 8
    memory_gib: 64.0
    gpu: {model: cpu, count: 1, memory_gib: 8.0}
    nics: [{name: eth0, kind: ethernet, rate: {effective_gb_per_s: 1.0, source: admin}, gpus: [0]}]
    host_path: {effective_gb_per_s: 5.0, source: admin}
nodes:
  - {hosts: 'r1n[1-4],r2n[1-4]', type: tray, features: [h100]}
  - {hosts: 'login1', type: login}
partitions:
  gpu: {hosts: 'r1n[1-4],r2n[1-4]', max_time: 1-00:00:00, account_required: true, exclusive: true}
switches:
  - {name: rail0, hosts: 'r1n[1-4],r2n[1-4]', rail: 0}
  - {name: rail1, hosts: 'r1n[1-4],r2n[1-4]', rail: 1}
  - {name: front, hosts: login1}
  - {name: core, switches: 'rail[0-1],front', mesh: {effective_gb_per_s: 100.0, source: admin}}
nvlink_domains:
  - {name: rack1, hosts: 'r1n[1-4]', rate: *ndr, cluster_uuid: 5f1c, clique: 1}
  - {name: rack2, hosts: 'r2n[1-4]', rate: *ndr, cluster_uuid: 5f1c, clique: 2}
blocks:
  - {name: b1, hosts: 'r1n[1-4]'}
  - {name: b2, hosts: 'r2n[1-4]'}
networks:
  control: {interface: eth0}
  data: {interface: ib0}
slurm:
  gpu_request: gres
  exclusive: false
  switches_option: false
  version: '24.05.3'
  topology: block
  block_sizes: [4, 8]
transport:
  ucx: {UCX_TLS: rc}
  kinds: {infiniband: {UCX_IB_GPU_DIRECT_RDMA: 'yes'}}
runtimes:
  hpcserve: {kind: none}
  vllm: {kind: pyxis, path: /images/vllm.sqsh, mounts: [/scratch, '/a:/b']}
paths: {jobs: /jobs, models: /models, cache: /cache}
"""


def site(*replacements: tuple[str, str]) -> Site:
    text = TEXT
    for old, new in replacements:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return load_site(text, source="pods.yaml")


def mistakes(*replacements: tuple[str, str]) -> str:
    with pytest.raises(InputError) as caught:
        site(*replacements)
    return str(caught.value)


def test_the_site_that_is_broken_below_is_right() -> None:
    assert site().nvlink_domains[1].clique == 2


BLOCK = "rate: *ndr, cluster_uuid: 5f1c, clique: 2"
HOST_PATH = "{unknown: true, source: nobody measured it}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            HOST_PATH,
            "{source: x}",
            "pods.yaml:14:16: a rate without a figure; one of `effective_gb_per_s`, `nominal_gb",
        ),
        (HOST_PATH, "{unknown: false, source: x}", ":14:16: a rate without a figure"),
        (
            HOST_PATH,
            "{unknown: true, efficiency: 0.5, source: x}",
            ":14:16: a rate with `efficiency` and `unknown`; one",
        ),
        (HOST_PATH, "{nominal_gb_per_s: 5.0, source: x}", ":14:16: `nominal_gb_per_s` without `efficiency`; one of"),
        (HOST_PATH, "{efficiency: 0.5, source: x}", ":14:16: `efficiency` without `nominal_gb_per_s`; one of"),
        (
            "{effective_gb_per_s: 5.0,",
            "{effective_gb_per_s: 5.0, nominal_gb_per_s: 6.0, efficiency: 0.8,",
            "keep one form",
        ),
        (
            HOST_PATH,
            "{unknown: true, source: x, measured_on: '2026-13-01'}",
            "`2026-13-01`, which is no day; a day was",
        ),
        ("effective_gb_per_s: 38.0", "effective_gb_per_s: 400.0", ":10:78: 400 GB/s for one NIC port; at most 200 was"),
        ("effective_gb_per_s: 38.0", "effective_gb_per_s: 400.0", "if that is Gbit/s, write 50"),
        (
            "nominal_gb_per_s: 450.0",
            "nominal_gb_per_s: 900.0",
            ":13:49: 900 GB/s of NVLink for `h100-sxm`; at most 450",
        ),
        ("numa: [0, 1]", "numa: [0]", ":8:62: 1 NUMA nodes for the 2 GPUs of `tray`; one for each GPU was wanted"),
        ("cpus: ['0-31', '32-63']", "cpus: ['0-31']", ":8:76: 1 CPU lists for the 2 GPUs of `tray`"),
        ("'32-63'", "'63-32'", ":8:85: CPU list `63-32` with a range that runs backwards"),
        ("'32-63'", "'32..63'", "a list of logical CPUs was wanted, as in 0-23,96-119"),
    ],
)
def test_mistakes_of_rates_and_node_types(old: str, new: str, said: str) -> None:
    assert said in mistakes((old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "r2n[1-4]', rail: 1}",
            "r2n[1-3]', rail: 1}",
            "r2n4 in no leaf of rail 1, which NICs of `tray` have; a leaf for",
        ),
        ("r2n[1-4]', rail: 1}", "r2n[1-4]'}", "in leaves with and without `rail`; one leaf without a rail was wanted"),
        (
            "*ndr, rail: 1, gpus",
            "*ndr, gpus",
            "and NIC `mlx5_1:1` of `tray` has no `rail`; the rail of each NIC was wanted",
        ),
        (
            "*ndr, rail: 1, gpus",
            "*ndr, rail: 0, gpus",
            "in a leaf of rail 1, which no NIC of `tray` has; a NIC of each rail",
        ),
        (
            "hosts: login1}",
            "hosts: login1, rail: 1}",
            "login1 in leaves of rails, and NIC `eth0` of `login` has no `rail`",
        ),
        (
            "hosts: 'r1n[1-4],r2n[1-4]', rail: 0",
            "hosts: 'r1n[1-4],r2n[1-4],r1n1', rail: 0",
            "node `r1n1` a second time",
        ),
        ("hosts: login1}", "hosts: 'login1,r1n1'}", "r1n1 in leaves with and without `rail`"),
        (
            "type: login}",
            "type: tray}",
            "login1 in a leaf without `rail`, and NIC `mlx5_0:1` and 1 more of `tray` has one",
        ),
        (
            "rail[0-1],front',",
            "rail[0-1],front', rail: 2,",
            ":30:47: switch `core` has `rail` and no `hosts`; a rail belongs",
        ),
        (
            "hosts: login1}",
            "hosts: login1, mesh: *ndr}",
            ":29:34: switch `front` has `mesh` and no `switches`; a mesh has sw",
        ),
        (
            "hosts: login1}",
            "hosts: login1, uplink: *ndr}",
            "`front` has an uplink, and `core` above it is a mesh; no uplink",
        ),
        (
            ", mesh: {effective_gb_per_s: 100.0, source: admin}",
            "",
            "switch `front` is under `core` and has no `uplink`",
        ),
        (
            "hosts: login1}",
            "hosts: login9}",
            "unknown node `login9`; nodes of this site were wanted; did you mean `login1`?",
        ),
    ],
)
def test_mistakes_of_switches(old: str, new: str, said: str) -> None:
    assert said in mistakes((old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "hosts: 'r2n[1-4]', rate",
            "hosts: 'r2n[1-5]', rate",
            "unknown node `r2n5`; nodes of this site were wanted; did you",
        ),
        (
            "hosts: 'r2n[1-4]', rate",
            "hosts: 'r1n4,r2n[1-4]', rate",
            "node `r1n4` a second time, already in NVLink domain `rack1`",
        ),
        ("hosts: 'r2n[1-4]', rate", "hosts: 'r2n[1-4],login1', rate", "node `login1` of a type without GPUs"),
        ("name: rack2", "name: rack1", "two NVLink domains named `rack1`"),
        (
            "clique: 2",
            "clique: 1",
            ":33:64: cluster UUID and clique of domain `rack1` again; another UUID or clique was",
        ),
        (
            "5f1c, clique: 2",
            "00000000-0000-0000-0000-000000000000",
            ":33:64: a cluster UUID of zeros; that of a domain was wanted",
        ),
        ("b2, hosts: 'r2n[1-4]'", "b2, hosts: 'r2n[1-4],r1n2'", "node `r1n2` a second time, already in block `b1`"),
        ("b2, hosts: 'r2n[1-4]'", "b2, hosts: 'x2n[1-4]'", ":36:23: unknown node `x2n1` and 3 more"),
        (
            "topology: block",
            "topology: tree",
            "blocks, and `slurm.topology` is tree; `topology: block` was wanted with them",
        ),
        ("topology: block", "topology: tree", "block sizes, and `slurm.topology` is tree"),
        (
            "block_sizes: [4, 8]",
            "block_sizes: [4, 12]",
            "a block size of 12 after 4; a power of two times the one before",
        ),
        ("block_sizes: [4, 8]", "block_sizes: [8, 4]", "a block size of 4 after 8"),
        ("block_sizes: [4, 8]", "block_sizes: [4, 4]", "a block size of 4 after 4"),
    ],
)
def test_mistakes_of_domains_and_blocks(old: str, new: str, said: str) -> None:
    assert said in mistakes((old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kinds: {infiniband:", "kinds: {roce:", "settings for NICs of kind roce, and the site has none"),
        ("UCX_IB_GPU_DIRECT_RDMA: 'yes'", "UCX_NET_DEVICES: x", "`UCX_NET_DEVICES`; it follows from the NICs"),
        (
            "ucx: {UCX_TLS: rc}",
            "ucx: {}\n  libfabric: {FI_PROVIDER: cxi}",
            "settings of libfabric, and `transport.backend` is",
        ),
        (
            "kind: ethernet",
            "kind: slingshot",
            "NICs of kind slingshot, and `backend` is ucx, which has no transport for them",
        ),
        (
            "kind: pyxis, path: /images/vllm.sqsh,",
            "kind: pyxis,",
            "runtime `vllm` of kind pyxis has no `path`; the",
        ),
        (
            "hpcserve: {kind: none}",
            "hpcserve: {kind: pyxis, path: /x}",
            ":51:20: runtime `hpcserve` of kind pyxis; another",
        ),
        ("[/scratch, ", "[scratch, ", "`scratch`, which would depend on the folder that a command is started in"),
        ("'/a:/b'", "'/a:b'", "`/a:b`, which would depend"),
        ("kind: pyxis", "kind: venv", "mounts of runtime `vllm`, which is no container"),
        (
            "gpu: {hosts: 'r1n[1-4],r2n[1-4]'",
            "gpu: {hosts: 'r1n[1-4],r1n2'",
            "node `r1n2` a second time; each node once",
        ),
    ],
)
def test_mistakes_of_transport_runtimes_and_partitions(old: str, new: str, said: str) -> None:
    assert said in mistakes((old, new))


def test_tcp_over_slingshot_may_be_meant() -> None:
    assert site(("kind: ethernet", "kind: slingshot"), ("UCX_TLS: rc", "UCX_TLS: 'rc,tcp'"))


def test_a_rate_behind_an_alias_is_told_once() -> None:
    told = mistakes(("effective_gb_per_s: 38.0", "nominal_gb_per_s: 38.0"))
    assert told.count("without `efficiency`") == 1


def test_mistakes_of_every_part_come_together() -> None:
    told = mistakes(
        ("numa: [0, 1]", "numa: [0]"), (HOST_PATH, "{source: x}"), ("b2, hosts: 'r2n[1-4]'", "b2, hosts: r1n1"),
        ("kinds: {infiniband:", "kinds: {roce:"), ("r2n[1-4]', rail: 1}", "r2n[1-3]', rail: 1}"),
    )  # fmt: skip
    assert [int(line.split(":")[1]) for line in told.splitlines()] == [8, 14, 26, 36, 49]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "account_required: true",
            "account_required: no",
            'is text "no"; true or false was wanted; write true or false',
        ),
        ("cores: 64", "cores: 0123", 'is text "0123"; a whole number was wanted; write a decimal number'),
        ("memory_gib: 512.0", "memory_gib: 1e3", 'is text "1e3"; a number was wanted; write a decimal number'),
        ("name: pods", "name: 012", None),
        ("max_time: 1-00:00:00", "max_time: 1:30:00", None),
        ("max_time: 1-00:00:00", "max_time: 5400", "is number 5400; text was wanted"),
        (
            "version: '24.05.3'",
            "version: 24.05",
            "is number 24.05; text was wanted; put it in quotes if it is meant as text",
        ),
        (
            "    cores: 64\n",
            "    cores: 64\n    cores: 32\n",
            "`cores` a second time; each key once was wanted, it is already on",
        ),
        ("exclusive: true}", "exclusive: on}", "true or false was wanted"),
        ("partitions:", "partitons:", "unknown key `partitons`; a known key was wanted; did you mean `partitions`?"),
    ],
)
def test_what_other_yaml_readers_would_guess_is_told_or_kept_as_written(old: str, new: str, said: str | None) -> None:
    if said is not None:
        assert said in mistakes((old, new))
        return
    loaded = site((old, new))
    assert new.endswith((loaded.name, loaded.partitions["gpu"].max_time))


def test_a_service_with_the_same_traps() -> None:
    with pytest.raises(InputError) as caught:
        load_service("partiton: h100\ngpus_per_nodes: 8\ntime: 1:30:00\naccount: no\n", source="s.yaml", site=None)
    told = str(caught.value)
    assert "s.yaml:1:1: unknown key `partiton`" in told
    assert "did you mean `partition`?" in told
    assert "s.yaml:2:1: unknown key `gpus_per_nodes`" in told
    assert not [line for line in told.splitlines() if line.startswith(("s.yaml:3:", "s.yaml:4:"))]
