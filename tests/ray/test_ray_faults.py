"""Local Ray under kill -9, Ctrl-C, cancel and read-only caches: nothing is left behind, nothing is made up."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.executor import ProbeFinished
from bisect_train.core.probe import ProbeJob
from bisect_train_workers import ray_executor
from bisect_train_workers.processes import find_marked
from bisect_train_workers.ray_executor import RayExecutor
from tests.support.probes import FOREVER, job_of, make_settings

ROOT = Path(__file__).resolve().parents[2]


def is_running(job_id: str) -> bool:
    return bool(find_marked(lambda marker: marker.startswith(job_id + ":")))


def living(processes: list[psutil.Process]) -> list[str]:
    names = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:  # where pid 1 is no init, dead orphans stay zombies
                names.append(process.name())
    return names


def wait_until_gone(processes: list[psutil.Process], job_id: str, *, limit_s: float) -> float:
    started = time.monotonic()
    while is_running(job_id) or living(processes):
        assert time.monotonic() - started < limit_s, (living(processes), is_running(job_id))
        time.sleep(0.05)
    return time.monotonic() - started


@contextlib.contextmanager
def coordinator(job: ProbeJob, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A coordinator, leader of its own process group, whose probe has begun."""
    (folder / "job.pickle").write_bytes(pickle.dumps(job))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "workers")])}
    arguments = [sys.executable, "-m", "tests.support.ray_coordinator", folder / "job.pickle", folder / "n"]
    with subprocess.Popen(
        arguments, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "phase='run'" in line:
                    break
            while not is_running(job.id):
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def test_killed_coordinator_takes_ray_and_the_probe_along(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", FOREVER, id="killed-coordinator")
    with coordinator(job, tmp_path) as process:
        all_of_it = psutil.Process(process.pid).children(recursive=True)
        assert len(all_of_it) > 3
        process.kill()
        process.wait()
        wait_until_gone(all_of_it, job.id, limit_s=15.0)


def test_interrupted_coordinator_reports_nothing_untrue_and_leaves_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", FOREVER, id="interrupted")
    with coordinator(job, tmp_path) as process:
        all_of_it = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everything in the foreground gets it
        output, _ = process.communicate(timeout=30)
        wait_until_gone(all_of_it, job.id, limit_s=5.0)
    assert "interrupted" in output and "closed" in output
    assert "ProbeFinished" not in output and "ProbeLost" not in output


def test_cancel_ends_the_program_soon(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", FOREVER, id="cancelled")
    executor = RayExecutor(job.settings, node_home=tmp_path / "n", cpus=1)
    try:
        executor.submit(job)
        while not is_running(job.id):
            executor.wait(0.1)
        executor.cancel(job.id)
        wait_until_gone([], job.id, limit_s=5.0)
        assert executor.wait(0.3) == []
    finally:
        executor.close()


def test_node_that_cannot_write_is_a_machine_error(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", FOREVER)
    executor = RayExecutor(job.settings, node_home=Path("/sys/bisect-train"), cpus=1)
    try:
        executor.submit(job)
        with pytest.raises(MachineError, match="/sys/bisect-train"):
            while True:
                executor.wait(10.0)
    finally:
        executor.close()


def test_worker_does_not_import_from_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, random, sys\nprint(random.random(), sys.path)\nprint('niceness', os.nice(0))\n"
    job = job_of(tmp_path / "r", program, settings=make_settings(needs_recorder=False))
    for name in ("random", "json", "select", "psutil", "bisect_train"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported from the current folder')\n")
    monkeypatch.chdir(tmp_path)
    longest = Path("/tmp") / f"bt-test-{os.getpid()}".ljust(22, "x")  # Ray's sockets in it just fit
    executor = RayExecutor(job.settings, node_home=tmp_path / "n", cpus=1, temp_folder=longest)
    try:
        executor.submit(job)
        events = []
        while not events or not isinstance(events[-1], ProbeFinished):
            events += executor.wait(10.0)
        log = events[-1].result.log_tail
        assert "runtime_resources" not in log and "bisect_train_workers" not in log
        assert f"niceness {os.nice(0)}" in log
        assert list(longest.iterdir())
    finally:
        executor.close()
        longest.rmdir()  # nothing of Ray is left in it


@pytest.mark.parametrize(
    ("wanted", "hint"), [({"cpus": 64.0}, "resources: {cpus: 1}"), ({"gpus": 512.0}, "fewer with --gpus")], ids=["cpus", "gpus"]
)
def test_probe_that_fits_no_node_is_refused_at_once(tmp_path: Path, wanted: dict[str, float], hint: str) -> None:
    job = job_of(tmp_path / "r", FOREVER, settings=make_settings(**wanted))
    executor = RayExecutor(job.settings, cpus=1)
    try:
        for ask in (executor.facts, lambda: executor.submit(job)):
            started = time.monotonic()
            with pytest.raises(InputError, match=r"no node has .*; the largest of 1 has 1 CPUs") as caught:
                ask()
            assert hint in caught.value.hint and caught.value.exit_status == 2
        assert time.monotonic() - started < 5.0  # Ray is there already: it is not asked to wait for such a node
    finally:
        executor.close()


def test_probes_whose_nodes_are_gone_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path / "r", FOREVER, id="nodes-gone")
    executor = RayExecutor(job.settings, node_home=tmp_path / "n", cpus=1)
    try:
        executor.submit(job)
        while not is_running(job.id):
            executor.wait(0.1)
        monkeypatch.setattr(ray_executor, "_LOOK_S", 0.0)
        monkeypatch.setattr(ray_executor, "_nodes", list)
        with pytest.raises(MachineError, match="nodes are gone"):
            for _ in range(20):
                executor.wait(0.1)
    finally:
        executor.close()
