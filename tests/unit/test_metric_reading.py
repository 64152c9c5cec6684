"""From a recipe's metrics to series: which files count, why there is no value, and logs of every kind."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, MetricOrigin, MetricSeries
from bisect_train.core.probe import MetricPattern, RunSettings
from bisect_train.core.question import Question, Range, Rung
from bisect_train_workers.program_log import OTHER_FORMAT, find_metrics, read_log
from bisect_train_workers.sources.places import find_files, is_match, states_of
from bisect_train_workers.sources.reading import FilesBefore, read_metrics
from tests.support.log_files import DATA, LATE_LOSSES, LOSSES, PURGE_STEP, VAL_LOSSES, VAL_STEPS, WANDB_FILE, as_float32

FINISHED, STOPPED, CRASHED = (Ending(kind) for kind in (EndingKind.FINISHED, EndingKind.STOPPED, EndingKind.CRASHED))
CSV = MetricPattern("loss", source="csv", key="loss")


class Probe:
    """The folders of a run: write what was there before, `begin`, write what it writes, `read`."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.out = folder / "checkout", folder / "out"
        self.checkout.mkdir()
        self.out.mkdir()
        self.before: FilesBefore | None = None

    def begin(self, pattern: MetricPattern) -> None:
        self.before = FilesBefore.look((pattern,), checkout=self.checkout, out=self.out)

    def write(self, name: str, content: str | bytes) -> Path:
        path = (self.out if name.startswith("{out}/") else self.checkout) / name.removeprefix("{out}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def read(self, pattern: MetricPattern, *, log: str = "", ending: Ending = FINISHED) -> MetricSeries:
        empty = FilesBefore(((self.checkout, ""), (self.out, "{out}")), {})
        (series,) = read_metrics((pattern,), log, self.before or empty, ending=ending)
        return series


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path)


def test_csv_in_the_output_folder_is_found_with_its_steps_and_digits(probe: Probe) -> None:
    probe.write("{out}/logs/version_0/metrics.csv", "step,loss\n0,2.50\n1,2.25\n")
    series = probe.read(CSV)
    assert (series.values, series.steps) == ((2.5, 2.25), (0, 1))
    assert series.origin == MetricOrigin("csv", "{out}/logs/version_0/metrics.csv", decimals=2, digits=3)


def test_steps_are_left_out_where_one_is_missing(probe: Probe) -> None:
    probe.write("metrics.csv", "step,loss\n0,2.5\n,2.25\n")
    assert probe.read(CSV).steps == ()


def test_events_of_a_restart_are_joined_and_the_redone_steps_replaced(probe: Probe) -> None:
    for path in DATA.glob("events.*"):
        probe.write(f"runs/x/{path.name}", path.read_bytes())
    series = probe.read(MetricPattern("loss", source="tensorboard", key="train/loss"))
    assert series.values == tuple(as_float32(loss) for loss in (*LOSSES[:PURGE_STEP], *LATE_LOSSES))
    assert (series.steps, series.origin.bits) == (tuple(range(12)), 24)


def test_events_of_two_processes_at_once_are_ambiguous(probe: Probe) -> None:
    path = next(DATA.glob("events.*"))
    for name in ("events.out.tfevents.1.a", "events.out.tfevents.1.b"):
        probe.write(f"runs/{name}", path.read_bytes())
    series = probe.read(MetricPattern("loss", source="tensorboard", key="train/loss"))
    assert series.values == () and "were written at the same time" in series.origin.note


def test_wandb_run_and_its_summary(probe: Probe) -> None:
    pattern = MetricPattern("val", source="wandb", key="val.loss")
    path = probe.write("wandb/offline-run-20240101_000000-fixture/run-fixture.wandb", (DATA / WANDB_FILE).read_bytes())
    series = probe.read(pattern)
    assert series.steps == VAL_STEPS and [repr(value) for value in series.values] == [repr(value) for value in VAL_LOSSES]
    probe.write("wandb/offline-run-20240101_000000-fixture/files/wandb-summary.json", '{"val": {"loss": 3.125}, "_step": 11}')
    path.write_bytes(b":W&B")
    series = probe.read(pattern)
    assert (series.values, series.steps) == ((3.125,), (11,)) and "wandb-summary.json" in series.origin.note


def test_mlflow_metric_is_found_by_its_name(probe: Probe) -> None:
    shutil.copytree(DATA, probe.checkout / "data")  # no folder `metrics`
    probe.write("mlruns/0/abc/metrics/val/loss", (DATA / "mlflow-val-loss").read_bytes())
    probe.write("mlruns/0/abc/metrics/loss", "1 7.5 0\n")
    series = probe.read(MetricPattern("v", source="mlflow", key="val/loss"))
    assert series.steps == VAL_STEPS and series.origin.file == "mlruns/0/abc/metrics/val/loss"


