"""Whatever is killed, nothing of a probe stays behind: workers, supervisors, ranks in their own sessions, daemons."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bisect_train.core.executor import ProbeFinished, ProbeLost, ProbeProgress
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.injection import RECORDER_FOLDER
from bisect_train_workers.probe_task import NodeTrouble, run_probe
from bisect_train_workers.processes import find_marked, start_mark, sweep_orphans
from tests.support.probes import FAKE_RECORDER, FOREVER, context_of, job_of, make_settings, result_of, run_job

ROOT = Path(__file__).resolve().parents[2]
TWO_RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, '-c', 'import fake_training, time\\nwhile True: time.sleep(0.05)'],
         env=dict(os.environ, RANK=str(rank), WORLD_SIZE='2'), start_new_session=True) for rank in range(2)]
print('begun', flush=True)
for rank in ranks: rank.wait()
"""
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for name in list(os.environ): os.unsetenv(name)
        os.execve(sys.executable, [sys.executable, '-I', '-c', 'import time; time.sleep(300)', 'daemon-of-probe'], {})
    os._exit(0)
time.sleep(0.3)
"""
DEAF = """
import signal, time
for number in (2, 15, 1): signal.signal(number, signal.SIG_IGN)
print('begun', flush=True)
while True: time.sleep(0.05)
"""


def processes_of(job_id: str) -> list[psutil.Process]:
    return find_marked(lambda marker: marker.startswith(job_id + ":"))


def wait_until(is_so: Callable[[], bool], *, limit_s: float = 15.0) -> float:
    """Poll a condition; returns how long it took, seconds."""
    started = time.monotonic()
    while not is_so():
        assert time.monotonic() - started < limit_s, "it did not become so in time"
        time.sleep(0.02)
    return time.monotonic() - started


@contextlib.contextmanager
def worker(
    job: ProbeJob, folder: Path, *, recorder: Path = FAKE_RECORDER, coordinator: tuple[int, int] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A worker process that runs one job."""
    (folder / "job.pickle").write_bytes(pickle.dumps((job, coordinator)))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "workers")])}
    arguments = [sys.executable, "-m", "tests.support.probe_runner", folder / "job.pickle", folder / "n", recorder]
    with subprocess.Popen(arguments, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def supervisor_of(process: subprocess.Popen[str]) -> psutil.Process:
    return child_of(process, "supervisor.py")


def child_of(process: subprocess.Popen[str], file: str) -> psutil.Process:
    (found,) = [child for child in psutil.Process(process.pid).children() if file in " ".join(child.cmdline())]
    return found


@pytest.mark.parametrize(("program", "num"), [(FOREVER, 1), (TWO_RANKS, 3), (DEAF, 1)], ids=["plain", "ranks", "deaf"])
def test_killed_worker_leaves_nothing(tmp_path: Path, program: str, num: int) -> None:
    with worker(job_of(tmp_path / "r", program, id=f"kw{num}{tmp_path.name[-6:]}", ranks=1), tmp_path) as process:
        job_id = f"kw{num}{tmp_path.name[-6:]}"
        wait_until(lambda: len(processes_of(job_id)) >= num)
        process.kill()
        process.wait()
        took_s = wait_until(lambda: not processes_of(job_id), limit_s=3.0)
    assert took_s < 3.0


@pytest.mark.parametrize(("program", "num"), [(FOREVER, 1), (TWO_RANKS, 3)], ids=["plain", "ranks"])
def test_killed_supervisor_leaves_nothing_and_loses_the_probe(tmp_path: Path, program: str, num: int) -> None:
    job_id = f"ks{num}{tmp_path.name[-6:]}"
    with worker(job_of(tmp_path / "r", program, id=job_id), tmp_path) as process:
        wait_until(lambda: len(processes_of(job_id)) >= num)
        if num > 1:  # the ranks' recorders tie them to the launcher a moment after their start
            wait_until(lambda: len(list((tmp_path / "n/probes").glob("*/records/rank*"))) >= num)
        supervisor_of(process).kill()
        wait_until(lambda: not processes_of(job_id), limit_s=3.0)
        output, _ = process.communicate(timeout=10)
    assert "ProbeLost" in output and "supervisor" in output


def test_killed_coordinator_ends_the_probe(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as coordinator:
        who = (coordinator.pid, start_mark(coordinator.pid))
        with worker(job_of(tmp_path / "r", FOREVER, id="kc"), tmp_path, coordinator=who):
            wait_until(lambda: len(processes_of("kc")) == 1)
            coordinator.kill()
            coordinator.wait()
            wait_until(lambda: not processes_of("kc"), limit_s=4.0)


def test_killed_worker_and_supervisor_are_swept_by_the_next_probe(tmp_path: Path) -> None:
    # Ranks without our recorder are tied to nobody, so they outlive both; the next probe finds them by their marker.
    program = TWO_RANKS.replace("[sys.executable, '-c'", "[sys.executable, '-I', '-c'").replace("fake_training, ", "")
    with worker(job_of(tmp_path / "r", program, id="sweep1"), tmp_path) as process:
        wait_until(lambda: len(processes_of("sweep1")) == 3)
        supervisor = supervisor_of(process)
        process.send_signal(signal.SIGSTOP)
        supervisor.kill()
        process.kill()
    wait_until(lambda: len(processes_of("sweep1")) <= 2)  # less if a test beside this one has swept already
    assert result_of(job_of(tmp_path / "r2", "pass\n", settings=make_settings(needs_recorder=False)), tmp_path / "n")
    assert processes_of("sweep1") == []


@pytest.mark.parametrize("has_supervisor", [True, False])
def test_folders_of_a_killed_worker_are_removed(tmp_path: Path, has_supervisor: bool) -> None:
    with worker(job_of(tmp_path / "r", FOREVER, id="folders"), tmp_path) as process:
        wait_until(lambda: len(processes_of("folders")) == 1)
        (left,) = (tmp_path / "n/probes").iterdir()
        process.send_signal(signal.SIGSTOP)
        if not has_supervisor:
            supervisor_of(process).kill()
        process.kill()
        wait_until(lambda: not left.exists(), limit_s=3.0)
    assert not processes_of("folders")


def test_folder_of_a_worker_that_is_killed_on_its_way_out_is_removed(tmp_path: Path) -> None:
    # Ray asks a worker to end and kills it 0.1 s later: here when it has ended the program and not yet removed the folder
    with worker(job_of(tmp_path / "r", FOREVER, id="way-out"), tmp_path) as process:
        wait_until(lambda: len(processes_of("way-out")) == 1)
        (left,) = (tmp_path / "n/probes").iterdir()
        process.send_signal(signal.SIGSTOP)
        supervisor = supervisor_of(process)
        supervisor.terminate()
        wait_until(lambda: supervisor.status() == psutil.STATUS_ZOMBIE)
        assert list(left.glob("*.outcome")), "the supervisor had a worker to tell, and has gone"
        process.kill()
        wait_until(lambda: not left.exists(), limit_s=3.0)


def test_folder_that_no_guard_removes_is_removed_by_the_next_probe(tmp_path: Path) -> None:
    with worker(job_of(tmp_path / "r", FOREVER, id="unguarded"), tmp_path) as process:
        wait_until(lambda: len(processes_of("unguarded")) == 1)
        (left,) = (tmp_path / "n/probes").iterdir()
        process.send_signal(signal.SIGSTOP)
        guard, supervisor = child_of(process, "folder_guard.py"), supervisor_of(process)
        guard.kill()
        supervisor.kill()
        process.kill()
        wait_until(lambda: not processes_of("unguarded"))
    assert left.exists()
    result_of(job_of(tmp_path / "r2", "pass\n", settings=make_settings(needs_recorder=False)), tmp_path / "n")
    assert not left.exists() and not list((tmp_path / "n/probes").iterdir())


def test_sweep_leaves_living_probes_alone(tmp_path: Path) -> None:
    with worker(job_of(tmp_path / "r", FOREVER, id="alive"), tmp_path):
        wait_until(lambda: len(processes_of("alive")) == 1)
        sweep_orphans()
        assert len(processes_of("alive")) == 1


def test_iterator_that_is_closed_ends_the_program(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", DEAF, id="closed")
    running = run_probe(job, context_of(job, tmp_path / "n"))
    for event in running:
        if isinstance(event, ProbeProgress) and event.phase == "run":
            break
    running.close()  # type: ignore[attr-defined]
    assert processes_of("closed") == []


def test_program_that_ignores_signals_ends_at_its_time_limit(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", DEAF, id="deaf", settings=make_settings(timeout_s=1.0))
    assert result_of(job, tmp_path / "n").fingerprint.ending.kind is EndingKind.TIMEOUT
    assert processes_of("deaf") == []


def test_daemon_without_any_environment_is_ended(tmp_path: Path) -> None:
    result_of(job_of(tmp_path / "r", DAEMON, settings=make_settings(needs_recorder=False)), tmp_path / "n")
    names = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert not [name for name in names if name and "daemon-of-probe" in name]


def test_flood_of_output_stays_within_bounds(tmp_path: Path) -> None:
    program = "import os\nblock = b'x' * 65535 + b'\\n'\nfor _ in range(1200): os.write(1, block)\nos.write(1, b'the end\\n')\n"
    result = result_of(job_of(tmp_path / "r", program, settings=make_settings(needs_recorder=False)), tmp_path / "n")
    assert result.log_tail.endswith("the end\n") and len(result.log_tail) == 16_000
    assert any("not kept" in warning for warning in result.warnings)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_cache_that_cannot_be_written_is_trouble_of_the_node(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", "pass\n")
    for place in ("/proc/bisect-train", "/sys/bisect-train"):  # root may write everywhere else
        last = run_job(job, Path(place))[-1]
        assert isinstance(last, (NodeTrouble, ProbeLost)), last
    assert isinstance(last, NodeTrouble) and "/sys/bisect-train" in last.message


@pytest.mark.slow
def test_killed_worker_leaves_no_rank_of_torchrun(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", "import time\nprint('begun')\ntime.sleep(300)\n", id="torchrun", ranks=2)
    with worker(job, tmp_path, recorder=RECORDER_FOLDER) as process:
        wait_until(lambda: len(processes_of("torchrun")) >= 3, limit_s=60.0)
        process.kill()
        wait_until(lambda: not processes_of("torchrun"), limit_s=3.0)


@pytest.mark.slow
def test_two_ranks_of_torch_are_recorded(tmp_path: Path) -> None:
    program = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ntorch.manual_seed(dist.get_rank())\n"
        "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(50):\n    opt.zero_grad(); net(torch.randn(8, 4)).pow(2).mean().backward(); opt.step()\n"
    )
    last = run_job(job_of(tmp_path / "r", program, ranks=2), tmp_path / "n", recorder=RECORDER_FOLDER)[-1]
    assert isinstance(last, ProbeFinished)
    fingerprint = last.result.fingerprint
    assert fingerprint.ending.kind is EndingKind.STOPPED
    assert [len(rank.steps) for rank in fingerprint.ranks] == [3, 3]
    assert fingerprint.ranks[0].steps[0].param_hash == fingerprint.ranks[1].steps[0].param_hash
    assert dict(fingerprint.facts)["world_size"] == "2"
