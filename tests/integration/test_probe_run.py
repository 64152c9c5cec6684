"""Probes of plain programs with the stand-in recorder: what is run, and how its end is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bisect_train.core.changes import DataLink, FilePatch
from bisect_train.core.executor import ProbeLost, ProbeProgress
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import MetricPattern
from bisect_train_workers import probe_run
from tests.support.probes import (
    FOREVER,
    TEN_STEPS,
    TinyRepo,
    fingerprint_of,
    job_of,
    make_job,
    make_settings,
    result_of,
    run_job,
)


def test_probe_with_enough_steps_is_stopped(tmp_path: Path) -> None:
    result = result_of(job_of(tmp_path / "r", TEN_STEPS), tmp_path / "n")
    assert result.fingerprint.ending.kind is EndingKind.STOPPED
    assert [step.loss for step in result.fingerprint.ranks[0].steps] == [1.0, 1 / 2, 1 / 3]
    assert "step 2" in result.log_tail and "step 4" not in result.log_tail
    assert dict(result.fingerprint.facts)["recorder"] == "fake"


def test_probe_that_does_not_leave_after_its_stop_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_run, "LEAVE_S", 0.5)
    program = TEN_STEPS.replace("for", "try:\n  for", 1).replace("    ", "      ")
    program += "except SystemExit:\n    import time; time.sleep(300)\n"
    result = result_of(job_of(tmp_path / "r", program), tmp_path / "n")
    assert result.fingerprint.ending.kind is EndingKind.STOPPED
    assert result.wall_s < 10.0


def test_probe_to_the_end_finishes(tmp_path: Path) -> None:
    fingerprint = fingerprint_of(job_of(tmp_path / "r", TEN_STEPS, steps=None), tmp_path / "n")
    assert fingerprint.ending.kind is EndingKind.FINISHED
    assert fingerprint.num_steps == 10


def test_probe_yields_phases_in_order(tmp_path: Path) -> None:
    settings = make_settings(setup=(("python", "-c", "pass"),), judge=("python", "-c", "pass"))
    events = run_job(job_of(tmp_path / "r", TEN_STEPS, settings=settings), tmp_path / "n")
    phases = [event.phase for event in events if isinstance(event, ProbeProgress)]
    assert list(dict.fromkeys(phases)) == ["checkout", "setup", "run", "judge"]


def test_probe_that_raises_has_the_recorders_signature(tmp_path: Path) -> None:
    program = "import fake_training\nfake_training.step(1.0)\nraise ValueError('bad shape')\n"
    ending = fingerprint_of(job_of(tmp_path / "r", program), tmp_path / "n").ending
    assert (ending.kind, ending.signature) == (EndingKind.CRASHED, "ValueError: bad shape @ fake")
    assert ending.exit_status == 1


def test_probe_that_raises_after_its_last_step_is_stopped(tmp_path: Path) -> None:
    program = "import fake_training\nfor _ in range(3): fake_training.step(1.0)\nraise ValueError('late')\n"
    assert fingerprint_of(job_of(tmp_path / "r", program), tmp_path / "n").ending.kind is EndingKind.STOPPED


def test_probe_without_recorder_is_judged_by_its_log(tmp_path: Path) -> None:
    program = "def train():\n    raise KeyError('layer.7')\ntrain()\n"
    job = job_of(tmp_path / "r", program, command=("python", "-I", "train.py"))
    ending = fingerprint_of(job, tmp_path / "n").ending
    assert ending.kind is EndingKind.CRASHED
    assert ending.signature.startswith("KeyError: ") and ending.signature.endswith("@ <module> > train")


def test_probe_without_recorder_that_ends_well_has_no_recorder(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", "print('hi')\n", command=("python", "-I", "train.py"))
    ending = fingerprint_of(job, tmp_path / "n").ending
    assert ending.kind is EndingKind.NO_RECORDER and "-I" in ending.message


def test_probe_without_recorder_that_needs_none_finishes(tmp_path: Path) -> None:
    settings = make_settings(needs_recorder=False, patterns=(MetricPattern("loss", "loss ([0-9.]+)"),))
    program = "print('loss 2.5')\nprint('loss 1.25')\n"
    fingerprint = fingerprint_of(job_of(tmp_path / "r", program, settings=settings), tmp_path / "n")
    assert fingerprint.ending.kind is EndingKind.FINISHED
    assert fingerprint.metrics[0].values == (2.5, 1.25)


def test_probe_that_writes_outside_its_checkout_warns(tmp_path: Path) -> None:
    program = "import fake_training as t\nt.event('outside_files', written=['/home/u/.cache/tokens', '/home/u/x'], read=[])\n"
    result = result_of(job_of(tmp_path / "r", program), tmp_path / "n")
    assert result.warnings == ("wrote outside its checkout: /home/u/.cache/tokens (+1 more)",)
    inside = program.replace("'/home/u/.cache/tokens', '/home/u/x'", "")
    assert result_of(job_of(tmp_path / "r2", inside), tmp_path / "n").warnings == ()


def test_probe_without_a_step_finishes_with_none(tmp_path: Path) -> None:
    fingerprint = fingerprint_of(job_of(tmp_path / "r", "import fake_training\n"), tmp_path / "n")
    assert fingerprint.ending.kind is EndingKind.FINISHED and fingerprint.num_steps == 0


def test_probe_with_missing_module_names_it(tmp_path: Path) -> None:
    ending = fingerprint_of(job_of(tmp_path / "r", "import no_such_module\n"), tmp_path / "n").ending
    assert ending.kind is EndingKind.CRASHED and ending.missing_module == "no_such_module"


@pytest.mark.parametrize("command", [("no-such-program", "x"), ("python", "gone.py"), ("python", "-m", "gone_module")])
def test_probe_whose_command_does_not_exist_cannot_start(tmp_path: Path, command: tuple[str, ...]) -> None:
    ending = fingerprint_of(job_of(tmp_path / "r", TEN_STEPS, command=command), tmp_path / "n").ending
    assert ending.kind is EndingKind.CANNOT_START
    assert "no-such-program" in ending.message or "gone" in ending.message


def test_probe_that_imports_from_outside_cannot_start(tmp_path: Path) -> None:
    program = "import fake_training as t\nt.event('imports', tracked=[], outside={'model': '/home/u/r/model.py'})\n"
    ending = fingerprint_of(job_of(tmp_path / "r", program), tmp_path / "n").ending
    assert ending.kind is EndingKind.CANNOT_START
    assert "model" in ending.message and "/home/u/r/model.py" in ending.message


def test_probe_killed_by_a_signal_says_which(tmp_path: Path) -> None:
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    ending = fingerprint_of(job_of(tmp_path / "r", program), tmp_path / "n").ending
    assert (ending.kind, ending.signal, ending.signature) == (EndingKind.KILLED, 11, "killed: SIGSEGV")


def test_probe_without_memory_is_out_of_memory(tmp_path: Path) -> None:
    ending = fingerprint_of(job_of(tmp_path / "r", "raise MemoryError('no room')\n"), tmp_path / "n").ending
    assert ending.kind is EndingKind.OUT_OF_MEMORY


def test_probe_whose_port_is_taken_is_lost(tmp_path: Path) -> None:
    program = "raise RuntimeError('The server socket has failed to listen: EADDRINUSE, address already in use')\n"
    last = run_job(job_of(tmp_path / "r", program), tmp_path / "n")[-1]
    assert isinstance(last, ProbeLost) and "port" in last.reason


def test_probe_that_hangs_times_out_with_stacks(tmp_path: Path) -> None:
    program = "import fake_training, time\nfake_training.step(1.0)\ndef stuck():\n    time.sleep(60)\nstuck()\n"
    result = result_of(job_of(tmp_path / "r", program, settings=make_settings(timeout_s=1.5)), tmp_path / "n")
    assert result.fingerprint.ending.kind is EndingKind.TIMEOUT
    assert result.fingerprint.ending.signature == "timeout: hang"
    assert any("stuck" in text for _, text in result.stacks)
    assert result.fingerprint.num_steps == 1


def test_probe_that_is_slow_times_out_as_slow(tmp_path: Path) -> None:
    program = "import fake_training, time\nwhile True:\n    fake_training.step(1.0)\n    time.sleep(0.05)\n"
    job = job_of(tmp_path / "r", program, steps=1000, settings=make_settings(timeout_s=1.5))
    assert fingerprint_of(job, tmp_path / "n").ending.signature == "timeout: slow"


def test_probe_without_recorder_that_still_prints_is_slow(tmp_path: Path) -> None:
    program = "import time\nwhile True:\n    print('epoch', flush=True)\n    time.sleep(0.05)\n"
    job = job_of(tmp_path / "r", program, settings=make_settings(timeout_s=1.0, needs_recorder=False))
    assert fingerprint_of(job, tmp_path / "n").ending.signature == "timeout: slow"


def test_program_has_default_signals_and_its_own_folder(tmp_path: Path) -> None:
    program = (
        "import os, signal\nprint(signal.getsignal(2) is signal.default_int_handler, signal.getsignal(15) is signal.SIG_DFL,"
    )
    program += " signal.getsignal(1) is signal.SIG_DFL, signal.pthread_sigmask(0, []), os.environ['PWD'] == os.getcwd())\n"
    settings = make_settings(needs_recorder=False)
    log = result_of(job_of(tmp_path / "r", program, settings=settings), tmp_path / "n").log_tail
    assert log.split() == ["True", "True", "True", "set()", "True"]


def test_probe_without_recorder_that_hangs_dies_without_stacks(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", FOREVER, command=("python", "-I", "train.py"), settings=make_settings(timeout_s=0.7))
    result = result_of(job, tmp_path / "n")
    assert result.fingerprint.ending.kind is EndingKind.TIMEOUT and result.stacks == ()


def test_probe_writes_its_config_and_fills_placeholders(tmp_path: Path) -> None:
    program = "import json, sys\nprint(json.dumps(sys.argv[1:]), open(sys.argv[1]).read())\n"
    command = ("python3", "train.py", "{config}", "{out}", "{port}", "{ranks}", "{steps}", '{"json": {seed}}')
    job = job_of(tmp_path / "r", program, command=command, seed_idx=2, config=FilePatch("c.yaml", "lr: 1"))
    log = result_of(job, tmp_path / "n").log_tail
    arguments = json.loads(log.splitlines()[0].rsplit("]", 1)[0] + "]")
    assert log.startswith("[") and "lr: 1" in log
    assert arguments[0].endswith("/c.yaml") and arguments[3:] == ["1", "3", '{"json": 2000006}']


def test_probe_links_data_in_and_never_deletes_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x.txt").write_text("precious")
    program = "print(open('in/deep/data/x.txt').read())\nimport subprocess\n"
    program += "print(subprocess.run(['git', 'status', '--porcelain'], capture_output=True, text=True).stdout or 'clean')\n"
    settings = make_settings(links=(DataLink(str(data), "in/deep/data"),), needs_recorder=False)
    repo = TinyRepo(tmp_path / "r")
    for value in (1, 2):
        job = make_job(repo.commit({"train.py": program + f"# {value}\n"}), settings=settings)
        assert result_of(job, tmp_path / "n").log_tail.split() == ["precious", "clean"]
    plain = make_job(repo.commit({"train.py": "import os\nprint(os.path.lexists('in'))\n"}))
    assert result_of(plain, tmp_path / "n").log_tail.strip() == "False"
    assert (data / "x.txt").read_text() == "precious"


def test_script_that_is_linked_in_imports_the_code_of_the_checkout(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("import library\nprint(library.NAME)\n")
    settings = make_settings(links=(DataLink(str(script), "mine.py"),), needs_recorder=False)
    repo = TinyRepo(tmp_path / "r")
    for name in ("first", "second"):
        job = make_job(repo.commit({"library.py": f"NAME = {name!r}\n"}), command=("python", "mine.py"), settings=settings)
        assert result_of(job, tmp_path / "n").log_tail.strip() == name


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("/no/such/data", "data", "/no/such/data"),
        ("/tmp", "train.py", "tracked"),
        ("/tmp", "../x", "inside"),
        ("/tmp", "/x", "inside"),
        ("/tmp", "train.py/x", "tracked"),
    ],
)
def test_probe_with_a_bad_link_cannot_start(tmp_path: Path, source: str, target: str, said: str) -> None:
    job = job_of(tmp_path / "r", TEN_STEPS, settings=make_settings(links=(DataLink(source, target),)))
    ending = fingerprint_of(job, tmp_path / "n").ending
    assert ending.kind is EndingKind.CANNOT_START and said in ending.message


def test_probe_whose_setup_fails_cannot_start(tmp_path: Path) -> None:
    settings = make_settings(setup=(("python", "-c", "print('why'); raise SystemExit(3)"),))
    ending = fingerprint_of(job_of(tmp_path / "r", TEN_STEPS, settings=settings), tmp_path / "n").ending
    assert ending.kind is EndingKind.CANNOT_START and "why" in ending.message and "3" in ending.message


def test_probe_judge_sees_output_log_and_status(tmp_path: Path) -> None:
    judge = (
        "import os, sys; e = os.environ; print(open(e['BISECT_TRAIN_OUT'] + '/x').read(), e['BISECT_TRAIN_EXIT'], "
        "'said' in open(e['BISECT_TRAIN_LOG']).read(), len(os.listdir(e['BISECT_TRAIN_RECORDS'])) > 0, "
        "'recorder' in e.get('PYTHONPATH', '')); sys.exit(7)"
    )
    program = "import sys\nprint('said')\nopen(sys.argv[1] + '/x', 'w').write('made')\nraise SystemExit(5)\n"
    settings = make_settings(judge=("python", "-c", judge), needs_recorder=False)
    job = job_of(tmp_path / "r", program, command=("python", "train.py", "{out}"), settings=settings)
    judged = fingerprint_of(job, tmp_path / "n").judge
    assert judged is not None and judged.exit_status == 7
    assert judged.output.split() == ["made", "5", "True", "True", "False"]


@pytest.mark.parametrize(
    ("judge", "status"),
    [
        (("no-such-judge",), 127),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"), 143),
        ((sys.executable, "-c", "import time; time.sleep(60)"), 137),
    ],
)
def test_probe_judge_that_fails_to_judge_is_told_apart(tmp_path: Path, judge: tuple[str, ...], status: int) -> None:
    settings = make_settings(judge=judge, needs_recorder=False, timeout_s=1.0)
    judged = fingerprint_of(job_of(tmp_path / "r", "pass\n", settings=settings), tmp_path / "n").judge
    assert judged is not None and judged.exit_status == status


def test_probe_leaves_no_folder_behind(tmp_path: Path) -> None:
    result_of(job_of(tmp_path / "r", TEN_STEPS), tmp_path / "n")
    assert list((tmp_path / "n" / "probes").iterdir()) == []
