"""Triage on the command line: symptoms as criteria, closer looks, `probe --triage`, `compare`, with simulated probes."""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.cli import singles
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeResult
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedRun
from tests.support.command_bench import CULPRIT, Bench, Script, culprits_of
from tests.support.triage_runs import ANOMALY_LOG, DETAIL_LOG, dealt, hanging, overlapping, two_ranks

RUN = ("run", "--steps", "12", "--ranks", "2", "--quiet")
TRAINING = ("--", "python", "train.py")
LONG = two_ranks(num_steps=40)


@pytest.fixture
def triaged(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The bench, with single probes simulated as well."""

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[Executor]:
        yield bench.lab.executor(bench.script)

    monkeypatch.setattr(singles, "open_executor", open_executor)
    return bench


def holds_culprit(bench: Bench, job: ProbeJob) -> bool:
    return bench.lab.culprit in bench.lab.parts_of(job)


def scripted(bench: Bench, sick: Fingerprint | ProbeResult | None = None, *, again: ProbeResult | None = None) -> Script:
    """Return a script: healthy runs without the culprit, overlapping samples (or `sick`) with it, `again` in a closer look.

    Every job that is started is noted in `bench.lab.ran` by what is special about it.
    """

    def script(job: ProbeJob) -> SimulatedRun:
        settings, seed = job.settings, job.spec.seed_idx
        closer = "anomaly" if settings.anomaly else "detail" if settings.debug_env else ""
        bench.lab.ran.append(f"{closer} {'triage' if settings.triage else 'plain'}".strip())
        if not holds_culprit(bench, job):
            return SimulatedRun(two_ranks(seed_idx=seed))
        shown = again if closer and again else sick or two_ranks(overlapping, seed_idx=seed)
        result = shown if isinstance(shown, ProbeResult) else ProbeResult("", shown)
        return SimulatedRun(result.fingerprint, result=result)

    return script


def ends_of(bench: Bench) -> tuple[str, ...]:
    return ("--good", bench.commit(0), "--bad", bench.commit(-1))


def reported(bench: Bench, *options: str) -> dict[str, Any]:
    """Ask for the lab's range and return the report."""
    place = bench.lab.home / "report.json"
    bench.call(*RUN, *ends_of(bench), *options, "--json", str(place), *TRAINING)
    data: dict[str, Any] = json.loads(place.read_text())
    return data


# ---- a symptom is the criterion -----------------------------------------------------------------------------------


def test_run_by_a_symptom_isolates_the_commit_and_tells_what_it_did(triaged: Bench, tmp_path: Path) -> None:
    triaged.script = scripted(triaged)
    place = tmp_path / "out"
    out = triaged.succeed(*RUN, *ends_of(triaged), "--symptom", "overlapping_samples", "--out", str(place), *TRAINING)
    assert "makes training show overlapping_samples" in out.replace("\n", " ")
    assert "What it did to the run" in out and "silent distributed - overlapping_samples, stage: data" in out
    report = json.loads((place / "report.json").read_text())
    assert culprits_of(report) == [triaged.commit(CULPRIT)] and report["kind_of_change"] == "worse"
    assert report["triage"]["findings"][0]["symptom"] == "overlapping_samples"
    assert len(report["triage"]["ranks"]) == 2 and report["triage"]["second_look"] is None
    assert "What it did to the run" in (place / "report.html").read_text()
    assert set(triaged.lab.ran) == {"triage"}, "probes of a question about a symptom record what triage needs"


def test_run_by_a_derived_metric_records_what_it_needs(triaged: Bench) -> None:
    triaged.script = scripted(triaged)
    report = reported(triaged, "--metric", "coverage", "--min-effect", "0.1")
    assert culprits_of(report) == [triaged.commit(CULPRIT)]
    effect = report["culprits"][0]["effect"]
    assert effect["metric"] == "coverage" and effect["good"] == 1.0 and effect["bad"] < 0.7
    assert set(triaged.lab.ran) == {"triage"}


def test_run_that_the_metric_does_not_reproduce_prints_the_symptom_and_the_command(triaged: Bench) -> None:
    triaged.script = scripted(triaged)
    status, out, _ = triaged.call(*RUN, *ends_of(triaged), *TRAINING)
    assert status == 4
    assert "triage of the bad end shows: overlapping_samples" in out.replace("\n", " ")
    assert "--symptom overlapping_samples -- python train.py" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--symptom", "overlaping_samples"), "did you mean overlapping_samples?"),
        (("--symptom", "slower"), "shows only against a baseline"),
        (("--symptom", "hang", "--criterion", "exact"), "contradict each other"),
        (("--symptom", "hang", "--judge", "true"), "contradict each other"),
    ],
)
def test_run_refuses_a_symptom_that_cannot_decide(triaged: Bench, args: tuple[str, ...], said: str) -> None:
    assert said in triaged.refuse(*RUN, *ends_of(triaged), *args, *TRAINING)
    assert triaged.lab.ran == []


