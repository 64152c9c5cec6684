"""Programs forked from a warm process: what they show is what a fresh process shows, and nothing stays behind."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import ProbeJob, ProbeResult
from bisect_train_workers import environment
from bisect_train_workers.injection import RECORDER_FOLDER
from bisect_train_workers.locks import try_lock
from bisect_train_workers.processes import start_mark
from bisect_train_workers.program import Coordinator
from bisect_train_workers.warm.client import MAX_SERVERS, Target, split_command
from bisect_train_workers.warm.server import wait_for
from tests.support.probes import TinyRepo, context_of, make_job, make_settings, result_of
from tests.support.recorded_training import events_named

TRAINING = """
import atexit, random, sys
import numpy, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.outer = nn.Linear(16, 32), nn.Dropout(0.2), nn.Linear(32, 4)
    def forward(self, x):
        return self.outer(self.drop(self.inner(x).relu()))

atexit.register(print, "exit handler")
print(__name__, sys.argv, sys.path[0], sorted(globals())[:3], "".join({"a", "b", "c", "d", "e"}))
data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=1)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x + random.random() + numpy.random.rand()), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(repr(loss.item()))
"""
STEP = """
import torch
w = torch.nn.Parameter(torch.ones(3)); optimizer = torch.optim.SGD([w], lr=0.1)
def step():
    loss = (w * torch.randn(3)).sum(); optimizer.zero_grad(); loss.backward(); optimizer.step(); print(loss.item())
step()
"""
ENDINGS = {
    "raises": STEP + "def inner():\n    raise ValueError('bad shape 3')\ninner()\n",
    "exits with a number": STEP + "import sys\nsys.exit(7)\n",
    "exits with a text": STEP + "import sys\nsys.exit('no data')\n",
    "ends at once": STEP + "import os\nos._exit(3)\n",
    "is killed": STEP + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "imports what is not there": "import not_a_module_of_anybody\n",
    "has a syntax error": "def f(:\n",
    "leaves a thread": STEP
    + "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.5), print('late'))).start()\n",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a node whose warm process is ready."""
    folder = tmp_path_factory.mktemp("warm")
    fresh = run(job_of(folder / "first", STEP, is_fresh=True), folder / "node")
    assert not fresh.is_warm
    wait_for_servers(folder / "node")
    yield folder / "node"
    end_servers(folder / "node")


def job_of(folder: Path, program: str, *, is_fresh: bool = False, **changes: object) -> ProbeJob:
    commit = TinyRepo(folder).commit({"train.py": program, "package/__init__.py": "", "package/main.py": program})
    settings = make_settings(warm=True, **changes.pop("settings", {}))  # type: ignore[arg-type]
    return dataclasses.replace(make_job(commit, settings=settings, steps=5, **changes), is_fresh=is_fresh)  # type: ignore[arg-type]


def run(job: ProbeJob, home: Path) -> ProbeResult:
    return result_of(job, home, recorder=RECORDER_FOLDER)


def wait_for_servers(home: Path, num: int = 1) -> list[int]:
    deadline = time.monotonic() + 60.0
    while len(list(home.glob("warm/*/socket"))) < num:
        assert time.monotonic() < deadline, "no warm process came up"
        time.sleep(0.05)
    return server_pids(home)


def server_pids(home: Path) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in home.glob("warm/*/state")]


def end_servers(home: Path) -> None:
    for pid in server_pids(home):
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()


def both(folder: Path, program: str, home: Path, **changes: object) -> tuple[ProbeResult, ProbeResult]:
    """Return what a fresh and a forked process of the same program showed."""
    fresh = run(job_of(folder / "fresh", program, is_fresh=True, **changes), home)
    warm = run(job_of(folder / "warm", program, **changes), home)
    assert (fresh.is_warm, warm.is_warm) == (False, True)
    return fresh, warm


@pytest.mark.parametrize("command", [("python", "train.py", "--lr", "1"), ("python", "-u", "-m", "package.main", "x")])
def test_forked_training_is_bitwise_that_of_a_fresh_process(tmp_path: Path, node: Path, command: tuple[str, ...]) -> None:
    fresh, warm = both(tmp_path, TRAINING, node, command=command)
    a, b = fresh.fingerprint.ranks[0], warm.fingerprint.ranks[0]
    assert warm.fingerprint.ending.kind is EndingKind.STOPPED and len(b.steps) == 5
    measured = ("loss", "micro", "grad_norm", "lr", "param_hash", "param_norm", "rng_hash", "batch_hash", "dtypes")
    for name in measured:
        assert [getattr(step, name) for step in a.steps] == [getattr(step, name) for step in b.steps], name
    assert events_named(a, "imports")[0].data == events_named(b, "imports")[0].data
    assert fresh.log_tail == warm.log_tail and "exit handler" in warm.log_tail
    assert fresh.fingerprint.reads is not None and warm.fingerprint.reads is not None
    assert warm.fingerprint.reads.files == fresh.fingerprint.reads.files
    assert warm.fingerprint.reads.doubts == fresh.fingerprint.reads.doubts


