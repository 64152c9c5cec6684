"""Probes that ask about a restart: killed right after a step and its save, resumed, and held against the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.executor import ProbeProgress
from bisect_train.core.fingerprint import EndingKind, Fingerprint, RankRecord
from bisect_train.core.probe import MetricPattern, ProbeJob, RestartSettings
from bisect_train.verdict.triage import hard_symptoms
from bisect_train_workers.injection import RECORDER_FOLDER
from bisect_train_workers.probe_task import run_probe
from bisect_train_workers.processes import find_marked
from tests.integration.test_probe_kills import processes_of, wait_until, worker
from tests.support.probes import context_of, fingerprint_of, job_of, make_settings, result_of
from tests.support.restart_programs import MISTAKES, resuming_program

FAST = """
import os, signal, sys, threading, time
import fake_training
signal.signal(signal.SIGTERM, signal.SIG_IGN)
out, resume = sys.argv[1], "--resume" in sys.argv
first = 1 + max(int(name) for name in os.listdir(out)) if resume else 0
print("begun at", first, "in", out, flush=True)
for step in range(first, 5000):
    fake_training.step(1.0 / (step + 1))
    {extra}
    open(os.path.join(out, str(step)), "w").close()
    print("step", step, flush=True)
"""
COMMAND = ("python", "train.py", "{out}")
RESTART_SYMPTOMS = {"restart_differs", "stale_weights"}
RESUME = ("{command}", "--resume")


def fast_program(extra: str = "pass") -> str:
    """Return a program that makes thousands of steps a second and saves after each; it ignores SIGTERM."""
    return FAST.format(extra=extra)


def restart_job(folder: Path, program: str, *, save_at: int = 5, steps: int | None = 12, **changes: Any) -> ProbeJob:
    settings = {"timeout_s": changes.pop("timeout_s", 30.0), **changes.pop("settings", {})}
    restart = RestartSettings(save_at, changes.pop("resume", RESUME), changes.pop("to", None), changes.pop("kill", True))
    made = make_settings(restart=restart, **settings)
    return job_of(folder / "r", program, **{"command": COMMAND, "steps": steps, "settings": made, **changes})


def steps_of(record: RankRecord) -> list[int]:
    return [step.step for step in record.steps]


def first_difference(fingerprint: Fingerprint) -> int | None:
    """Return the first step at which the interrupted run differs in loss, parameters or generators; None without one."""
    for whole, restarted in zip(fingerprint.uninterrupted[0].steps, fingerprint.ranks[0].steps, strict=True):
        if any(getattr(whole, name) != getattr(restarted, name) for name in ("loss", "param_hash", "rng_hash", "grad_norm")):
            return whole.step
    return None


@pytest.mark.parametrize("kill", [True, False])
def test_fast_program_is_interrupted_right_after_the_step_and_its_save(tmp_path: Path, kill: bool) -> None:
    result = result_of(restart_job(tmp_path, fast_program(), kill=kill), tmp_path / "n")
    (record,) = result.fingerprint.ranks
    assert result.fingerprint.ending.kind is EndingKind.STOPPED
    assert steps_of(record) == steps_of(result.fingerprint.uninterrupted[0]) == list(range(12))
    assert [step.loss for step in record.steps] == [step.loss for step in result.fingerprint.uninterrupted[0].steps]
    names = [event.name for event in record.events]
    seam = record.events[names.index("restart")]
    assert names.index("stop") < names.index("restart") < len(names) - 1
    assert (seam.step, seam.data["resumed_ranks"]) == (5, 1)
    assert seam.data["how"] == ("SIGKILL" if kill else "stopped by the recorder")
    before, _, after = result.log_tail.partition("--- restart: ")
    assert "begun at 0" in before and "begun at 6" in after and "step 6" not in before


def test_each_run_begins_in_a_clean_checkout_and_the_resumed_one_keeps_it(tmp_path: Path) -> None:
    extra = "step == first and print('found', sorted(n for n in os.listdir('.') if n != '.git')); open(f'left{step}', 'w')"
    result = result_of(restart_job(tmp_path, fast_program(extra), settings={"keep": True}), tmp_path / "n")
    kept = Path(result.kept)
    found = [line for line in result.log_tail.splitlines() if line.startswith("found")]
    assert found[0] == "found ['train.py']" and "left5" in found[1] and "left6" not in found[1]
    places = {line.split(" in ")[1] for line in result.log_tail.splitlines() if line.startswith("begun")}
    whole_log = (kept / "uninterrupted/program.log").read_text()
    assert len(places) == 1 and places.pop() in whole_log
    assert sorted(map(int, (p.name for p in (kept / "out").iterdir()))) == list(range(12))
    assert (kept / "interrupted/records").is_dir() and (kept / "uninterrupted/out/11").exists()


def test_save_in_the_background_is_waited_for(tmp_path: Path) -> None:
    slow = (
        "threading.Thread(target=lambda: [(time.sleep(0.1), open('slow', 'a').write('x')) for _ in range(15)]).start() "
        "if step == 5 else None; resume and step == first and print('slow save has', len(open('slow').read()))"
    )
    result = result_of(restart_job(tmp_path, fast_program(slow)), tmp_path / "n")
    assert "slow save has 15" in result.log_tail


def test_metrics_and_judge_see_the_resumed_run(tmp_path: Path) -> None:
    judge = "import os, sys; text = open(os.environ['BISECT_TRAIN_LOG']).read(); sys.exit(3 if 'begun at 6' in text else 4)"
    settings = {"patterns": (MetricPattern("at", "begun at ([0-9]+)"),), "judge": ("python", "-c", judge)}
    fingerprint = fingerprint_of(restart_job(tmp_path, fast_program(), settings=settings), tmp_path / "n")
    assert fingerprint.metrics[0].values == (6.0,)
    assert fingerprint.judge is not None and fingerprint.judge.exit_status == 3


def test_failure_of_the_resumed_run_says_so_and_keeps_its_signature(tmp_path: Path) -> None:
    program = fast_program("if resume: raise ValueError('size mismatch')")
    fingerprint = fingerprint_of(restart_job(tmp_path, program), tmp_path / "n")
    ending = fingerprint.ending
    assert (ending.kind, ending.signature) == (EndingKind.CRASHED, "ValueError: size mismatch @ fake")
    assert ending.message == "after the restart behind step 5: ValueError: size mismatch"
    assert steps_of(fingerprint.ranks[0]) == list(range(7)) and len(fingerprint.uninterrupted[0].steps) == 12


def test_resumed_run_that_hangs_times_out_with_stacks(tmp_path: Path) -> None:
    job = restart_job(tmp_path, fast_program("time.sleep(60 * resume)"), timeout_s=3.0)
    result = result_of(job, tmp_path / "n")
    assert result.fingerprint.ending.kind is EndingKind.TIMEOUT
    assert result.fingerprint.ending.message.startswith("after the restart behind step 5: ")
    assert any("train.py" in text for _, text in result.stacks)


def test_failure_of_the_whole_run_ends_the_probe_as_it_would_without_a_restart(tmp_path: Path) -> None:
    program = fast_program("if step == 8: raise ValueError('boom')")
    result = result_of(restart_job(tmp_path, program), tmp_path / "n")
    assert result.fingerprint.ending.message == "ValueError: boom"
    assert result.fingerprint.uninterrupted == () and steps_of(result.fingerprint.ranks[0]) == list(range(9))


def test_failure_that_only_the_run_to_be_interrupted_has_is_told_apart(tmp_path: Path) -> None:
    mark = tmp_path / "second"
    program = fast_program(f"if step == 3 and os.path.exists({str(mark)!r}): raise ValueError('boom')")
    program += f"\nopen({str(mark)!r}, 'w')\n"
    program = program.replace("for step", f"import atexit; atexit.register(lambda: open({str(mark)!r}, 'w'))\nfor step", 1)
    fingerprint = fingerprint_of(restart_job(tmp_path, program), tmp_path / "n")
    assert fingerprint.ending.kind is EndingKind.CRASHED
    assert fingerprint.ending.message.startswith("before the restart (without one, the same run came to 12 steps): ValueError")
    assert len(fingerprint.uninterrupted[0].steps) == 12


def test_program_that_ends_before_the_restart_is_untestable(tmp_path: Path) -> None:
    fingerprint = fingerprint_of(restart_job(tmp_path, fast_program().replace("5000", "6"), steps=None), tmp_path / "n")
    assert fingerprint.ending.kind is EndingKind.CANNOT_START and "after 6 steps" in fingerprint.ending.message


def test_program_without_the_recorder_cannot_be_restarted(tmp_path: Path) -> None:
    job = restart_job(tmp_path, "print('hi')\n", command=("python", "-I", "train.py"), settings={"needs_recorder": False})
    assert fingerprint_of(job, tmp_path / "n").ending.kind is EndingKind.NO_RECORDER


@pytest.mark.parametrize("phase", ["run", "interrupt", "resume"])
def test_probe_that_is_closed_in_any_part_leaves_nothing(tmp_path: Path, phase: str) -> None:
    job = restart_job(tmp_path, fast_program("time.sleep(0.05)"), id=f"closed-{phase}", steps=4000)
    if phase != "run":
        job = restart_job(tmp_path, fast_program("time.sleep(0.05 if step > 12 else 0)"), id=f"closed-{phase}")
    running = run_probe(job, context_of(job, tmp_path / "n"))
    for event in running:
        if isinstance(event, ProbeProgress) and event.phase == phase:
            break
    else:
        pytest.fail(f"no phase {phase}")
    next(running)  # the part has begun: it has made a step
    running.close()  # type: ignore[attr-defined]
    assert find_marked(lambda marker: marker.startswith(job.id + ":")) == []
    assert list((tmp_path / "n/probes").iterdir()) == []


@pytest.mark.parametrize("phase", ["run", "interrupt", "resume"])
def test_worker_that_is_killed_in_any_part_leaves_nothing(tmp_path: Path, phase: str) -> None:
    slow = {"run": "step > 3", "interrupt": "step > 3 and os.path.exists(out + '/../uninterrupted')", "resume": "resume"}
    job = restart_job(tmp_path, fast_program(f"time.sleep(60 * ({slow[phase]}))"), id=f"killed-{phase}")
    with worker(job, tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if f"phase='{phase}'" in line:
                break
        wait_until(lambda: bool(processes_of(job.id)))
        process.kill()
        process.wait()
        wait_until(lambda: not processes_of(job.id), limit_s=5.0)
        wait_until(lambda: not list((tmp_path / "n/probes").iterdir()), limit_s=5.0)


def test_torch_training_that_restores_everything_is_bitwise_the_uninterrupted_run(tmp_path: Path) -> None:
    job = restart_job(tmp_path, resuming_program(is_deaf=True), steps=9)
    fingerprint = fingerprint_of(job, tmp_path / "n", recorder=RECORDER_FOLDER)
    assert fingerprint.ending.kind is EndingKind.STOPPED, fingerprint.ending
    assert steps_of(fingerprint.ranks[0]) == list(range(9))
    assert all(step.param_hash for step in fingerprint.ranks[0].steps)
    assert first_difference(fingerprint) is None and RESTART_SYMPTOMS.isdisjoint(hard_symptoms(fingerprint))
    names = [(event.name, event.step) for event in fingerprint.ranks[0].events]
    saved, seam = names.index(("checkpoint_saved", 6)), names.index(("restart", 5))  # it evaluates before it saves
    assert saved < seam < names.index(("checkpoint_loaded", 6))


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_torch_training_that_forgets_something_differs_right_after_the_restart(tmp_path: Path, mistake: str) -> None:
    job = restart_job(tmp_path, resuming_program(mistake), steps=9)
    fingerprint = fingerprint_of(job, tmp_path / "n", recorder=RECORDER_FOLDER)
    assert fingerprint.ending.kind is EndingKind.STOPPED, fingerprint.ending
    assert first_difference(fingerprint) == 6
    expected = "stale_weights" if mistake == "stale" else "restart_differs"
    assert expected in hard_symptoms(fingerprint)
    whole, restarted = (ranks[0].steps[6] for ranks in (fingerprint.uninterrupted, fingerprint.ranks))
    assert (whole.loss == restarted.loss) == (mistake == "optimizer")  # which only shows in the update


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param((2, 1), marks=pytest.mark.scenario), (1, 2)])
def test_torch_training_goes_on_with_another_number_of_ranks(tmp_path: Path, ranks: tuple[int, int]) -> None:
    before, after = ranks
    job = restart_job(tmp_path, resuming_program(dropout=0.0), steps=9, ranks=before, to=after)
    result = result_of(job, tmp_path / "n", recorder=RECORDER_FOLDER)
    assert result.fingerprint.ending.kind is EndingKind.STOPPED, result.fingerprint.ending
    assert f"resumed from step5.pt on {after}" in result.log_tail and result.warnings == ()
    assert [len(record.steps) for record in result.fingerprint.ranks] == [9, 6 if after == 1 else 3]
    assert len(result.fingerprint.uninterrupted) == before
    hashes = [
        [step.param_hash for step in run[0].steps] for run in (result.fingerprint.ranks, result.fingerprint.uninterrupted)
    ]
    assert hashes[0] == hashes[1]  # the gradients of the halves are added in the same order
    assert all(
        event.data["resumed_ranks"] == after for r in result.fingerprint.ranks for event in r.events if event.name == "restart"
    )
