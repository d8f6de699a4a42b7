"""The submit path up to the launcher, and what it leaves on disk."""

import errno
import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from hpcserve import deploy
from hpcserve.deploy import (
    Prepared,
    find_site,
    job_directory,
    launch,
    list_sites,
    plan_service,
    prepare,
    read_text,
    submit_path,
    write_job,
)
from hpcserve.discovery import DISK, read_dir_record
from hpcserve.errors import HpcserveError, InputError, NotFoundError, PlacementError, SchedulerError
from hpcserve.nouns import JobHandle
from hpcserve.site import load_service, load_site
from tests.deploy.conftest import safetensors
from tests.scheduler.conftest import Commands, commands

__all__ = ["commands"]

INDEX = {"weight_map": {name: f"model-0000{name}-of-00004.safetensors" for name in "1234"}}


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}


def test_planning_and_preparing_change_nothing(tmp_path: Path, site_file: Path, service_file: Path) -> None:
    before = tree(tmp_path)
    prepared = prepare(plan_service(service_file, site=str(site_file)))
    assert prepared.launcher == "local"
    assert prepared.directory == tmp_path / "jobs" / "sim-1"
    assert tree(tmp_path) == before


def test_what_the_engine_cannot_start_is_planned_and_no_job_is_made_of_it(
    tmp_path: Path, site_file: Path, service_file: Path
) -> None:
    text = service_file.read_text(encoding="utf-8")
    assert text.count("    workers: 1\n") == 2
    service_file.write_text(
        text.replace("    workers: 1\n", "    workers: 1\n    pipeline_parallel: 2\n"), encoding="utf-8"
    )
    before = tree(tmp_path)
    planned = plan_service(service_file, site=str(site_file))
    assert [worker.stages for worker in planned.plan.workers] == [2, 2]
    with pytest.raises(PlacementError, match="hands no KV over between workers of several"):
        prepare(planned)
    assert tree(tmp_path) == before


def test_a_written_job_is_private_and_holds_what_was_given(tmp_path: Path, site_file: Path, service_file: Path) -> None:
    prepared = write_job(prepare(plan_service(service_file, site=str(site_file))))
    directory = prepared.directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for name in ("api.key", "engine.key"):
        path = directory / "keys" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(bytes.fromhex(path.read_text())) == 32
    assert (directory / "service.yaml").read_bytes() == service_file.read_bytes()
    assert (directory / "site.yaml").read_bytes() == site_file.read_bytes()
    assert {path.name for path in directory.iterdir() if path.is_dir()} == {
        "endpoints",
        "heartbeats",
        "keys",
        "logs",
        "nodes",
        "runtimes",
        "templates",
        "workers",
    }
    assert os.access(directory / "local.sh", os.X_OK)
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["sim-1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "hpcserve.measurement/1", "site": "b", "day": "2026-05-31", "tool": "t"}', "of site `b`"),
        ("{", "what `hpcserve site measure` writes was wanted"),
    ],
)
def test_a_measurement_of_another_site_or_none_is_refused(
    tmp_path: Path, site_file: Path, service_file: Path, text: str, said: str
) -> None:
    path = tmp_path / "measured.json"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        plan_service(service_file, site=str(site_file), measured=path)


def test_every_job_has_keys_of_its_own(site_file: Path, service_file: Path) -> None:
    planned = plan_service(service_file, site=str(site_file))
    first, second = prepare(planned), prepare(planned)
    assert len({*first.keys.values(), *second.keys.values()}) == 4


def test_numbers_go_up_and_are_not_used_again(tmp_path: Path, site_file: Path, service_file: Path) -> None:
    planned = plan_service(service_file, site=str(site_file))
    for number in (1, 2, 3):
        assert write_job(prepare(planned)).directory.name == f"sim-{number}"
    (tmp_path / "jobs" / "sim-1").rename(tmp_path / "elsewhere")
    assert prepare(planned).directory.name == "sim-4"


def test_a_number_taken_meanwhile_gives_the_next_and_a_script_that_says_so(site_file: Path, service_file: Path) -> None:
    planned = plan_service(service_file, site=str(site_file))
    first, second = prepare(planned), prepare(planned)
    assert first.directory == second.directory
    write_job(first)
    written = write_job(second)
    assert written.directory.name == "sim-2"
    assert "sim-2" in (written.directory / "local.sh").read_text()
    assert "sim-1" not in (written.directory / "local.sh").read_text()


