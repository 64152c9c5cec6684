"""The curves of recorded runs: from W&B and MLflow, whatever they call them and however they count steps."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.changes import run_history
from bisect_train.changes.run_history import RunHistory, history_of_folder, history_of_rows
from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import Fingerprint, StepRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage import Asked, triage
from tests.support.log_files import DATA, LOSSES, WANDB_FILE
from tests.support.triage_runs import two_ranks


def history(folder: Path) -> RunHistory:
    return history_of_folder(str(folder))


def mlflow_run(folder: Path, metrics: dict[str, str]) -> Path:
    (folder / "params").mkdir(parents=True)
    (folder / "meta.yaml").write_text("run_id: a\n")
    for name, text in metrics.items():
        path = folder / "metrics" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_offline_run_of_wandb_has_the_losses_that_were_logged(tmp_path: Path) -> None:
    shutil.copy(DATA / WANDB_FILE, tmp_path / WANDB_FILE)
    found = history(tmp_path)
    assert found.curves == {"loss": dict(enumerate(LOSSES))} and found.names == {"loss": "train/loss"}
    assert not found.counts_steps, "a call each, as far as anybody can tell"
    (tmp_path / "files").mkdir()
    assert history(tmp_path / "files").curves == found.curves
    result = found.to_result()
    assert result.fingerprint.ending.is_healthy and [step.loss for step in result.fingerprint.ranks[0].steps] == list(LOSSES)


def test_run_of_mlflow_is_read_and_evaluations_are_no_training_loss(tmp_path: Path) -> None:
    losses = "".join(f"1700000000 {5.0 - step} {step}\n" for step in (1, 2, 3))
    run = mlflow_run(tmp_path / "r", {"train/loss": losses, "val_loss": losses, "learning_rate": "1700000000 0.1 1\n"})
    found = history(run)
    assert found.curves == {"loss": {0: 4.0, 1: 3.0, 2: 2.0}, "lr": {0: 0.1}}, "what is counted from 1 is counted from 0"
    assert dict(found.names) == {"loss": "train/loss", "lr": "learning_rate"}
    assert not found.counts_steps, "they may be epochs"
    tens = "".join(f"1700000000 {5.0 - step} {10 * step}\n" for step in (0, 1, 2))
    assert history(mlflow_run(tmp_path / "tens", {"loss": tens})).counts_steps
    (rank,) = found.to_result().fingerprint.ranks
    assert [step.lr for step in rank.steps] == [(0.1,), (), ()]


def test_runs_without_curves_say_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no loss, gradient norm or learning rate") as caught:
        history(mlflow_run(tmp_path / "r", {"acc": "1700000000 0.5 1\n"}))
    assert "it has acc; known are `loss`, `train_loss`" in caught.value.hint
    with pytest.raises(InputError, match="with growing steps"):
        history(mlflow_run(tmp_path / "still", {"loss": "1700000000 3.0 0\n1700000000 2.0 0\n"}))
    secret = tmp_path / "secret"
    secret.write_text("1700000000 3.0 0\n")
    linked = mlflow_run(tmp_path / "linked", {"acc": "1700000000 0.5 1\n"})
    (linked / "metrics" / "loss").symlink_to(secret)
    with pytest.raises(InputError, match="no loss"):
        history(linked)
    for name in ("nothing", "~nobody-is-called-so/run"):
        with pytest.raises(InputError, match="no folder of a run"):
            history_of_folder(name)
    with pytest.raises(InputError, match="no loss"):
        history_of_rows("wandb:a/b/c", [])
    monkeypatch.setattr(run_history, "MAX_FILE_BYTES", 1)
    shutil.copy(DATA / WANDB_FILE, tmp_path / WANDB_FILE)
    with pytest.raises(InputError, match="at most 0 are read"):
        history(tmp_path)


@pytest.mark.parametrize(
    ("rows", "wanted", "counts_steps"),
    [
        ([{"_step": 0, "loss": 3.0}, {"_step": 1, "loss": 2.0, "lr": 0.1}], {"loss": {0: 3.0, 1: 2.0}, "lr": {1: 0.1}}, False),
        # evaluations between them: every call is counted, so these are no steps
        ([{"_step": 0, "loss": 3.0}, {"_step": 1, "val": 1}, {"_step": 2, "loss": 2.0}], {"loss": {0: 3.0, 2: 2.0}}, False),
        ([{"_step": 50 * n, "loss": 3.0 - n} for n in (0, 1)], {"loss": {0: 3.0, 50: 2.0}}, True),
        # a logging call each ten steps: the trainer's own count is the one that counts
        ([{"_step": n, "train/loss": 3.0 - n, "train/global_step": 10 * n} for n in (1, 2)], {"loss": {9: 2.0, 19: 1.0}}, True),
        (
            [{"_step": n, "loss": 3.0, "step": step} for n, step in enumerate((49, 99, 149))],
            {"loss": {49: 3.0, 99: 3.0, 149: 3.0}},
            True,
        ),
        (
            [{"_step": 0, "loss": "NaN", "grad_norm": None, "lr": True}, {"_step": 1, "loss": math.inf}],
            {"loss": {0: math.inf}},
            False,
        ),
        ([{"_step": n, "loss": value} for n, value in ((0, 10**400), (2, 1), (5, 2))], {"loss": {2: 1.0, 5: 2.0}}, True),
        # some rows lack that count, or it begins anew in each epoch: then the calls are counted
        ([{"_step": 0, "iter": 0, "loss": 3.0}, {"_step": 1, "loss": 2.0}], {"loss": {0: 3.0, 1: 2.0}}, False),
        ([{"_step": n, "iter": n % 2, "loss": 3.0 - n} for n in range(3)], {"loss": {0: 3.0, 1: 2.0, 2: 1.0}}, False),
        ([{"_step": 0, "grad_norm": 2.0, "gradients": {"a": 1}}, {"loss": 1.0}], {"grad_norm": {0: 2.0}}, False),
    ],
    ids=["calls", "other calls", "given", "own count", "from 49", "not finite", "huge", "gaps", "each epoch", "no step"],
)
def test_rows_become_curves(rows: list[dict[str, Any]], wanted: dict[str, dict[int, float]], counts_steps: bool) -> None:
    found = history_of_rows("wandb:a/b/c", rows)
    assert (found.curves, found.counts_steps) == (wanted, counts_steps)


def beside(run: Fingerprint, rows: list[dict[str, Any]], **asked: Any) -> list[str]:
    """Return the symptoms of a run beside a recorded one."""
    recorded = history_of_rows("wandb:a/b/c", rows).to_result()
    said = triage(ProbeResult("", run), recorded=recorded, asked=Asked(ranks=len(run.ranks), **asked))
    return [finding.symptom for finding in said.findings]


def changed(run: Fingerprint, **parts: Any) -> Fingerprint:
    ranks = [replace(rank, steps=tuple(replace(step, **parts) for step in rank.steps)) for rank in run.ranks]
    return replace(run, ranks=tuple(ranks))


LONG = two_ranks(num_steps=60)
ROWS = [
    {"_step": item.step, "loss": item.loss, "lr": 0.2, "grad_norm": 1.0}
    for item in two_ranks(num_steps=60, seed_idx=5).ranks[0].steps
]


@pytest.mark.parametrize("every", [1, 3])
def test_healthy_run_beside_another_machines_curves_is_healthy(every: int) -> None:
    assert beside(LONG, ROWS[::every]) == []
    assert "plateau" in beside(changed(LONG, loss=3.0, micro=(3.0,)), ROWS[::every])


@pytest.mark.parametrize(
    "rows",
    [
        [{"_step": n, "loss": 3.0 * 0.9 ** (n // 10), "lr": 0.2 if n < 30 else 0.02} for n in range(60)],  # steps of its own
        [{"_step": n, "loss": 3.0 - n / 60, "lr": 0.2} for n in range(0, 60, 10)],
        [{"_step": n, "lr": 0.2} for n in range(60)],
    ],
    ids=["schedule", "averages", "no loss"],
)
def test_what_a_recorded_run_does_not_tell_is_held_against_nobody(rows: list[dict[str, Any]]) -> None:
    spiky = replace(LONG, ranks=tuple(replace(rank, steps=tuple(_spike(step) for step in rank.steps)) for rank in LONG.ranks))
    for run in (LONG, spiky, changed(LONG, missing_grads=2), changed(LONG, step_s=9.0), changed(LONG, moved=0.5)):
        alone = triage(ProbeResult("", run), asked=Asked(ranks=2)).findings
        assert beside(run, rows) == [finding.symptom for finding in alone]


def _spike(step: StepRecord) -> StepRecord:
    return replace(step, loss=9.0, micro=(9.0,)) if step.step % 6 == 5 else step


@pytest.mark.parametrize("parts", [{"grad_norm": 1e-9}, {"lr": (0.0,)}, {"loss": 3.0, "micro": (3.0,)}], ids=str)
def test_what_a_run_shows_by_itself_is_told_whatever_the_recorded_one_lacks(parts: dict[str, Any]) -> None:
    run = changed(two_ranks(num_steps=120), **parts)
    alone = [finding.symptom for finding in triage(ProbeResult("", run), asked=Asked(ranks=2)).findings]
    assert alone
    for rows in (ROWS[:5], [{"_step": 0, "lr": 0.1}, {"_step": 9, "lr": 0.1}]):
        assert set(alone) <= set(beside(run, rows))