@pytest.mark.parametrize("name", ENDINGS)
def test_forked_program_ends_as_a_fresh_one_does(tmp_path: Path, node: Path, name: str) -> None:
    fresh, warm = both(tmp_path, ENDINGS[name], node)
    assert warm.fingerprint.ending == fresh.fingerprint.ending
    assert warm.log_tail == fresh.log_tail


def test_forked_program_at_its_time_limit_shows_its_stacks_and_leaves_nothing(tmp_path: Path, node: Path) -> None:
    program = (
        STEP + "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(97531)'])\n"
    )
    program += "def waits_here():\n    time.sleep(300)\nwaits_here()\n"
    result = run(job_of(tmp_path / "r", program, settings={"timeout_s": 3.0}), node)
    assert result.is_warm and result.fingerprint.ending.kind is EndingKind.TIMEOUT
    assert any("waits_here" in text for _, text in result.stacks)
    assert not any(
        "time.sleep(97531)" in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    )


def test_closing_a_forked_probe_ends_its_program(tmp_path: Path, node: Path) -> None:
    from bisect_train_workers.probe_task import run_probe

    job = job_of(
        tmp_path / "r",
        STEP + f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid()))\nimport time\ntime.sleep(300)\n",
    )
    events = run_probe(job, context_of(job, node, recorder=RECORDER_FOLDER))
    deadline = time.monotonic() + 30.0
    for _ in events:
        if (tmp_path / "pid").exists() or time.monotonic() > deadline:
            break
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    events.close()  # type: ignore[attr-defined]
    assert not psutil.pid_exists(pid)


WORKER = """
import sys
from pathlib import Path
from tests.integration.test_warm_start import job_of, run, STEP
program = STEP + "open(%r, 'w').write(str(__import__('os').getpid()))\\nimport time\\ntime.sleep(300)\\n" % sys.argv[2]
run(job_of(Path(sys.argv[3]), program), Path(sys.argv[1]))
"""


def test_forked_program_ends_when_its_worker_is_killed(tmp_path: Path, node: Path) -> None:
    pid_file = tmp_path / "pid"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(node), str(pid_file), str(tmp_path / "r")])
    deadline = time.monotonic() + 60.0
    while not pid_file.exists() or not pid_file.read_text():
        assert time.monotonic() < deadline and worker.poll() is None
        time.sleep(0.05)
    program = psutil.Process(int(pid_file.read_text()))
    assert program.parent().parent().pid in server_pids(node)  # type: ignore[union-attr]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        program.wait(10.0)
    assert not program.is_running()


def test_server_ends_with_its_coordinator(tmp_path: Path) -> None:
    coordinator = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    job = job_of(tmp_path / "r", STEP)
    context = context_of(job, tmp_path / "node", recorder=RECORDER_FOLDER)
    mark = Coordinator(coordinator.pid, start_mark(coordinator.pid))
    from bisect_train_workers.probe_task import run_probe

    for _ in run_probe(job, dataclasses.replace(context, coordinator=mark)):
        pass
    [pid] = wait_for_servers(tmp_path / "node")
    server = psutil.Process(pid)
    coordinator.kill()
    coordinator.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        server.wait(10.0)
    assert not server.is_running() and not list((tmp_path / "node").glob("warm/*/socket"))


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 2},
        {"command": ("env", "python", "train.py")},
        {"command": ("python", "-B", "train.py")},
        {"launcher": ("nice",)},
        {"settings": {"gpus": 1.0}},
    ],
)
def test_what_a_fork_might_change_starts_fresh(tmp_path: Path, node: Path, changes: dict[str, object]) -> None:
    before = len(server_pids(node))
    result = run(job_of(tmp_path / "r", STEP, **changes), node)
    assert not result.is_warm
    assert len(server_pids(node)) == before


def test_another_environment_gets_a_process_of_its_own_which_is_waited_for(tmp_path: Path) -> None:
    home = tmp_path / "node"
    assert run(job_of(tmp_path / "a", STEP), home).is_warm
    [first] = server_pids(home)
    assert run(job_of(tmp_path / "b", STEP, env=(("OMP_WAIT_POLICY", "active"),)), home).is_warm
    assert run(job_of(tmp_path / "c", STEP), home).is_warm
    assert len(server_pids(home)) == 2 and first in server_pids(home)
    end_servers(home)


@pytest.mark.parametrize(
    ("name", "text", "is_warm"),
    [
        ("statistics.py", "raise RuntimeError('not the one you want')\n", False),
        ("sitecustomize.py", "", False),
        ("src/typing_extensions/__init__.py", "", False),
        ("src/statistics.py", "", True),
        ("numpy/data.txt", "", True),
    ],
)
def test_module_of_the_checkout_that_hides_a_loaded_one_starts_fresh(
    tmp_path: Path, node: Path, name: str, text: str, is_warm: bool
) -> None:
    commit = TinyRepo(tmp_path / "r").commit({"train.py": STEP, name: text})
    job = make_job(commit, settings=make_settings(warm=True), steps=1)
    result = run(job, node)
    assert result.is_warm is is_warm
    if text:
        assert result.fingerprint.ending.kind is EndingKind.CRASHED, "torch itself imports it"