def test_symptom_help_lists_the_names_by_category(triaged: Bench) -> None:
    out = triaged.succeed("run", "--symptom", "help")
    assert "silent distributed:" in out and "overlapping_samples" in out
    assert "(needs a baseline" in next(line for line in out.splitlines() if line.strip().startswith("slower "))


def test_dry_run_says_that_a_symptom_decides(triaged: Bench) -> None:
    out = triaged.succeed(*RUN, *ends_of(triaged), "--symptom", "overlapping_samples", "--dry-run", *TRAINING)
    assert "decides   whether a run shows overlapping_samples" in out and triaged.lab.ran == []


# ---- the closer look ----------------------------------------------------------------------------------------------


def nan_again() -> ProbeResult:
    return ProbeResult("", two_ranks(num_steps=4, nan_from=3), log_tail=ANOMALY_LOG)


def test_run_that_ends_in_nan_looks_closer_once_and_names_the_operation(triaged: Bench) -> None:
    triaged.script = scripted(triaged, two_ranks(nan_from=3), again=nan_again())
    report = reported(triaged)
    assert culprits_of(report) == [triaged.commit(CULPRIT)] and report["kind_of_change"] == "nan"
    second = report["triage"]["second_look"]
    assert second["kind"] == "anomaly" and second["said"][0].startswith("SqrtBackward0") and second["probe"]
    assert triaged.lab.ran.count("anomaly triage") == 1
    again = triaged.report("resume")
    assert triaged.lab.ran.count("anomaly triage") == 1 and again["triage"]["second_look"] == second
    assert "SqrtBackward0" in triaged.succeed("report")


def test_run_that_hangs_looks_closer_in_detail(triaged: Bench) -> None:
    stuck = hanging()
    triaged.script = scripted(triaged, stuck, again=replace(stuck, log_tail=DETAIL_LOG))
    report = reported(triaged)
    assert report["kind_of_change"] == "hang" and report["triage"]["category"] == "stopped"
    assert "rank 1: barrier" in report["triage"]["second_look"]["said"][0]
    assert [stack["rank"] for stack in report["triage"]["stacks"]] == [0, 1]
    own = sum(event.kind == "probe_finished" for event in triaged.events())
    assert report["cost"]["probes"] >= own


def test_run_without_a_second_look_makes_none(triaged: Bench) -> None:
    triaged.script = scripted(triaged, two_ranks(nan_from=3), again=nan_again())
    report = reported(triaged, "--no-second-look")
    assert culprits_of(report) == [triaged.commit(CULPRIT)]
    assert report["triage"]["second_look"] is None and "anomaly triage" not in triaged.lab.ran


def test_run_whose_budget_is_spent_says_why_it_did_not_look_closer(triaged: Bench) -> None:
    triaged.script = scripted(triaged, two_ranks(nan_from=3), again=nan_again())
    reported(triaged, "--no-reuse")
    with triaged.store() as store:
        run = next(item for item in store.list() if item.question["kind"] == "run")
        used = sum(event.kind == "probe_finished" for event in store.events(run.id))
    triaged.lab.ran.clear()
    report = reported(triaged, "--no-reuse", "--no-descend", "--max-probes", str(used))
    assert report["status"] == "isolated"
    assert report["triage"]["second_look"]["reason"] == f"the budget of {used} probes is spent"
    assert "anomaly triage" not in triaged.lab.ran


