"""Metrics that real programs write into their checkout and output folder, read after they have ended, however they did."""

from __future__ import annotations

from pathlib import Path

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import MetricPattern
from tests.support.probes import TinyRepo, fingerprint_of, job_of, make_job, make_settings

WRITES = """\
import csv, json, sys
from pathlib import Path
out = Path(sys.argv[1], "logs")
out.mkdir(parents=True)
table = csv.writer(open(out / "metrics.csv", "w", newline=""))
table.writerow(["step", "val_loss"])
lines = open("history.jsonl", "w")
for step in range(4):
    table.writerow([step, 2.0 / (step + 1)])
    print(json.dumps({"step": step, "val": {"loss": 3.0 / (step + 1)}}), file=lines)
    print(f"loss {1.0 / (step + 1):.2f}")
"""
PATTERNS = (
    MetricPattern("loss", r"^nothing ([\d.]+)", (r"^loss ([\d.]+)",)),
    MetricPattern("val_loss", source="csv", key="val_loss"),
    MetricPattern("val", source="jsonl", key="val.loss"),
    MetricPattern("tags", source="tensorboard", key="val/loss"),
)
COMMAND = ("python", "train.py", "{out}")


def test_metrics_of_a_program_are_read_from_its_files(tmp_path: Path) -> None:
    settings = make_settings(needs_recorder=False, patterns=PATTERNS)
    shown = fingerprint_of(job_of(tmp_path / "r", WRITES, settings=settings, command=COMMAND, steps=None), tmp_path / "n")
    loss, val_loss, val, tags = shown.metrics
    assert shown.ending.kind is EndingKind.FINISHED
    assert loss.values == (1.0, 0.5, 0.33, 0.25) and loss.origin.decimals == 2
    assert val_loss.values == tuple(2.0 / (step + 1) for step in range(4)) and val_loss.steps == (0, 1, 2, 3)
    assert val_loss.origin.file == "{out}/logs/metrics.csv"
    assert val.values == tuple(3.0 / (step + 1) for step in range(4)) and val.origin.file == "history.jsonl"
    assert (tags.values, tags.origin.note) == ((), "no file matches **/events.out.tfevents.*")


def test_metrics_of_a_killed_program_end_with_their_last_whole_line(tmp_path: Path) -> None:
    program = WRITES + 'lines.write(\'{"step": 4, "val": {"loss": 9.\')\nlines.flush()\nimport os; os.kill(os.getpid(), 9)\n'
    settings = make_settings(needs_recorder=False, patterns=PATTERNS)
    shown = fingerprint_of(job_of(tmp_path / "r", program, settings=settings, command=COMMAND, steps=None), tmp_path / "n")
    assert not shown.ending.is_healthy
    assert shown.metrics[1].values == ()  # never left its buffer
    assert shown.metrics[2].values == tuple(3.0 / (step + 1) for step in range(4))


def test_metrics_of_a_stopped_program_and_of_none_before_it(tmp_path: Path) -> None:
    program = (
        "import fake_training, os\nfor step in range(10):\n    open('metrics.csv', 'a').write(f'{step},{step / 4}\\n')\n"
        "    fake_training.step(1.0)\n"
    )
    settings = make_settings(
        patterns=(MetricPattern("v", source="csv", key="v"), MetricPattern("old", source="csv", key="old"))
    )
    repo = TinyRepo(tmp_path / "r")
    commit = repo.commit({"train.py": program, "metrics.csv": "step,v\n", "kept/metrics.csv": "old\n1\n"})
    shown = fingerprint_of(make_job(commit, settings=settings), tmp_path / "n")
    assert shown.ending.kind is EndingKind.STOPPED
    assert shown.metrics[0].values == (0.0, 0.25, 0.5, 0.75)  # it is stopped where its fourth step begins
    assert shown.metrics[1].values == ()