def test_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    home = tmp_path / "node"
    run(job_of(tmp_path / "a", STEP), home)
    [pid] = wait_for_servers(home)
    os.kill(pid, signal.SIGKILL)
    while start_mark(pid):  # a probe that asks while it dies is lost, and run again
        time.sleep(0.01)
    assert run(job_of(tmp_path / "b", STEP), home).is_warm
    [new] = server_pids(home)
    assert new != pid
    end_servers(home)


@pytest.mark.scenario
def test_the_least_used_server_gives_way_to_another_seed(tmp_path: Path) -> None:
    home = tmp_path / "node"
    for seed_idx in range(MAX_SERVERS + 1):
        run(job_of(tmp_path / f"r{seed_idx}", STEP, seed_idx=seed_idx), home)
        wait_for_servers(home, min(seed_idx + 1, MAX_SERVERS))
        time.sleep(0.05)
    deadline = time.monotonic() + 30.0
    while len(alive := [pid for pid in server_pids(home) if start_mark(pid)]) != MAX_SERVERS:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)
    before = server_pids(home)
    assert run(job_of(tmp_path / "first", STEP, seed_idx=0), home).is_warm
    assert set(server_pids(home)) <= set(before), "a search runs the first seed: its process is kept"
    assert run(job_of(tmp_path / "second", STEP, seed_idx=1), home).is_warm
    assert set(server_pids(home)) - set(before), "the second seed's process had given way, so another one was started"
    end_servers(home)


def test_server_behind_another_one_waits_for_it_and_no_longer_than_it_lives(tmp_path: Path) -> None:
    before, own = tmp_path / "before", tmp_path / "own"
    for folder in (before, own):
        folder.mkdir()

    def wait() -> str | None:
        return wait_for(str(before), own=str(own), coordinator=None)

    assert wait() == "", "that one is gone: this one may start"
    lock = try_lock(before / "lock")
    assert lock is not None
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait)
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting.result(0.3)
        (before / "state").write_text(json.dumps({"trouble": "an import started 2 threads"}))
        assert waiting.result(10.0) == "an import started 2 threads", "it would find the same"
    (before / "state").write_text(json.dumps({"trouble": "", "loaded": ["torch"]}))
    assert wait() == ""
    assert wait_for(str(before), own=str(own), coordinator=[1, -1]) is None, "nobody waits for it any more"
    own.rmdir()
    assert wait() is None
    lock.release()


@pytest.mark.parametrize(
    "is_fresh", [True, pytest.param(False, marks=pytest.mark.scenario)], ids=["beside a fresh process", "with a fork"]
)
def test_processes_of_seeds_that_come_soon_are_begun_one_after_the_other(tmp_path: Path, is_fresh: bool) -> None:
    home, job = tmp_path / "node", job_of(tmp_path / "a", STEP)
    assert run(dataclasses.replace(job, seeds_ahead=(1, 2), is_fresh=is_fresh), home).is_warm is not is_fresh
    before = wait_for_servers(home, 3)
    opened = {folder.name.rpartition("-")[2]: (folder / "state").stat().st_ctime for folder in (home / "warm").iterdir()}
    assert list(opened) and sorted(opened, key=opened.__getitem__)[1:] == [environment.hash_seed(1), environment.hash_seed(2)]
    own = dataclasses.replace(job.spec.variant, env=(("PYTHONHASHSEED", "7"),))
    for seed_idx in (1, 2):
        assert run(
            dataclasses.replace(job, id=f"s{seed_idx}", spec=dataclasses.replace(job.spec, seed_idx=seed_idx)), home
        ).is_warm
    assert sorted(server_pids(home)) == sorted(before), "they are what the next seeds are forked from"
    run(dataclasses.replace(job, id="own", spec=dataclasses.replace(job.spec, variant=own), seeds_ahead=(3,)), home)
    assert len(server_pids(home)) == 4, "where the variant says the hash seed, it is that of all seeds"
    end_servers(home)


def test_split_command_knows_plain_python_only() -> None:
    python = sys.executable
    assert split_command([python, "train.py", "-m"], python) == Target("script", "train.py", ("-m",))
    assert split_command([python, "-u", "-m", "a.b", "--x"], python) == Target("module", "a.b", ("--x",))
    for argv in (
        [],
        [python],
        [python, "-c", "1"],
        [python, "-O", "t.py"],
        ["torchrun", "t.py"],
        [python, "-m", "torch.distributed.run"],
    ):
        assert split_command(argv, python) is None, argv
