"""Early verdicts on real trainings: real commits, real processes; what is stopped early is stopped for real."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisect_train.changes.space import build_space
from bisect_train.coordinator import Coordinator, Ended
from bisect_train.coordinator import early as early_verdicts
from bisect_train.core.early import BitRule, EarlyRules, Shown, digest_step, steps_of
from bisect_train.core.executor import ExecutorEvent
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import MachineFacts, ProbeJob, Rung, RunSettings
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.injection import RECORDER_FOLDER
from bisect_train_workers.probe_task import run_probe
from tests.support.git_repos import UserRepo, question_of
from tests.support.probes import context_of, job_of, make_settings, result_of

NUM_COMMITS, CULPRIT, NUM_STEPS = 14, 8, 40

TRAIN = """\
import time
import torch
import settings
import version

torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range({num_steps}):
    if step == 4:
        optimizer.param_groups[0]["lr"] = settings.LR
    x = torch.randn(64, 8)
    loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep({pause_s})
print("whole", flush=True)
"""


@dataclass
class HereExecutor:
    """Runs probes one after the other in this process's own children, as a worker does."""

    home: Path
    _jobs: list[ProbeJob] = field(default_factory=list)

    def facts(self) -> MachineFacts:
        """Return one slot."""
        return MachineFacts("here", "here", 1)

    def adopt(self, settings: RunSettings) -> None:
        """Nothing depends on them."""

    def submit(self, job: ProbeJob) -> None:
        """Queue a job."""
        self._jobs.append(job)

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Run the next job to its end."""
        return list(self._run(self._jobs.pop(0))) if self._jobs else []

    def _run(self, job: ProbeJob) -> Iterator[ExecutorEvent]:
        for event in run_probe(job, context_of(job, self.home, recorder=RECORDER_FOLDER)):
            assert isinstance(event, ExecutorEvent), event
            yield event

    def cancel(self, job_id: str) -> None:
        """Drop a queued job."""
        self._jobs = [job for job in self._jobs if job.id != job_id]

    def close(self) -> None:
        """Nothing is left."""


@pytest.mark.slow
@pytest.mark.scenario
def test_search_of_real_trainings_stops_early_and_names_the_culprit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # so short a training is not worth stopping, the less the busier the machine: as if a start took no time
    monkeypatch.setattr(early_verdicts, "_share_of_steps", lambda results: 1.0)
    repo = UserRepo.create(tmp_path / "repo")
    commits = [
        repo.commit(
            {
                "train.py": TRAIN.format(num_steps=NUM_STEPS, pause_s=0.04),
                "settings.py": f"LR = {0.0005 if idx >= CULPRIT else 0.05}\n",
                "version.py": f"NUMBER = {idx - (idx == CULPRIT)}\n",  # what is not read needs no run
            },
            message=f"commit {idx}",
        )
        for idx in range(NUM_COMMITS)
    ]
    asked = question_of(commits[0], commits[-1])
    asked = replace(asked, repo=str(repo.path), settings=make_settings(warm=True), rung=Rung(NUM_STEPS))
    asked = replace(asked, limits=replace(asked.limits, early=True))
    store = MemoryStore()
    name, space = store.create(asked.to_json(), title="real"), build_space(repo.open(tmp_path / "home"), asked)
    with store.lock(name):
        executor = HereExecutor(tmp_path / "node")
        ended = Coordinator(asked, bisection_id=name, space=space, store=store, executor=executor).run()
    assert [space.changes[idx].id for idx in _culprits(ended)] == [commits[CULPRIT]]
    stopped = [probe.result for probe in store.results(name) if probe.result.fingerprint.early is not None]
    assert stopped
    for result in stopped:
        early = result.fingerprint.early
        assert early is not None and early.how == "bits" and result.fingerprint.ending.kind is EndingKind.STOPPED
        assert early.step < result.fingerprint.num_steps < NUM_STEPS
        assert "whole" not in result.log_tail
    with_whole = {probe.key: probe.result.fingerprint.num_steps for probe in store.results(name) if probe.spec["attempt"]}
    assert with_whole and set(with_whole.values()) == {NUM_STEPS}, "a proof runs to its end"


def _culprits(ended: Ended) -> list[int]:
    assert ended.answer.status == "isolated", ended.answer
    return [idx for culprit in ended.answer.culprits for idx in culprit.changes]


def _rules_of(fingerprint_steps: dict[int, str], *, num_ranks: int) -> EarlyRules:
    steps = tuple(fingerprint_steps)
    through = tuple(fingerprint_steps[step] for step in steps[:5])
    bits = BitRule(through, (*through[:-1], "other"), Shown("g", 1.0), Shown("b", 2.0))
    return EarlyRules("loss", num_ranks, steps, bits)


@pytest.mark.parametrize("num_ranks", [1, pytest.param(2, marks=pytest.mark.scenario)])
def test_running_program_is_ended_as_soon_as_its_bits_are_enough(tmp_path: Path, num_ranks: int) -> None:
    """The rule comes from a whole short run; the same program with longer pauses is stopped long before its end."""
    group = "import os, torch.distributed as d\nif int(os.environ.get('WORLD_SIZE', '1')) > 1: d.init_process_group('gloo')\n"
    program = group + TRAIN.replace("import settings\nimport version\n", "").replace("settings.LR", "0.01")
    quick = job_of(tmp_path / "quick", program.format(num_steps=12, pause_s=0.0), steps=12, ranks=num_ranks)
    whole = result_of(quick, tmp_path / "home", recorder=RECORDER_FOLDER).fingerprint
    digests = {step: digest_step(records) for step, records in steps_of(whole.ranks).items()}
    assert len(digests) == 12 and len(whole.ranks) == num_ranks
    slow = job_of(tmp_path / "slow", program.format(num_steps=12, pause_s=1.0), steps=12, ranks=num_ranks, id="slow")
    result = result_of(
        replace(slow, early=_rules_of(digests, num_ranks=num_ranks)), tmp_path / "home", recorder=RECORDER_FOLDER
    )
    early = result.fingerprint.early
    assert early is not None and (early.like, early.step, early.how) == ("good", 4, "bits")
    reads = result.fingerprint.reads
    assert reads is not None and "train.py" in reads.files
    assert reads.is_complete == (num_ranks == 1), "what led to the verdict was told; torchrun was ended before it told"
    assert 6 <= result.fingerprint.num_steps < 12
    assert result.fingerprint.ending.kind is EndingKind.STOPPED and "whole" not in result.log_tail
    other = {step: digest if step != 2 else "other" for step, digest in digests.items()}
    unlike = replace(quick, id="unlike", early=_rules_of(other, num_ranks=num_ranks))
    again = result_of(unlike, tmp_path / "home", recorder=RECORDER_FOLDER).fingerprint
    assert again.early is None and again.num_steps == 12
