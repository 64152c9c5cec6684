"""The curves of recorded runs: from W&B and MLflow, whatever they call them and however they count steps."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.changes.run_folder import read_run_folder
from bisect_train.changes.run_history import RunHistory, history_of_folder, history_of_rows
from bisect_train.core.errors import InputError
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage import Asked, triage
from tests.support.log_files import DATA, LOSSES, WANDB_FILE
from tests.support.triage_runs import two_ranks


def history(folder: Path) -> RunHistory:
    return history_of_folder(read_run_folder(folder), folder)


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
    result = found.to_result()
    assert result.fingerprint.ending.is_healthy and [step.loss for step in result.fingerprint.ranks[0].steps] == list(LOSSES)


def test_run_of_mlflow_is_read_and_evaluations_are_no_training_loss(tmp_path: Path) -> None:
    losses = "".join(f"1700000000 {5.0 - step} {step}\n" for step in (1, 2, 3))
    run = mlflow_run(tmp_path / "r", {"train/loss": losses, "val_loss": losses, "learning_rate": "1700000000 0.1 1\n"})
    found = history(run)
    assert found.curves == {"loss": {0: 4.0, 1: 3.0, 2: 2.0}, "lr": {0: 0.1}}, "what is counted from 1 is counted from 0"
    assert dict(found.names) == {"loss": "train/loss", "lr": "learning_rate"}
    (rank,) = found.to_result().fingerprint.ranks
    assert [step.lr for step in rank.steps] == [(0.1,), (), ()]


def test_runs_without_curves_say_what_they_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no loss, gradient norm or learning rate") as caught:
        history(mlflow_run(tmp_path / "r", {"acc": "1700000000 0.5 1\n"}))
    assert "it has acc; known are `loss`, `train_loss`" in caught.value.hint
    (tmp_path / "h" / ".hydra").mkdir(parents=True)
    (tmp_path / "h" / ".hydra" / "config.yaml").write_text("lr: 1\n")
    with pytest.raises(InputError, match="a hydra folder has no curves"):
        history(tmp_path / "h")
    with pytest.raises(InputError, match="no loss"):
        history_of_rows("wandb:a/b/c", [])


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([{"_step": 0, "loss": 3.0}, {"_step": 1, "loss": 2.0, "lr": 0.1}], {"loss": {0: 3.0, 1: 2.0}, "lr": {1: 0.1}}),
        # a logging call each ten steps: the trainer's own count is the one that counts
        ([{"_step": n, "train/loss": 3.0 - n, "train/global_step": 10 * n} for n in (1, 2)], {"loss": {9: 2.0, 19: 1.0}}),
        ([{"_step": 0, "loss": "NaN", "grad_norm": None}, {"_step": 1, "loss": math.inf}], {"loss": {0: math.inf}}),
        # some rows lack that count: then the calls are counted
        ([{"_step": 0, "iter": 0, "loss": 3.0}, {"_step": 1, "loss": 2.0}], {"loss": {0: 3.0, 1: 2.0}}),
        ([{"_step": 0, "grad_norm": 2.0, "gradients": {"a": 1}}, {"loss": 1.0}], {"grad_norm": {0: 2.0}}),
    ],
    ids=["plain", "own count", "not finite", "count with gaps", "no step"],
)
def test_rows_become_curves(rows: list[dict[str, Any]], wanted: dict[str, dict[int, float]]) -> None:
    assert history_of_rows("wandb:a/b/c", rows).curves == wanted


@pytest.mark.parametrize("every", [1, 3])
def test_healthy_run_beside_another_machines_curves_is_healthy(every: int) -> None:
    asked = Asked(steps=60, ranks=2, is_same_seed=False)
    theirs = two_ranks(num_steps=60, seed_idx=5).ranks[0].steps[::every]
    rows = [{"_step": item.step, "loss": item.loss, "lr": 0.2, "grad_norm": item.grad_norm} for item in theirs]
    base = history_of_rows("wandb:a/b/c", rows).to_result()
    healthy = two_ranks(num_steps=60)
    assert triage(ProbeResult("", healthy), baseline=base, asked=asked).findings == ()
    steps = tuple(replace(step, loss=3.0, micro=(3.0,)) for step in healthy.ranks[0].steps)
    flat = replace(healthy, ranks=tuple(replace(rank, steps=steps) for rank in healthy.ranks))
    assert "plateau" in [item.symptom for item in triage(ProbeResult("", flat), baseline=base, asked=asked).findings]
