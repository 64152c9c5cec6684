"""A probe on two nodes that are two cache folders of this machine: what each node does and says, without Ray."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import EndingKind, Fingerprint
from bisect_train.core.probe import MetricPattern, ProbeJob
from bisect_train_workers.command import Share
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.gang import Gang, Member
from bisect_train_workers.gang_member import GangMember, Prepared
from bisect_train_workers.node import NodeError
from bisect_train_workers.probe_task import NodeTrouble, run_probe
from tests.support.probes import TinyRepo, context_of, make_job, make_settings

COMMAND = ("python", "start.py", "{node_rank}", "{nnodes}", "{local_ranks}", "{ranks}", "{master_addr}", "{port}")
START = """\
import os, subprocess, sys
node, nodes, local, ranks, address, port = sys.argv[1:]
assert (nodes, local, ranks, address) == ("2", "1", "2", "127.0.0.1") and os.environ["MASTER_PORT"] == port
env = {**os.environ, "RANK": node, "WORLD_SIZE": ranks}
sys.exit(subprocess.run([sys.executable, "train.py"], env=env).returncode)
"""
TRAIN = """\
import os, time, fake_training
rank = int(os.environ["RANK"])
for idx in range(4):
    FAULT
    print(f"rank {rank} step {idx} loss{rank} {rank + idx}.5", flush=True)
    fake_training.step(rank + idx / 8)