def test_newest_trainer_state_counts_and_a_torn_one_does_not(probe: Probe) -> None:
    pattern = MetricPattern("eval_loss", source="json", key="eval_loss")
    for step in (10, 20):
        rows = ", ".join(f'{{"step": {at}, "eval_loss": {30.0 - at}}}' for at in range(10, step + 1, 10))
        probe.write(f"{{out}}/checkpoint-{step}/trainer_state.json", f'{{"global_step": {step}, "log_history": [{rows}]}}')
    probe.write("{out}/checkpoint-30/trainer_state.json", '{"global_step": 30, "log_history": [{"step": 10, "eval')
    series = probe.read(pattern)
    assert (series.values, series.steps) == ((20.0, 10.0), (10, 20))
    assert series.origin.file == "{out}/checkpoint-20/trainer_state.json"


def test_file_that_was_there_before_is_no_result(probe: Probe) -> None:
    path = probe.write("metrics.csv", "loss\n1.5\n")
    probe.begin(CSV)
    series = probe.read(CSV)
    assert series.values == () and series.origin.note == "metrics.csv was there before the run, which did not write it"
    path.write_text("loss\n1.5\n2.5\n")
    assert probe.read(CSV).values == (1.5, 2.5)


def test_several_runs_are_ambiguous_until_one_is_named(probe: Probe) -> None:
    for name in ("a", "b"):
        probe.write(f"runs/{name}/metrics.csv", "loss\n1.5\n")
    note = probe.read(CSV).origin.note
    assert "runs/a/metrics.csv, runs/b/metrics.csv" in note and "`file:`" in note
    assert probe.read(replace(CSV, files=("runs/b/*.csv",))).values == (1.5,)


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("other.csv", "loss\n1\n", "no file matches **/metrics.csv"),
        ("metrics.csv", "step,train_loss\n1,2\n", "metrics.csv has no column loss; it has step, train_loss"),
        ("metrics.csv", "step,loss\n", "metrics.csv has no value of loss"),
        ("metrics.csv", "", "metrics.csv has no value of loss"),
    ],
)
def test_note_says_why_there_is_no_value(probe: Probe, name: str, content: str, note: str) -> None:
    probe.write(name, content)
    assert probe.read(CSV) == MetricSeries("loss", (), (), MetricOrigin("csv", note=note))


def test_store_that_is_damaged_is_told(probe: Probe) -> None:
    probe.write("mlflow.db", b"SQLite format 3\0" + b"x" * 500)
    note = probe.read(MetricPattern("v", source="mlflow", key="v")).origin.note
    assert note.startswith("mlflow.db cannot be read: ")


def test_link_that_leads_out_is_refused_and_told(probe: Probe, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "metrics.csv").write_text("loss\n1.5\n")
    (probe.checkout / "runs").symlink_to(outside)
    (probe.checkout / "metrics.csv").symlink_to(outside / "metrics.csv")
    series = probe.read(replace(CSV, files=("runs/*.csv",)))
    assert series.values == () and "runs leads out of the folder of the run" in series.origin.note
    assert probe.read(CSV).values == ()


def test_link_inside_is_followed_once(probe: Probe) -> None:
    probe.write("runs/1/metrics.csv", "loss\n1.5\n")
    (probe.checkout / "latest").symlink_to("runs/1")
    (probe.checkout / "runs" / "1" / "up").symlink_to("..")
    assert probe.read(replace(CSV, files=("latest/metrics.csv",))).values == (1.5,)
    series = probe.read(CSV)
    assert (series.values, series.origin.file) == ((1.5,), "runs/1/metrics.csv")


def test_pipe_is_never_opened(probe: Probe) -> None:
    os.mkfifo(probe.checkout / "metrics.csv")
    assert probe.read(CSV).values == ()


@pytest.mark.parametrize(
    ("path", "glob", "is_named"),
    [
        ("a/b/c.csv", "**/*.csv", True),
        ("c.csv", "**/*.csv", True),
        ("a/b/c.csv", "*.csv", False),
        ("a/b/c.csv", "a/**", True),
        ("a/b/c.csv", "a/*/c.csv", True),
        ("a/b/c.csv", "a/**/b/c.csv", True),
        ("a/[b]/c", "a/[[]b]/c", True),
        ("a/b.csv", "a", False),
    ],
)
def test_globs_match_whole_paths(path: str, glob: str, is_named: bool) -> None:
    assert is_match(path.split("/"), glob.split("/")) is is_named


def test_out_glob_looks_in_the_output_folder_alone(probe: Probe) -> None:
    probe.write("metrics.csv", "x")
    probe.write("{out}/metrics.csv", "x")
    folders = ((probe.checkout, ""), (probe.out, "{out}"))
    shown = [[item.shown for item in find_files(folders, globs, {}).files] for globs in (("{out}/*.csv",), ("*.csv",))]
    assert shown == [["{out}/metrics.csv"], ["metrics.csv", "{out}/metrics.csv"]]
    assert len(states_of(folders)) == 2


# ---- logs -----------------------------------------------------------------------------------------------------------


def series_of(text: str, *patterns: str) -> MetricSeries:
    return find_metrics(text, [MetricPattern("loss", patterns[0], patterns[1:])])[0]


