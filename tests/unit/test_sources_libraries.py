"""Files written by the libraries as they are installed here, where they are: read back equal to what was logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train_workers.sources.mlflow_metrics import read_metric_file, read_store
from bisect_train_workers.sources.points import Points
from bisect_train_workers.sources.tensorboard_events import read_events
from bisect_train_workers.sources.wandb_records import read_history
from tests.support import log_files
from tests.support.log_files import DATA, VAL_STEPS, WANDB_FILE, missing_library


def need(*names: str) -> None:
    if missing := missing_library(*names):
        pytest.skip(f"{missing} is not installed here")


def text_of(points: Points) -> str:
    return repr((points.steps, points.values))


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_writes_what_the_kept_files_hold(tmp_path: Path) -> None:
    need("tensorboard", "tensorboardX")
    log_files.write_tensorboard(tmp_path)
    for kept in DATA.rglob("events.*"):
        made = (tmp_path / kept.relative_to(DATA)).read_bytes()
        for tag in ("train/loss", "val/loss", "acc"):
            assert text_of(read_events(made, tag)) == text_of(read_events(kept.read_bytes(), tag))


@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_what_the_kept_file_holds(tmp_path: Path) -> None:
    need("wandb")
    log_files.write_wandb(tmp_path)
    made, kept = ((folder / WANDB_FILE).read_bytes() for folder in (tmp_path, DATA))
    for key in ("train/loss", "val.loss"):
        assert text_of(read_history(made, key)) == text_of(read_history(kept, key))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_writes_what_the_kept_file_holds(tmp_path: Path) -> None:
    need("mlflow")
    log_files.write_mlflow(tmp_path)
    made, kept = ((folder / "mlflow-val-loss").read_bytes() for folder in (tmp_path, DATA))
    assert text_of(read_metric_file(made, is_whole=True)) == text_of(read_metric_file(kept, is_whole=True))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_store_is_read_back(tmp_path: Path) -> None:
    need("mlflow", "sqlalchemy", "alembic")
    import mlflow

    log_files.log_mlflow(f"sqlite:///{tmp_path}/mlflow.db", mlflow)
    (points,) = read_store(tmp_path / "mlflow.db", "val/loss").values()
    assert points.steps == list(VAL_STEPS) and repr(points.values) == repr(list(log_files.VAL_LOSSES))
