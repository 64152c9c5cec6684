"""Runs that never stepped or stopped before their time: which kind of failure, at which step, and which rank waits where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Event
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.divergence import Stage
from bisect_train.verdict.triage import Category, SecondRun, hard_symptoms, symptoms_of
from bisect_train.verdict.triage.waits import read_waits
from tests.support.triage_records import collective, finding_of, judge, make_run, told

TORCH = "/env/lib/python3.11/site-packages/torch"
HANG = Ending(EndingKind.TIMEOUT, "timeout: hang", "stopped at the time limit of 60 s; no step for 55 s")
SLOW = Ending(EndingKind.TIMEOUT, "timeout: slow", "stopped at the time limit of 60 s; it was still making steps")


def stack(*frames: tuple[str, str], others: str = "") -> str:
    """Return what faulthandler writes: (path, function), innermost first."""
    lines = [f'  File "{path}", line 1 in {function}' for path, function in frames]
    return f"{others}Current thread 0x00007f713dc5cb80 (most recent call first):\n" + "\n".join(lines) + "\n"


def in_call(call: str, function: str = "main", *, path: str = f"{TORCH}/distributed/distributed_c10d.py") -> str:
    own = ("/probe/recorder/_bisect_train_recorder/collective_watch.py", "call")
    user = [("/checkout/train.py", function), ("/checkout/train.py", "<module>")]
    return stack((path, call), (f"{TORCH}/distributed/c10d_logger.py", "wrapper"), own, *user)


def files(*texts: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"stacks-rank{rank}-pid{100 + rank}.txt", text) for rank, text in enumerate(texts) if text)


BUSY = stack(("/checkout/data.py", "tokenize"), ("/checkout/train.py", "<module>"))
LAUNCHER = stack(
    ("/usr/lib/python3.11/selectors.py", "select"),
    (f"{TORCH}/distributed/elastic/agent/server/api.py", "_invoke_run"),
    (f"{TORCH}/distributed/run.py", "main"),
    ("/env/bin/torchrun", "<module>"),
)


def failed(message: str, *, kind: EndingKind = EndingKind.CRASHED, status: int | None = 1, steps: int = 0) -> ProbeResult:
    return make_run(steps, ending=Ending(kind, message=message, exit_status=status))


@pytest.mark.parametrize(
    ("message", "symptom"),
    [
        ("ModuleNotFoundError: No module named 'einops'", "import_error"),
        ("ImportError: cannot import name 'x' from 'y'", "import_error"),
        ("KeyError: 'warmup_ratio'", "config_error"),
        ("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct", "config_error"),
        ("TypeError: Trainer.__init__() got an unexpected keyword argument 'max_iters'", "config_error"),
        ("RuntimeError: Error(s) in loading state_dict for GPT: Missing key(s) in state_dict: ...", "checkpoint_does_not_fit"),
        ("RuntimeError: size mismatch for wte.weight", "checkpoint_does_not_fit"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "environment_mismatch"),
        ("AssertionError: Torch not compiled with CUDA enabled", "environment_mismatch"),
        ("RuntimeError: No CUDA GPUs are available", "no_resources"),
        ("RuntimeError: CUDA error: invalid device ordinal", "no_resources"),
        ("ValueError: batch size must be positive", "crash"),
    ],
)
def test_crash_before_the_first_step_is_named_by_its_message(message: str, symptom: str) -> None:
    run = failed(message)
    assert told(run) == [symptom] and judge(run).category is Category.WONT_START
    stepped = failed(message, steps=5)
    assert told(stepped) == ["crash"] and judge(stepped).category is Category.STOPPED


def test_refused_arguments_and_commands_that_cannot_start_are_config_errors() -> None:
    assert told(failed("train.py: error: something", status=2)) == ["config_error"]
    assert told(failed("the command could not be started: no such file", kind=EndingKind.CANNOT_START)) == ["config_error"]


def test_import_from_outside_names_module_and_path() -> None:
    outside = {"imports": [Event("imports", None, {"tracked": [], "outside": {"pkg.model": "/old/pkg/model.py"}})]}
    message = "the program imported pkg.model from /old/pkg/model.py, not from the checkout: uninstall that copy"
    run = make_run(0, ending=Ending(EndingKind.CANNOT_START, message=message), events=lambda _: outside)
    found = finding_of("imported_from_outside", run)
    assert "/old/pkg/model.py" in found.summary and told(run) == ["imported_from_outside"]
    assert told(failed(message, kind=EndingKind.CANNOT_START)) == ["imported_from_outside"]  # by the message alone
    empty = {"imports": [Event("imports", None, {"tracked": ["train.py"], "outside": {}})]}
    assert told(make_run(events=lambda _: empty)) == []


def test_versions_that_differ_from_the_baseline_are_told_of_a_failed_run_only() -> None:
    run = make_run(5, ending=Ending(EndingKind.CRASHED, message="ValueError: x"), facts={"torch": "2.6.0"})
    assert told(run, baseline=make_run()) == ["crash", "environment_mismatch"]  # it did start
    assert judge(run, baseline=make_run()).category is Category.STOPPED
    never = make_run(0, ending=Ending(EndingKind.CRASHED, message="ValueError: x"), facts={"torch": "2.6.0"})
    assert told(never, baseline=make_run()) == ["environment_mismatch", "crash"]
    assert judge(never, baseline=make_run()).category is Category.WONT_START
    assert "torch 2.6.0 against 2.5.0" in finding_of("environment_mismatch", run, baseline=make_run()).summary
    assert told(make_run(facts={"torch": "2.6.0"}), baseline=make_run()) == []


def test_versions_that_differ_between_ranks_are_told() -> None:
    def version(rank: int) -> dict[str, list[Event]]:
        return {"torch_imported": [Event("torch_imported", None, {"version": f"2.{rank}.0"})]}

    run = make_run(ranks=2, events=version)
    assert told(run) == ["environment_mismatch"] and judge(run).category is Category.SILENT_DISTRIBUTED


def test_checkpoint_that_hardly_fits_is_told_and_a_new_head_is_not() -> None:
    def loaded(missing: int, unexpected: int) -> ProbeResult:
        data = {"function": "load_state_dict", "missing": missing, "unexpected": unexpected, "missing_names": ["a.weight"]}
        return make_run(events=lambda _: {"checkpoint_loaded": [Event("checkpoint_loaded", None, data)]})

    assert told(loaded(8, 8)) == ["checkpoint_does_not_fit"]
    assert told(loaded(2, 0)) == []
    found = finding_of("checkpoint_does_not_fit", loaded(2, 0), baseline=loaded(0, 0))
    assert found.needs_baseline and "a.weight" in found.evidence[0].value
    assert told(loaded(8, 8), baseline=loaded(8, 8)) == []


@pytest.mark.parametrize(
    ("path", "function", "user", "text"),
    [
        (f"{TORCH}/distributed/distributed_c10d.py", "barrier", "save", "barrier, called by save (train.py)"),
        (
            f"{TORCH}/nn/parallel/distributed.py",
            "__init__",
            "main",
            "__init__ of distributed.py, called by main (train.py)",
        ),
    ],
)
def test_waits_name_the_call_and_the_users_function(path: str, function: str, user: str, text: str) -> None:
    (wait,) = read_waits(files(in_call(function, user, path=path)))
    assert (wait.rank, wait.text, wait.is_waiting) == (0, text, True)


def test_waits_leave_launchers_and_other_threads_out() -> None:
    thread = f'Thread 0x00007f (most recent call first):\n  File "{TORCH}/x.py", line 3 in poll\n\n'
    text = thread + in_call("all_reduce")
    waits = read_waits((("stacks-rank0-pid99.txt", LAUNCHER), ("stacks-rank0-pid100.txt", text), ("notes.txt", text)))
    assert [(wait.pid, wait.call) for wait in waits] == [("100", "all_reduce")]
    assert [wait.is_launcher for wait in read_waits((("stacks-rank0-pid99.txt", LAUNCHER),))] == [True]
    assert read_waits((("stacks-rank0-pid1.txt", "garbage\n"), ("stacks-rank1-pid2.txt", ""))) == ()


def test_wait_without_torch_and_work_are_told_apart() -> None:
    queue = stack(
        ("/usr/lib/python3.11/threading.py", "wait"), ("/checkout/data.py", "get"), ("/checkout/train.py", "<module>")
    )
    assert [wait.is_waiting for wait in read_waits(files(queue, BUSY))] == [True, False]


def test_hang_in_a_barrier_says_which_rank_waits_where() -> None:
    run = make_run(5, ranks=2, ending=HANG, stacks=files(in_call("barrier", "save"), BUSY))
    found = finding_of("hang", run)
    assert (found.ranks, found.step) == ((0,), 5)
    assert "rank 0 waits in barrier, called by save (train.py), rank 1 is in tokenize (data.py)" in found.summary
    assert judge(run).second_run is SecondRun.DETAIL and told(run) == ["hang"]
    assert any(item.name == "last collective entered" and item.rank == 1 for item in found.evidence)


def test_hang_of_one_rank_asks_for_no_second_run() -> None:
    run = make_run(5, ending=HANG, stacks=files(stack(("/usr/lib/python3.11/queue.py", "get"), ("/checkout/t.py", "<module>"))))
    assert told(run) == ["hang"] and judge(run).second_run is None


def left_by_1(rank: int) -> dict[str, list[Event]]:
    return {"exit": [Event("exit", None, {"code": 0})]} if rank == 1 else {}


def test_hang_at_the_end_is_one_with_all_steps_done() -> None:
    stacks = files(in_call("barrier", "save"), in_call("barrier", "finish"))
    run = make_run(40, ranks=2, ending=HANG, stacks=stacks)
    assert told(run, baseline=make_run(ranks=2)) == ["hang_at_end"]
    assert told(run) == ["hang"]  # nobody knows that these are all
    assert told(run, steps=40) == ["hang_at_end"]
    early = make_run(39, ranks=2, ending=HANG, stacks=stacks)
    assert "hang_at_end" not in told(early, baseline=make_run(ranks=2))
    gone = make_run(40, ranks=2, ending=HANG, stacks=files(in_call("barrier")), events=left_by_1)
    assert told(gone) == ["hang_at_end"] and "rank 1: it has ended" in finding_of("hang_at_end", gone).summary


def test_hang_in_init_by_its_stack_or_by_a_group_that_is_never_made() -> None:
    init = in_call("init_process_group")
    none_made: dict[str, list[Event]] = {"process_group": []}
    run = make_run(0, ranks=2, only=[0], ending=HANG, stacks=files(init), events=lambda _: none_made)
    assert told(run, ranks=2) == ["missing_rank", "hang_in_init"] and judge(run, ranks=2).category is Category.WONT_START
    assert finding_of("missing_rank", run, ranks=2).ranks == (1,)
    without = make_run(0, ranks=2, ending=HANG, events=lambda _: none_made)
    assert told(without) == ["hang_in_init"] and judge(without).second_run is SecondRun.DETAIL


def test_hang_in_the_first_collective_comes_after_the_group_and_before_a_step() -> None:
    run = make_run(0, ranks=2, ending=HANG, stacks=files(in_call("broadcast"), BUSY))
    assert told(run) == ["hang_in_first_collective"]


@pytest.mark.parametrize("message", ["DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined."])
def test_torchs_own_timeout_at_the_start_is_a_hang_in_init(message: str) -> None:
    assert told(make_run(0, ranks=2, ending=Ending(EndingKind.CRASHED, message=message))) == ["hang_in_init"]


def test_torchs_own_timeout_of_a_collective_is_a_hang() -> None:
    message = "RuntimeError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE)"
    assert told(make_run(6, ranks=2, ending=Ending(EndingKind.CRASHED, message=message))) == ["hang"]
    assert told(make_run(0, ranks=2, ending=Ending(EndingKind.CRASHED, message=message))) == ["hang_in_first_collective"]


def test_wider_names_are_among_what_a_record_without_stacks_shows() -> None:
    stacks = files(in_call("barrier", "save"), in_call("barrier", "finish"))
    run = make_run(40, ranks=2, ending=HANG, stacks=stacks)
    assert told(run, steps=40) == ["hang_at_end"] and hard_symptoms(run.fingerprint) == ("hang",)
    left = make_run(40, ranks=2, ending=HANG, events=left_by_1)
    assert hard_symptoms(left.fingerprint) == ("hang_at_end", "hang")
    none_made: dict[str, list[Event]] = {"process_group": []}
    assert "hang" in hard_symptoms(make_run(0, ranks=2, ending=HANG, events=lambda _: none_made).fingerprint)


@pytest.mark.parametrize(
    ("ending", "wider"),
    [
        (Ending(EndingKind.KILLED, "killed: SIGKILL", "ended by SIGKILL", signal=9), "killed"),
        (
            Ending(EndingKind.CRASHED, message="RuntimeError: Connection closed by peer [127.0.0.1]:2345", exit_status=1),
            "crash",
        ),
    ],
)
def test_rank_that_died_ended_the_run_by_a_signal_or_an_exception(ending: Ending, wider: str) -> None:
    run = make_run(5, ranks=2, ending=ending, events=raising("Connection closed by peer [127.0.0.1]:2345", on=0))  # type: ignore[arg-type]
    found = judge(run).findings
    assert "rank_died" in told(run) and wider in symptoms_of(found, ending) and wider in hard_symptoms(run.fingerprint)
    assert not {"killed", "crash"} - {wider} & set(symptoms_of(found, ending))


def test_slow_run_is_no_hang_and_neither_is_a_long_compilation() -> None:
    assert told(make_run(5, ending=SLOW)) == ["slow_not_hung"]
    compiling = stack((f"{TORCH}/_inductor/codecache.py", "compile"), ("/checkout/train.py", "main"))
    run = make_run(0, ending=HANG, stacks=files(compiling))
    assert told(run) == ["slow_not_hung"] and judge(run).category is Category.WONT_START
    waiting = make_run(0, ranks=2, ending=HANG, stacks=files(compiling, in_call("barrier")))
    assert told(waiting) == ["hang_in_first_collective"]


def test_slow_first_step_that_ends_well_is_silent() -> None:
    assert told(make_run(change=lambda _, step: {"step_s": 60.0} if step == 0 else {})) == []


@pytest.mark.parametrize(
    ("message", "size"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity", "2.00 GiB"),
        (
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 4398046511104 bytes.",
            "4,398,046,511,104 bytes",
        ),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1.5 TiB for an array", "1.5 TiB"),
    ],
)
def test_out_of_memory_has_step_and_allocation(message: str, size: str) -> None:
    run = make_run(7, ending=Ending(EndingKind.OUT_OF_MEMORY, message=message))
    found = finding_of("out_of_memory", run)
    assert found.step == 7 and found.evidence[0].value == size and size in found.summary
    assert judge(make_run(0, ending=Ending(EndingKind.OUT_OF_MEMORY, message=message))).category is Category.WONT_START


def raising(message: str, *, on: int) -> object:
    def events(rank: int) -> dict[str, list[Event]]:
        told_by = Event("exception", 5, {"exc_type": "RuntimeError", "message": message})
        return {"exit": [], "exception": [told_by] if rank == on else []}

    return events


def test_rank_that_died_is_the_one_without_a_word() -> None:
    message = "RuntimeError: Connection closed by peer [127.0.0.1]:2345"
    ending = Ending(EndingKind.CRASHED, message=message, exit_status=1)
    run = make_run(5, ranks=2, ending=ending, events=raising("Connection closed by peer [127.0.0.1]:2345", on=0))  # type: ignore[arg-type]
    assert told(run) == ["rank_died"] and finding_of("rank_died", run).ranks == (1,)


def test_rank_that_a_signal_ended_is_the_launchers_root_cause() -> None:
    log = "Root Cause (first observed failure):\n[0]:\n  time : x\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n"
    run = make_run(5, ranks=2, ending=Ending(EndingKind.KILLED, "killed: SIGKILL", "ended by SIGKILL", signal=9), log=log)
    assert told(run) == ["rank_died", "killed"] and finding_of("rank_died", run).ranks == (1,)


ABORTED = Ending(EndingKind.KILLED, "killed: SIGABRT", "rank 0: ended by SIGABRT", signal=6)
RESET = "[pair.cc:537] Read error [127.0.0.1]:4768: Connection reset by peer."
TOO_LONG = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 144 vs 4. Received data size doesn't match expected"
GOES_ON = [collective(2, "all_reduce", [4])]


def aborted(
    *,
    step: int,
    num_steps: int,
    later: dict[int, list[Event]] | None = None,
    raised: dict[int, str] | None = None,
    **asked: Any,
) -> ProbeResult:
    """Return a run of two ranks whose calls 1 differ in this step; `later`: calls after it, `raised`: exceptions, by rank."""

    def events(rank: int) -> dict[str, list[Event]]:
        calls = [collective(0, "broadcast", [8]), collective(1, "all_reduce", [1 + 24 * rank]), *(later or {}).get(rank, [])]
        message = {1: RESET} if raised is None else raised
        exceptions = (
            [Event("exception", step, {"exc_type": "RuntimeError", "message": message[rank]})] if rank in message else []
        )
        return {"exit": [], "exception": exceptions, "collective": [replace(call, step=step) for call in calls]}

    return make_run(num_steps, ranks=2, events=events, **{"ending": ABORTED, **asked})


@pytest.mark.parametrize(("num_steps", "category"), [(0, Category.WONT_START), (5, Category.STOPPED)])
def test_calls_in_which_a_rank_was_aborted_are_why_it_died(num_steps: int, category: Category) -> None:
    run = aborted(step=num_steps, num_steps=num_steps)
    assert told(run) == ["collectives_differ", "rank_died", "killed"] and judge(run).category is category
    found = finding_of("collectives_differ", run)
    assert found.stage is Stage.REDUCTION and "all_reduce [25] float32 on rank 1" in found.summary
    assert told(run, baseline=make_run(ranks=2))[0] == "collectives_differ"


@pytest.mark.parametrize(
    "message", [TOO_LONG, "Detected mismatch between collectives on ranks. Rank 0 is running collective: x"]
)
def test_exception_over_calls_that_do_not_fit_is_told_after_the_calls(message: str) -> None:
    ending = Ending(EndingKind.CRASHED, "RuntimeError", f"RuntimeError: {message}", 1)
    run = aborted(step=5, num_steps=5, raised={0: message, 1: RESET}, ending=ending)
    assert told(run)[0] == "collectives_differ" and "crash" in told(run)


@pytest.mark.parametrize(
    ("run", "first"),
    [
        (aborted(step=5, num_steps=5, raised={0: "index out of range", 1: RESET}), "rank_died"),  # a reason of its own
        (aborted(step=5, num_steps=5, later={0: GOES_ON}), "rank_died"),  # it got past these calls
        (aborted(step=2, num_steps=5), "rank_died"),  # it made steps after them
        (aborted(step=5, num_steps=5, raised={}, later={1: GOES_ON}), "killed"),  # rank 1 may have died in another call
        (aborted(step=5, num_steps=5, ending=Ending(EndingKind.OUT_OF_MEMORY, message="x")), "out_of_memory"),
        (aborted(step=5, num_steps=5, raised={}, ending=HANG, stacks=files(in_call("reduce"), in_call("barrier"))), "hang"),
    ],
)
def test_calls_that_differ_are_no_cause_of_what_came_after_them(run: ProbeResult, first: str) -> None:
    assert told(run)[0] == first and told(run)[-1] == "collectives_differ"
    assert finding_of("collectives_differ", run).category is Category.SILENT_DISTRIBUTED


def test_exception_on_one_rank_is_a_crash_of_that_rank() -> None:
    ending = Ending(EndingKind.CRASHED, "ValueError: x | step", "ValueError: x", 1)
    run = make_run(5, ranks=2, ending=ending, events=raising("x", on=1))  # type: ignore[arg-type]
    found = finding_of("crash", run)
    assert told(run) == ["crash"] and (found.ranks, found.step) == ((1,), 5)


def test_record_without_ranks_is_told_by_its_ending_alone() -> None:
    assert told(make_run(0, only=[], ending=HANG)) == ["hang"]
    assert told(make_run(0, only=[], ending=Ending(EndingKind.FINISHED))) == []
    assert told(make_run(0, only=[], ending=Ending(EndingKind.NO_RECORDER))) == []


def test_missing_rank_of_a_healthy_run_is_no_finding() -> None:
    assert told(make_run(ranks=2, only=[0]), ranks=2) == []


def test_collective_that_hangs_is_the_last_one_entered() -> None:
    events = {"collective": [collective(0, "all_reduce", [3]), collective(1, "barrier", None, "")]}
    run = make_run(2, ranks=2, ending=HANG, stacks=files(in_call("barrier"), BUSY), events=lambda rank: {} if rank else events)
    shown = [item.value for item in finding_of("hang", run).evidence if item.name == "last collective entered"]
    assert shown == ["call 1: barrier", "call 3: all_reduce [10] float32"]