def test_log_tells_its_digits_and_its_bar() -> None:
    series = series_of("step 1: loss 2.31\nstep 2: loss 12.30\n", r"step (?P<step>\d+): loss (?P<value>[\d.]+)")
    assert series.origin == MetricOrigin(decimals=2, digits=4)
    bar = " 0%| | 0/3\r 33%|#| 1/3 loss=2.50\r 33%|#| 1/3 loss=2.50\r 66%|#| 2/3 loss=2.25\r100%|#| 3/3 loss=2.00\ndone\n"
    series = series_of(bar, r"(?P<step>\d+)/3 loss=(?P<value>[\d.]+)")
    assert (series.values, series.steps, series.origin.is_redrawn) == ((2.5, 2.25, 2.0), (1, 2, 3), True)
    assert not series_of("\r        \rloss 2.5\n", r"loss ([\d.]+)").origin.is_redrawn


def test_log_takes_the_first_pattern_that_matches_anything() -> None:
    old, new = r"val loss ([\d.]+)", r"validation: ([\d.]+)"
    assert series_of("validation: 1.5\n", old, new).values == (1.5,)
    assert series_of("validation: 1.5\nval loss 2.5\n", old, new).values == (2.5,)
    assert series_of("other\n", old, new).origin.note == OTHER_FORMAT


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_log_of_any_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes("\x1b[1mloss 2.5\x1b[0m\r\nloss nan\n".encode(encoding))
    values = series_of(read_log(path), r"^loss ([\d.]+)").values
    assert values[0] == 2.5 and math.isnan(values[1])


def test_log_with_a_latin_1_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("Größe 2.5\n".encode() + "Größe 3.5\n".encode("latin-1"))
    assert series_of(read_log(path), r"Größe ([\d.]+)").values == (2.5, 3.5)


def test_log_with_a_line_of_ten_megabytes_is_searched_at_its_ends(tmp_path: Path) -> None:
    long = "loss 1.5 " + "x" * 10_000_000 + " loss 2.5\n"
    assert series_of(long + "loss 3.5\n" + "y" * 10_000_000, r".*loss ([\d.]+)").values == (1.5, 3.5)
    assert series_of("x" * 10_000_000 + " loss 2.5\n", r".*loss ([\d.]+)").values == (2.5,)
    cut = "a" * 8_180 + " loss 2.31456" + "b" * 20_000
    assert series_of(cut, r"loss ([\d.]+)").values == ()


def test_last_line_of_a_log_counts_unless_the_program_failed(probe: Probe) -> None:
    pattern = MetricPattern("loss", r"loss ([\d.]+)")
    text = "loss 2.5\nloss 2.3"
    assert [probe.read(pattern, log=text, ending=ending).values for ending in (STOPPED, CRASHED)] == [(2.5, 2.3), (2.5,)]


# ---- values that travel -----------------------------------------------------------------------------------------------


def test_patterns_and_origins_come_back_from_json() -> None:
    patterns = (
        MetricPattern("a", "(x)", ("(y)",)),
        MetricPattern("b", source="csv", key="b", step_key="it", files=("*.csv",)),
    )
    question = Question("run", "/r", Range(("a",), "b"), ("x",), RunSettings("python", patterns=patterns), Rung(1))
    assert Question.of_json(question.to_json()).settings.patterns == patterns
    series = MetricSeries("a", (1.0,), (2,), MetricOrigin("csv", "a.csv", 2, 3, None, True, "note"))
    assert Fingerprint.of_json(Fingerprint(FINISHED, metrics=(series,)).to_json()).metrics == (series,)


def test_digest_of_a_plain_pattern_stays_and_others_differ() -> None:
    plain = RunSettings("python", patterns=(MetricPattern("a", "(x)"),))
    assert MetricPattern("a", "(x)").identity == ["a", "(x)"]
    others = [MetricPattern("a", "(x)", ("(y)",)), replace(CSV, name="a"), replace(CSV, name="a", files=("x",))]
    digests = {replace(plain, patterns=(item,)).measure_digest for item in others}
    assert len(digests | {plain.measure_digest}) == 4


@pytest.mark.parametrize(
    ("origin", "value", "unit"),
    [
        (MetricOrigin(decimals=2, digits=3), 2.31, 0.01),
        (MetricOrigin(decimals=5, digits=4), 2.123, 0.001),
        (MetricOrigin(decimals=5, digits=4), 0.01234, 1e-5),
        (MetricOrigin("tensorboard", bits=24), 1.5, 2.0**-23),
        (MetricOrigin("tensorboard", bits=24), 0.0, 0.0),
        (MetricOrigin(decimals=3, digits=3), 0.0, 0.001),
        (MetricOrigin(), 2.0, 0.0),
        (MetricOrigin(decimals=3, digits=3), math.nan, 0.001),
    ],
)
def test_unit_is_the_distance_between_neighbouring_values(origin: MetricOrigin, value: float, unit: float) -> None:
    assert origin.unit_at(value) == pytest.approx(unit, rel=1e-12)