def test_run_interrupted_in_the_closer_look_goes_on_with_it(triaged: Bench) -> None:
    whole = scripted(triaged, two_ranks(nan_from=3), again=nan_again())

    def script(job: ProbeJob) -> SimulatedRun:
        if job.settings.anomaly:
            raise KeyboardInterrupt
        return whole(job)

    triaged.script = script
    status, _, err = triaged.call(*RUN, *ends_of(triaged), *TRAINING)
    assert status == 130 and "resume" in err
    triaged.script = whole
    num_before = len(triaged.lab.ran)
    report = triaged.report("resume")
    assert report["triage"]["second_look"]["said"][0].startswith("SqrtBackward0")
    assert triaged.lab.ran[num_before:] == ["anomaly triage"], "no finished probe is run again"


def test_run_whose_closer_look_is_lost_keeps_its_answer(triaged: Bench) -> None:
    whole = scripted(triaged, two_ranks(nan_from=3))

    def script(job: ProbeJob) -> SimulatedRun:
        return SimulatedRun(None, reason="the node died") if job.settings.anomaly else whole(job)

    triaged.script = script
    report = reported(triaged)
    assert report["status"] == "isolated" and "the node died" in report["triage"]["second_look"]["reason"]


# ---- one run, and two ---------------------------------------------------------------------------------------------


def test_probe_triage_of_a_healthy_run_says_that_nothing_was_seen(triaged: Bench, tmp_path: Path) -> None:
    triaged.script = scripted(triaged)
    place = tmp_path / "probe.json"
    out = triaged.succeed(
        "probe", "--triage", "--rev", triaged.commit(0), "--ranks", "2", "--steps", "12", "--json", str(place), *TRAINING
    )
    assert "Triage: nothing was seen" in out and "Cannot be seen in such a run" in out
    assert json.loads(place.read_text())["triage"]["findings"] == []


def test_probe_triage_shows_findings_and_writes_them(triaged: Bench, tmp_path: Path) -> None:
    triaged.script = scripted(triaged)
    args = ("--rev", triaged.commit(-1), "--ranks", "2", "--steps", "12", "--out", str(tmp_path))
    out = triaged.succeed("probe", "--triage", *args, *TRAINING)
    assert "1. overlapping_samples" in out and "look first at:" in out
    assert json.loads((tmp_path / "probe.json").read_text())["triage"]["symptom"] == "overlapping_samples"
    assert "Triage" not in triaged.succeed("probe", *args, *TRAINING)


def test_probe_triage_of_a_hang_runs_once_more_and_shows_both(triaged: Bench) -> None:
    triaged.script = scripted(triaged, hanging(), again=replace(hanging(), log_tail=DETAIL_LOG))
    args = ("probe", "--triage", "--rev", triaged.commit(-1), "--ranks", "2", "--steps", "12")
    status, out, _ = triaged.call(*args, *TRAINING)
    assert status == 1 and triaged.lab.ran == ["triage", "detail triage"]
    assert "the ranks' last collective calls differ" in out
    assert "Which rank waits where" in out and "called from save (checkout/train.py:9)" in out
    triaged.lab.ran.clear()
    triaged.call(*args, "--no-second-look", *TRAINING)
    assert triaged.lab.ran == ["triage"]


def test_probe_against_a_revision_and_against_an_earlier_probe_say_the_same(triaged: Bench) -> None:
    def slow_schedule(rank: int, step: int) -> list[int]:
        return [number + 10_000 for number in dealt(rank, step)]

    triaged.script = scripted(triaged, two_ranks(slow_schedule))
    args = ("probe", "--rev", triaged.commit(-1), "--ranks", "2", "--steps", "12")
    out = triaged.succeed(*args, "--baseline", triaged.commit(0), *TRAINING)
    assert len(triaged.lab.ran) == 2
    assert "data_changed" in out and "first differ" in out and "rank 0, step 0, baseline: 0 2 4 6" in out
    with triaged.store() as store:
        stored = store.results(store.list()[0].id)
        key = next(probe.key for probe in stored if probe.spec["commit"] == triaged.commit(0))
    again = triaged.succeed(*args, "--baseline", key, *TRAINING)
    assert len(triaged.lab.ran) == 3, "an earlier probe is not run again"
    assert "data_changed" in again and "rank 0, step 0, baseline: 0 2 4 6" in again
    assert "no revision, no probe and no folder of a recorded run" in triaged.refuse(*args, "--baseline", "nonsense", *TRAINING)