def test_many_submits_at_once_get_a_directory_each(tmp_path: Path, site_file: Path, service_file: Path) -> None:
    planned = plan_service(service_file, site=str(site_file))
    names: list[str] = []
    threads = [
        threading.Thread(target=lambda: names.append(write_job(prepare(planned)).directory.name)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted({path.name for path in (tmp_path / "jobs").iterdir()})
    assert len(set(names)) == 8


def test_a_full_disk_leaves_nothing(
    tmp_path: Path, site_file: Path, service_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(plan_service(service_file, site=str(site_file)))
    written: list[Path] = []

    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(DISK, name)

        def create(self, path: Path, data: bytes) -> None:
            written.append(path)
            if len(written) == 5:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            DISK.create(path, data)

    monkeypatch.setattr(job_directory, "DISK", Full())
    with pytest.raises(HpcserveError, match="No space left"):
        write_job(prepared)
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\udcffb"])
def test_a_folder_that_no_script_can_name_is_refused(site_file: Path, service_file: Path, name: str) -> None:
    with pytest.raises(HpcserveError, match="job directory"):
        prepare(plan_service(service_file, site=str(site_file)), jobs_dir=Path(f"/tmp/{name}"))  # noqa: S108 - not made


@pytest.fixture
def for_slurm(tmp_path: Path, service_file: Path, site_file: Path) -> Prepared:
    """A job that is written and would be submitted to Slurm."""
    onebox = find_site("onebox").read_text().replace("~/.cache/hpcserve/models", str(tmp_path / "models"))
    site_file.write_text(onebox)
    service_file.write_text(service_file.read_text().replace("partition: null", "partition: main"))
    prepared = write_job(prepare(plan_service(service_file, site=str(site_file)), jobs_dir=tmp_path / "jobs"))
    assert prepared.directory.is_dir()
    return prepared


def test_a_refused_submission_leaves_no_directory(tmp_path: Path, for_slurm: Prepared, commands: Commands) -> None:
    commands(sbatch='echo "sbatch: error: Invalid account" >&2; exit 1')
    with pytest.raises(SchedulerError, match="Invalid account"):
        launch(for_slurm)
    assert list((tmp_path / "jobs").iterdir()) == []


def test_a_job_whose_id_cannot_be_noted_is_ended_again(
    for_slurm: Prepared, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _noun: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(submit_path, "write_record", full)
    folder = commands(sbatch="echo 77", squeue='echo "77|PENDING|Priority||N/A"', scancel="exit 0")
    with pytest.raises(SchedulerError, match=r"job 77 was submitted and ended again.*No space left"):
        launch(for_slurm)
    assert (folder / "scancel.words").read_text() == "77\n"


def test_ctrl_c_while_a_job_is_submitted_loses_no_job(for_slurm: Prepared, commands: Commands) -> None:
    commands(sbatch="kill -INT $PPID; sleep 0.2; echo 77")
    with pytest.raises(KeyboardInterrupt):
        launch(for_slurm)
    handle = read_dir_record(for_slurm.directory, "job.json", JobHandle)
    assert handle is not None
    assert handle.id == "77"


def test_slurm_needs_a_partition(site_file: Path, service_file: Path) -> None:
    with pytest.raises(SchedulerError, match="partition"):
        prepare(plan_service(service_file, site=str(site_file)), launcher="slurm")


def check(site_file: Path, service_file: Path) -> deploy.ModelFiles:
    site = load_site(read_text(site_file), source="site")
    text = read_text(service_file).replace("engine: sim", "engine: vllm")
    found = deploy.read_model(load_service(text, source="service", site=site), site)
    found.require_whole()
    return found


def test_a_whole_model_is_measured(site_file: Path, service_file: Path, model: Path) -> None:
    found = check(site_file, service_file)
    assert found.directory == model
    assert found.weights_bytes == (model / "model.safetensors").stat().st_size


def test_a_missing_shard_is_named_before_anything_is_submitted(
    site_file: Path, service_file: Path, model: Path
) -> None:
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    for name in (INDEX["weight_map"][number] for number in "124"):
        safetensors(model / name)
    with pytest.raises(NotFoundError, match=r"incomplete: model-00003-of-00004\.safetensors missing"):
        check(site_file, service_file)


@pytest.mark.parametrize("cut_bytes", [1, 16, 40, 1000])
def test_a_shard_that_is_cut_short_is_named(site_file: Path, service_file: Path, model: Path, cut_bytes: int) -> None:
    safetensors(model / "model.safetensors", cut_bytes=cut_bytes)
    with pytest.raises(NotFoundError, match=r"model\.safetensors is cut short"):
        check(site_file, service_file)


@pytest.mark.parametrize(("name", "said"), [("config.json", "no config.json"), ("model.safetensors", "no .*weights")])
def test_a_missing_file_is_named(site_file: Path, service_file: Path, model: Path, name: str, said: str) -> None:
    (model / name).unlink()
    with pytest.raises(NotFoundError, match=said):
        check(site_file, service_file)


def test_a_broken_index_is_told_with_its_file(site_file: Path, service_file: Path, model: Path) -> None:
    (model / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(InputError, match=r"index\.json:1:1"):
        check(site_file, service_file)


def test_the_config_alone_is_enough_to_plan_and_not_to_submit(site_file: Path, service_file: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    service_file.write_text(service_file.read_text().replace("engine: sim", "engine: vllm"))
    planned = plan_service(service_file, site=str(site_file))
    assert planned.plan.workers
    with pytest.raises(NotFoundError, match=r"no \*\.safetensors weights"):
        prepare(planned)


def test_the_simulated_engine_needs_no_weights(site_file: Path, service_file: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert plan_service(service_file, site=str(site_file)).shape.weights_bytes is None


def test_a_quantised_kv_cache_is_planned_with(site_file: Path, service_file: Path, model: Path) -> None:
    whole = plan_service(service_file, site=str(site_file)).plan.paths[0].kv_bytes
    (model / "hf_quant_config.json").write_text(
        '{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}'
    )
    assert plan_service(service_file, site=str(site_file)).plan.paths[0].kv_bytes == whole // 2
    (model / "hf_quant_config.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"hf_quant_config\.json"):
        plan_service(service_file, site=str(site_file))


def test_a_value_that_no_process_can_take_is_refused_with_its_place(site_file: Path, service_file: Path) -> None:
    text = service_file.read_text().replace("    workers: 1\n", '    workers: 1\n    env: {A: "x\\0y"}\n', 1)
    service_file.write_text(text)
    with pytest.raises(InputError) as caught:
        plan_service(service_file, site=str(site_file))
    (mistake,) = caught.value.mistakes
    line = text.splitlines()[mistake.line - 1]
    assert line[mistake.column - 1 :].startswith('"x\\0y"')


def test_what_hpcserve_sets_itself_is_refused_with_its_place(site_file: Path, service_file: Path) -> None:
    text = service_file.read_text() + 'args: [--port, "1"]\n'
    service_file.write_text(text)
    with pytest.raises(InputError) as caught:
        plan_service(service_file, site=str(site_file))
    assert caught.value.mistakes[0].line == len(text.splitlines())


def test_sites_are_found_in_the_users_folder_before_the_shipped_ones(
    tmp_path: Path, site_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = list_sites()
    assert {"onebox", "local"} <= set(shipped)
    own = tmp_path / "config" / "hpcserve" / "sites"
    own.mkdir(parents=True)
    (own / "local.yaml").write_text(site_file.read_text())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert find_site("local") == own / "local.yaml"
    assert find_site("onebox") == shipped["onebox"]
    assert find_site(str(site_file)) == site_file
    with pytest.raises(NotFoundError, match="did you mean `onebox`"):
        find_site("onebx")
    with pytest.raises(NotFoundError, match="no site file"):
        find_site("./onebox.yaml")


def test_a_file_that_is_not_utf8_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nbc: \xe9\n")
    with pytest.raises(InputError) as caught:
        read_text(path)
    assert (caught.value.mistakes[0].line, caught.value.mistakes[0].column) == (2, 5)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFoundError):
            read_text(missing)


def test_what_is_no_file_that_people_write_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.yaml", tmp_path / "large.yaml"
    os.mkfifo(pipe)
    with pytest.raises(NotFoundError, match="a named pipe; a regular file was wanted"):
        read_text(pipe)
    with large.open("wb") as file:
        file.truncate(2**20 + 1)
    with pytest.raises(InputError, match=r"large.yaml:1:1: 1048577 bytes; at most 1048576 bytes"):
        read_text(large)