"""


@dataclass
class LocalGang:
    """Members in this process; see `gang.Gang`."""

    members: Sequence[GangMember]
    warnings: list[str] = field(default_factory=list)

    def prepared(self) -> Generator[ExecutorEvent, None, Sequence[Member]]:
        yield from ()
        for member in self.members:
            found: Prepared = member.prepare()
            if found.cannot_start:
                raise CannotStartError(found.cannot_start)
            if found.node_trouble:
                raise NodeError(found.node_trouble)
            assert not found.lost
            self.warnings += found.warnings
        return self.members


def run_on_two(job: ProbeJob, folder: Path, *, member_home: Path | None = None) -> ExecutorEvent | NodeTrouble:
    """Run a probe of two ranks, one in each of two homes; return its last event."""
    homes = (folder / "first", member_home or folder / "second")

    @contextlib.contextmanager
    def gather(job: ProbeJob, port: int) -> Iterator[Gang]:
        member = GangMember(job, context_of(job, homes[1]), share=Share(1, 2), port=port)
        try:
            yield LocalGang([member])
        finally:
            member.end()

    *_, last = run_probe(job, replace(context_of(job, homes[0]), gather=gather))
    for home in homes:
        assert not list(home.glob("probes/*")), "nothing is left"
    return last


def job_of_two(folder: Path, fault: str = "pass", *, steps: int | None = 3, **settings: Any) -> ProbeJob:
    commit = TinyRepo(folder / "repo").commit({"start.py": START, "train.py": TRAIN.replace("FAULT", fault)})
    asked = make_settings(ranks_per_node=1, nodes=2, **settings)
    return make_job(commit, command=COMMAND, ranks=2, steps=steps, settings=asked)


def fingerprint_of(last: ExecutorEvent | NodeTrouble) -> Fingerprint:
    assert isinstance(last, ProbeFinished), last
    return last.result.fingerprint


def test_each_node_runs_its_share_and_one_record_comes_back(tmp_path: Path) -> None:
    last = run_on_two(job_of_two(tmp_path), tmp_path)
    found = fingerprint_of(last)
    assert found.ending.kind is EndingKind.STOPPED
    assert [[step.loss for step in rank.steps] for rank in found.ranks] == [[0.0, 0.125, 0.25], [1.0, 1.125, 1.25]]
    for home in ("first", "second"):
        assert list((tmp_path / home / "repos").glob("*/mirror.git"))


def test_metric_is_read_where_it_was_printed(tmp_path: Path) -> None:
    patterns = (MetricPattern("first", "loss0 ([0-9.]+)"), MetricPattern("last", "loss1 ([0-9.]+)"))
    found = fingerprint_of(run_on_two(job_of_two(tmp_path, steps=None, patterns=patterns), tmp_path))
    assert found.ending.kind is EndingKind.FINISHED
    assert [series.values for series in found.metrics] == [(0.5, 1.5, 2.5, 3.5), (1.5, 2.5, 3.5, 4.5)]


def test_exception_on_the_other_node_is_the_failure(tmp_path: Path) -> None:
    found = fingerprint_of(run_on_two(job_of_two(tmp_path, "if rank and idx == 1: raise KeyError('vocab')"), tmp_path))
    assert (found.ending.kind, found.ending.message) == (EndingKind.CRASHED, "KeyError: 'vocab'")


CANNOT_MEET = "RuntimeError('Gloo connectFullMesh failed with: timed out connecting: SO_ERROR: No route to host')"


def test_nodes_that_cannot_reach_each_other_say_nothing_of_the_variant(tmp_path: Path) -> None:
    last = run_on_two(job_of_two(tmp_path, f"raise {CANNOT_MEET}"), tmp_path)
    assert isinstance(last, ProbeLost) and "could not reach each other" in last.reason and "connectFullMesh" in last.reason


def test_connection_that_fails_after_steps_is_the_variants(tmp_path: Path) -> None:
    found = fingerprint_of(run_on_two(job_of_two(tmp_path, f"if idx == 2: raise {CANNOT_MEET}"), tmp_path))
    assert found.ending.kind is EndingKind.CRASHED


def test_ranks_that_lost_each_other_without_any_failure_say_nothing_of_the_variant(tmp_path: Path) -> None:
    fault = "if idx == 2: raise RuntimeError('Connection reset by peer')"
    last = run_on_two(job_of_two(tmp_path, fault, steps=None), tmp_path)
    assert isinstance(last, ProbeLost) and "lost each other" in last.reason


def test_cause_on_one_node_outweighs_its_effect_on_the_other(tmp_path: Path) -> None:
    fault = "if idx == 2: raise (ValueError('the cause') if rank else RuntimeError('Connection reset by peer'))"
    found = fingerprint_of(run_on_two(job_of_two(tmp_path, fault, steps=None), tmp_path))
    assert (found.ending.kind, found.ending.message) == (EndingKind.CRASHED, "ValueError: the cause")


def test_program_that_complains_about_names_and_fails_by_itself_has_failed(tmp_path: Path) -> None:
    fault = "print('Temporary failure in name resolution'); raise ValueError('vocab')"
    found = fingerprint_of(run_on_two(job_of_two(tmp_path, fault), tmp_path))
    assert (found.ending.kind, found.ending.message) == (EndingKind.CRASHED, "ValueError: vocab")


def test_metric_of_a_long_log_is_read_as_a_whole(tmp_path: Path) -> None:
    fault = "[print(f'loss{rank} {n}.0', 'x' * 60) for n in range(500)] if idx == 0 else None"
    patterns = (MetricPattern("last", "loss1 ([0-9.]+)"),)
    found = fingerprint_of(run_on_two(job_of_two(tmp_path, fault, steps=None, patterns=patterns), tmp_path))
    assert len(found.metrics[0].values) == 504


def test_node_whose_setup_fails_says_so(tmp_path: Path) -> None:
    job = job_of_two(tmp_path, setup=(("python", "-c", "import os; assert 'second' not in os.getcwd(), 'no compiler'"),))
    found = fingerprint_of(run_on_two(job, tmp_path))
    assert found.ending.kind is EndingKind.CANNOT_START
    assert found.ending.message.startswith("on ") and "no compiler" in found.ending.message


def test_node_whose_disk_cannot_be_written_is_named(tmp_path: Path) -> None:
    last = run_on_two(job_of_two(tmp_path), tmp_path, member_home=Path("/sys/bisect-train"))
    assert isinstance(last, NodeTrouble) and "/sys/bisect-train" in last.message


ENDING = """
import sys, time
from pathlib import Path
from tests.integration.test_gang_members import GangMember, Share, context_of, job_of_two
folder = Path(sys.argv[1])
again = "os.environ['PYTHONPATH'].split(':')[0] + '/again'"
job = job_of_two(folder, f"[os.makedirs({again}, exist_ok=True) for _ in iter(int, 1)]")
member = GangMember(job, context_of(job, folder / "second"), share=Share(1, 2), port=23456)
prepared = member.prepare()
assert prepared.warnings == () and not prepared.cannot_start, prepared
member.start()
while not list(folder.glob("second/probes/*/records/rank1-*")):
    time.sleep(0.05)
"""


def test_process_that_ends_ends_the_program_before_its_folder_goes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("second/repos/*/mirror.git")) and not list(tmp_path.glob("second/probes/*"))


def test_hang_on_both_nodes_is_a_hang_of_the_run(tmp_path: Path) -> None:
    job = job_of_two(tmp_path, "time.sleep(60) if idx == 1 + rank else None", timeout_s=4.0)
    ending = fingerprint_of(run_on_two(job, tmp_path)).ending
    assert (ending.kind, ending.signature) == (EndingKind.TIMEOUT, "timeout: hang"), ending