def test_probe_against_a_recorded_run_is_held_against_its_curves_only(
    triaged: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = [replace(rank, steps=tuple(replace(step, loss=3.0, micro=(3.0,)) for step in rank.steps)) for rank in LONG.ranks]
    triaged.script = scripted(triaged, replace(LONG, ranks=tuple(flat)))
    args = ("probe", "--rev", triaged.commit(-1), "--ranks", "2", "--steps", "40", "--baseline")
    rows = [{"_step": n, "global_step": n, "train/loss": step.loss, "lr": 0.3} for n, step in enumerate(LONG.ranks[0].steps)]
    calls = [{"_step": row["_step"], "train/loss": row["train/loss"]} for row in rows]
    server = types.ModuleType("wandb")
    server.Api = lambda: server  # type: ignore[attr-defined]
    server.run = {"ada/nano/ab12": types.SimpleNamespace(scan_history=lambda: iter(rows))}.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", server)
    monkeypatch.setenv("WANDB_API_KEY", "made-up")
    out = triaged.succeed(*args, "wandb:ada/nano/ab12", *TRAINING)
    said = " ".join(out.split())
    assert "baseline wandb:ada/nano/ab12: train/loss (loss), lr of 40 steps. It ran elsewhere" in said
    assert re.search(r"39 3 +1\.\d+ +0\.1 +0\.3", said), "both runs' numbers stand beside each other"
    assert "plateau" in said and "data_changed" not in said and "lr_differs" not in said and "first differ" not in said
    assert "cannot be fetched: KeyError: 'ada/nano/no'" in triaged.refuse(*args, "wandb:ada/nano/no", *TRAINING)
    run = tmp_path / "mlruns" / "0" / "ab"
    (run / "params").mkdir(parents=True)
    (run / "metrics").mkdir()
    (run / "meta.yaml").write_text("run_id: ab\n")
    (run / "metrics" / "loss").write_text("".join(f"1700000000 {5.0 - step} {step + 500}\n" for step in range(3)))
    server.run = {"ada/nano/ab12": types.SimpleNamespace(scan_history=lambda: iter(calls))}.__getitem__  # type: ignore[attr-defined]
    said = " ".join(triaged.succeed(*args, "wandb:ada/nano/ab12", *TRAINING).split())
    assert "may be logging calls or epochs, of several training steps each" in said and "plateau" not in said
    assert "no step in common" in " ".join(triaged.succeed(*args, str(run), *TRAINING).split())
    assert len(triaged.lab.ran) == 3, "what is refused runs nothing, and a recorded run is not run"


def test_probe_with_a_symptom_says_whether_it_is_shown(triaged: Bench) -> None:
    triaged.script = scripted(triaged)
    args = ("probe", "--symptom", "overlapping_samples", "--ranks", "2", "--steps", "12")
    status, out, _ = triaged.call(*args, "--rev", triaged.commit(-1), *TRAINING)
    assert status == 1 and "overlapping_samples (samples come on more than one rank): shown" in out
    assert "overlapping_samples (samples come on more than one rank): not shown" in triaged.succeed(
        *args, "--rev", triaged.commit(0), *TRAINING
    )


def test_compare_tells_the_kind_of_failure_and_writes_it(triaged: Bench, tmp_path: Path) -> None:
    triaged.script = scripted(triaged)
    place = tmp_path / "compare.json"
    args = ("compare", triaged.commit(0), triaged.commit(-1), "--ranks", "2", "--steps", "12", "--json", str(place))
    out = triaged.succeed(*args, *TRAINING)
    assert "B against A:" in out and "1. overlapping_samples" in out and "A by itself" not in out
    assert "first differs at step" in out, "the first difference of each rank"
    data = json.loads(place.read_text())
    assert data["triage"]["symptom"] == "overlapping_samples" and data["triage_left"]["findings"] == []
    assert [item["rank"] for item in data["by_rank"]] == [0, 1]
    assert data["first_divergence"]["stage"] == "data"
