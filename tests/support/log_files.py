"""Files of metrics as the real libraries write them: what is logged, and how the files under `tests/data/logs` were made.

`python -m tests.support.log_files DIR` writes them anew, with tensorboard, tensorboardX, wandb and mlflow installed. Names of
machines, users and folders are left out of what is kept.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data" / "logs"
LOSSES = tuple(10.0 / (step + 3) for step in range(12))
VAL_LOSSES = (4.25, 3.5, math.nan, 3.125)
VAL_STEPS = (0, 4, 8, 11)
PURGE_STEP = 7
LATE_LOSSES = tuple(1.0 / (step + 1) for step in range(PURGE_STEP, 12))
TF_VALUES = (0.5, 0.25, 0.125)
CONFIG = {"lr": 0.1, "model": {"depth": 2}}
WANDB_FILE = "run-fixture.wandb"


def missing_library(*names: str) -> str:
    """Return which of these libraries is not installed, "" if all are."""
    return next((name for name in names if importlib.util.find_spec(name) is None), "")


def as_float32(value: float) -> float:
    """Return a value as an event file holds it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def write_tensorboard(folder: Path) -> None:
    """Write two event files of one run: the second one purges from PURGE_STEP on, and has scalars as TensorFlow writes them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboardX import SummaryWriter

    with tempfile.TemporaryDirectory() as made:
        first = SummaryWriter(made, write_to_disk=True)
        for step, loss in enumerate(LOSSES):
            first.add_scalar("train/loss", loss, step, walltime=1_700_000_000.0 + step)
            if step in VAL_STEPS:
                first.add_scalar("val/loss", VAL_LOSSES[VAL_STEPS.index(step)], step, walltime=1_700_000_000.5 + step)
        first.close()
        (written,) = Path(made).iterdir()
        shutil.copy(written, folder / "events.out.tfevents.1700000000.host.1.0")
    with tempfile.TemporaryDirectory() as made:
        again = SummaryWriter(made, purge_step=PURGE_STEP)
        for step, loss in enumerate(LATE_LOSSES, start=PURGE_STEP):
            again.add_scalar("train/loss", loss, step)
        again.close()
        (written,) = Path(made).iterdir()
        shutil.copy(written, folder / "events.out.tfevents.1700000100.host.2.0")
    with tempfile.TemporaryDirectory() as made:
        writer = EventFileWriter(made)
        for step, value in enumerate(TF_VALUES):
            summary = scalar_pb("acc", value)
            writer.add_event(Event(wall_time=1_700_000_200.0 + step, step=step, summary=summary))
        writer.close()
        (written,) = Path(made).iterdir()
        (folder / "tf").mkdir(exist_ok=True)
        shutil.copy(written, folder / "tf" / "events.out.tfevents.1700000200.host.3.0")


_WANDB_PROGRAM = """
import sys
import wandb
from tests.support.log_files import CONFIG, LOSSES, VAL_LOSSES, VAL_STEPS
settings = wandb.Settings(host="host", program="train.py", root_dir=".", run_id="fixture")
run = wandb.init(project="p", dir=".", config=CONFIG, settings=settings)
for step, loss in enumerate(LOSSES):
    more = {"val": {"loss": VAL_LOSSES[VAL_STEPS.index(step)]}} if step in VAL_STEPS else {}
    run.log({"train/loss": loss, **more})
run.finish()
"""


def write_wandb(folder: Path) -> None:
    """Write the record file of an offline run in a git repository."""
    root = Path(__file__).resolve().parents[2]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "WANDB_"))}
    env.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DISABLE_CODE="true", WANDB_CONSOLE="off")
    env.update(WANDB_X_DISABLE_STATS="true", PYTHONPATH=str(root), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    for name in ("AUTHOR", "COMMITTER"):
        env.update({f"GIT_{name}_NAME": "t", f"GIT_{name}_EMAIL": "t@example.com", f"GIT_{name}_DATE": "1700000000 +0000"})
    with tempfile.TemporaryDirectory() as made:
        for command in (["git", "init", "-q"], ["git", "commit", "-q", "--allow-empty", "-m", "first"]):
            subprocess.run(command, cwd=made, env=env, check=True)
        subprocess.run(["git", "remote", "add", "origin", "https://example.com/a/b.git"], cwd=made, env=env, check=True)
        subprocess.run([sys.executable, "-c", _WANDB_PROGRAM, "--lr", "0.1"], cwd=made, env=env, check=True)
        (written,) = Path(made).glob("wandb/offline-run-*/run-*.wandb")
        (folder / WANDB_FILE).write_bytes(_without_machine(written.read_bytes()))


def _without_machine(data: bytes) -> bytes:
    """Return a record file without the names of the machine that wrote it, its records by the library's own messages."""
    from wandb.proto import wandb_internal_pb2 as messages

    from bisect_train_workers.sources.wandb_records import records_of

    written = bytearray(data[:7])
    for part in records_of(data):
        record = messages.Record()
        record.ParseFromString(part)
        if record.HasField("environment") and record.environment.executable:
            record.environment.executable, record.environment.os = "python", "Linux"
        body = record.SerializeToString()
        assert 32768 - len(written) % 32768 > len(body) + 7, "a record goes over a block"
        written += struct.pack("<IHB", zlib.crc32(b"\1" + body), len(body), 1) + body
    return bytes(written)


def write_mlflow(folder: Path) -> None:
    """Write the metric file of a run in a file store."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    with tempfile.TemporaryDirectory() as made:
        log_mlflow(f"file:{made}/mlruns", mlflow)
        (written,) = Path(made).glob("mlruns/*/*/metrics/val/loss")
        shutil.copy(written, folder / "mlflow-val-loss")


def log_mlflow(uri: str, mlflow: object) -> None:
    """Log the validation losses to a store."""
    api: object = mlflow
    api.set_tracking_uri(uri)  # type: ignore[attr-defined]
    with api.start_run():  # type: ignore[attr-defined]
        api.log_params({"lr": 0.1})  # type: ignore[attr-defined]
        for step, value in zip(VAL_STEPS, VAL_LOSSES, strict=True):
            api.log_metric("val/loss", value, step=step)  # type: ignore[attr-defined]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for write in (write_tensorboard, write_wandb, write_mlflow):
        write(target)
