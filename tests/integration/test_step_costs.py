"""What a step costs, measured for real: pairs of runs on one worker, CPU time with worker processes, the profiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import ProbeJob
from bisect_train.report.profile import say_profiles
from bisect_train.verdict.outcome import OutcomeKind, judge_outcome, metric_values, recorded_metric
from bisect_train_workers.injection import RECORDER_FOLDER
from tests.support.probes import TinyRepo, fingerprint_of, make_job, make_settings

PROGRAM = """
import torch
torch.manual_seed(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.randn(60000)
for step in range(1000):
    for _ in range(NUM_SORTS):
        rows.sort()
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("sorted", NUM_SORTS, flush=True)
"""
WORKERS = """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, idx):
        sum(range(400_000))
        return torch.ones(4)
if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=NUM_WORKERS):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def pair_of(folder: Path, *, steps: int = 8) -> ProbeJob:
    """Return a job of a program that sorts ten times a step, beside one that sorts once."""
    repo = TinyRepo(folder)
    good, bad = (repo.commit({"train.py": PROGRAM.replace("NUM_SORTS", str(num))}) for num in (1, 10))
    reference = make_job(good, steps=steps).spec
    return replace(make_job(bad, steps=steps, packs=(good.pack,)), reference=reference)


def test_probe_with_a_reference_is_compared_with_it_in_percent(tmp_path: Path) -> None:
    found = fingerprint_of(pair_of(tmp_path / "r"), tmp_path / "n", recorder=RECORDER_FOLDER)
    assert found.reference is not None and found.reference.ending.kind is EndingKind.STOPPED
    assert len(found.reference.ranks[0].steps) == len(found.ranks[0].steps) == 8
    for name in ("step_cpu_s", "step_s"):
        outcome = judge_outcome(found, recorded_metric(name))
        assert outcome.kind is OutcomeKind.MEASURED and outcome.value is not None and outcome.value > 100.0, name


def test_cpu_time_counts_the_workers_of_a_loader(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    commits = [repo.commit({"train.py": WORKERS.replace("NUM_WORKERS", str(num))}) for num in (0, 1)]
    times = []
    for idx, commit in enumerate(commits):
        found = fingerprint_of(make_job(commit, steps=10), tmp_path / f"n{idx}", recorder=RECORDER_FOLDER)
        times.append(sum(metric_values(found, "step_cpu_s")))
    assert times[1] > 0.5 * times[0] > 0.0, times


def test_profile_of_both_sides_names_the_operation_that_grew(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    commits = [repo.commit({"train.py": PROGRAM.replace("NUM_SORTS", str(num))}) for num in (1, 10)]
    settings = make_settings(profile=True, triage=True)
    found = [
        fingerprint_of(make_job(commit, steps=8, settings=settings), tmp_path / "n", recorder=RECORDER_FOLDER)
        for commit in commits
    ]
    said = say_profiles(found)
    assert said[1].startswith("operations that take more CPU time of their own, a step: aten::sort "), said
    assert "communication 0% -> 0%" in said[-1] and "waiting for data 0% -> 0%" in said[-1]
    assert [step.loss for step in found[0].ranks[0].steps] == [step.loss for step in found[1].ranks[0].steps]
