"""The person in the loop, through the command line: mark, undo, the observation log, replay, priors. Nothing is trained."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.cli import driving
from bisect_train.cli.main import main
from bisect_train.coordinator import CoordinatorEvent, ProbeDone
from bisect_train.core.changes import FilePatch, Point
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import ConfigEnd, Question, Range
from bisect_train.store.contract import Store, StoredEvent
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.integration.test_coordinator import stop_after
from tests.support.simulated_bisection import Lab, drive, fingerprint_of

CULPRIT = 9
Script = Callable[[ProbeJob], SimulatedRun]


@dataclass
class Bench:
    """The command line in this process, with simulated probes; `script` may be replaced."""

    lab: Lab
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    script: Script

    def call(self, *args: str) -> tuple[int, str, str]:
        """Run a command; return status, stdout, stderr."""
        self.monkeypatch.setattr(sys, "argv", ["bisect-train", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        said = self.capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, said.out, said.err

    def succeed(self, *args: str) -> str:
        """Run a command that must end with status 0; return stdout."""
        status, out, err = self.call(*args)
        assert status == 0, err
        return out

    def refuse(self, *args: str) -> str:
        """Run a command that must be refused as bad input; return stderr."""
        status, _, err = self.call(*args)
        assert status == 2, err
        return err

    @contextmanager
    def store(self) -> Iterator[Store]:
        opened = open_store(self.lab.home)
        try:
            yield opened
        finally:
            opened.close()

    def events(self, name: str = "last") -> tuple[StoredEvent, ...]:
        with self.store() as store:
            return store.events(store.load(name).id)

    def ask(self) -> str:
        """Store the lab's question, run nothing; return the id."""
        with self.store() as store:
            return store.create(self.lab.question().to_json(), title="simulated")

    def interrupt(self, num_started: int, *, script: Script | None = None) -> str:
        """Run the lab's question until so many probes were started; return the id."""
        with self.store() as store:
            name = store.create(self.lab.question().to_json(), title="simulated")
            executor = self.lab.executor(script or self.script, slots=1)
            with pytest.raises(InterruptedByUser):
                drive(self.lab, store, bisection_id=name, executor=executor, listener=stop_after(num_started))
        return name

    def report(self, *args: str) -> dict[str, Any]:
        """Run a command with --json and return the report."""
        place = self.lab.home / "report.json"
        self.call(*args, "--json", str(place))
        data: dict[str, Any] = json.loads(place.read_text())
        return data

    def commit(self, idx: int) -> str:
        return self.lab.commits[idx]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.build(tmp_path_factory.mktemp("person"), culprit=CULPRIT)


@pytest.fixture
def bench(built: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    lab = replace(built, home=tmp_path / "home", ran=[])
    lab.home.mkdir()
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(lab.home))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(lab.repo.path)
    made = Bench(lab, capsys, monkeypatch, lab.run_of)

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[SimulatedExecutor]:
        yield made.lab.executor(made.script)

    monkeypatch.setattr(driving, "open_executor", open_executor)
    before = signal.getsignal(signal.SIGTERM)
    yield made
    signal.signal(signal.SIGTERM, before)


def requests_of(events: tuple[StoredEvent, ...]) -> list[tuple[str, int, int]]:
    """Return point, seed and attempt of each probe that was finished."""
    specs = [event.data["spec"] for event in events if event.kind == "probe_finished"]
    return [(spec["point"], spec["seed_idx"], spec["attempt"]) for spec in specs]


def culprits_of(report: dict[str, Any]) -> list[str]:
    return [change["id"] for culprit in report["culprits"] for change in culprit["changes"]]


# ---- mark ----------------------------------------------------------------------------------------------------------------


def test_marks_steer_the_search_and_the_answer_is_still_proved(bench: Bench) -> None:
    name = bench.ask()
    out = bench.succeed("mark", bench.commit(8), "good")
    assert out.startswith(f"{bench.commit(8)[:12]} (version 8 of 13) is marked good; `bisect-train resume {name}`")
    bench.succeed("mark", bench.commit(9)[:10], "bad", "--bisection", name)
    report = bench.report("resume", "--quiet")
    assert report["status"] == "isolated" and culprits_of(report) == [bench.commit(CULPRIT)]
    marked = f"marked by hand, not measured: {bench.commit(8)[:8]} good, {bench.commit(9)[:8]} bad"
    assert marked in report["warnings"]
    ran = requests_of(bench.events())
    assert not {("8", 0), ("9", 0)} & {(point, attempt) for point, _, attempt in ran}
    assert {("8", 1), ("9", 1)} <= {(point, attempt) for point, _, attempt in ran}


def test_wrong_marks_end_in_candidates(bench: Bench) -> None:
    bench.ask()
    for idx in range(1, 13):
        bench.succeed("mark", bench.commit(idx), "bad" if idx > 4 else "good")
    report = bench.report("resume", "--quiet")
    assert report["status"] == "candidates" and not report["culprits"]


def test_state_marked_untestable_is_never_run(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(CULPRIT), "untestable")
    report = bench.report("resume", "--quiet")
    assert report["status"] == "candidates"
    assert {bench.commit(CULPRIT), bench.commit(CULPRIT + 1)} <= {item["id"] for item in report["candidates"]}
    assert str(CULPRIT) not in {point for point, _, _ in requests_of(bench.events())}


def test_cleared_mark_no_longer_counts(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(CULPRIT), "untestable")
    assert "is no longer marked" in bench.succeed("mark", bench.commit(CULPRIT), "clear")
    report = bench.report("resume", "--quiet")
    assert report["status"] == "isolated" and not any("marked" in text for text in report["warnings"])


def test_config_keys_are_marked_by_their_path(bench: Bench) -> None:
    texts = ("lr: 1\nseed: 1\nwidth: 1\n", "lr: 2\nseed: 2\nwidth: 2\n")
    good, bad = (ConfigEnd("a.yaml", FilePatch("a.yaml", text)) for text in texts)
    ends = Range((bench.commit(3),), bench.commit(3))
    question = bench.lab.question(kind="check", range=ends, good_config=good, bad_config=bad)
    with bench.store() as store:
        store.create(question.to_json(), title="keys")
    assert bench.succeed("mark", "seed", "good").startswith("seed (version 2 of 3) is marked good")
    assert "width is the bad end" in bench.refuse("mark", "width", "good")
    assert "is the good end" in bench.refuse("mark", bench.commit(3), "good")
    said = bench.refuse("mark", bench.commit(4), "good")
    assert "is no change of this bisection" in said and "its changes are: lr, seed, width" in said


@pytest.mark.parametrize(("idx", "said"), [(0, "is the good end"), (13, "is the bad end")])
def test_ends_cannot_be_marked(bench: Bench, idx: int, said: str) -> None:
    bench.ask()
    assert said in bench.refuse("mark", bench.commit(idx), "good")
    assert not bench.events()


def test_marks_outside_the_range_or_of_unknown_commits_are_refused(bench: Bench) -> None:
    with bench.store() as store:
        question = bench.lab.question()
        question = replace(question, range=replace(question.range, goods=(bench.commit(4),)))
        store.create(question.to_json(), title="a part")
    said = bench.refuse("mark", bench.commit(2), "bad")
    assert f"is none of the 9 candidates of {bench.commit(4)[:12]}..{bench.commit(13)[:12]}" in said and "git log" in said
    assert "unknown revision 'nosuch'" in bench.refuse("mark", "nosuch", "bad")
    assert "'maybe'" in bench.refuse("mark", bench.commit(6), "maybe")
    assert "there is no bisection 'ffff'" in bench.refuse("mark", bench.commit(6), "bad", "--bisection", "ffff")


@pytest.mark.parametrize("args", [("mark", "HEAD~3", "bad"), ("undo",)])
def test_running_bisection_is_left_alone(bench: Bench, args: tuple[str, ...]) -> None:
    name = bench.ask()
    with bench.store() as store, store.lock(name):
        said = bench.refuse(*args)
    assert "is being run by process" in said and f"bisect-train cancel {name}" in said
    assert not bench.events()


# ---- undo ----------------------------------------------------------------------------------------------------------------


def is_between(point: Point) -> bool:
    return point.is_prefix and 0 < point.prefix < 13


def lie_of(lab: Lab) -> Script:
    """Return a script whose first run between the ends is wrong: a stale cache, say."""
    lies: list[str] = []

    def run(job: ProbeJob) -> SimulatedRun:
        if lies or len(lab.parts_of(job)) in (1, len(lab.commits) - len(lab.same_tree)):
            return lab.run_of(job)
        lies.append(job.id)
        lab.ran.append(job.id)
        return SimulatedRun(fingerprint_of(3.0 - lab.level_of(job), seed_idx=job.spec.seed_idx), 1.0)

    return run


def stop_at_lie(bench: Bench) -> tuple[str, str, Point]:
    """Run the lab's question until a lie is stored; return the bisection's id, the lie's key, and where it was told."""
    done: list[ProbeDone] = []

    def stop_after_the_lie(event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeDone) and is_between(event.observation.point):
            done.append(event)
            raise KeyboardInterrupt

    with bench.store() as store:
        name = store.create(bench.lab.question().to_json(), title="simulated")
        executor = bench.lab.executor(lie_of(bench.lab), slots=1)
        with pytest.raises(InterruptedByUser):
            drive(bench.lab, store, bisection_id=name, executor=executor, listener=stop_after_the_lie)
    return name, done[0].key, done[0].observation.point


def test_undone_observation_is_run_again_and_not_taken_from_the_store(bench: Bench) -> None:
    """Results are known by key, in this bisection and in the store: the lie would come back from either."""
    name, lie, at = stop_at_lie(bench)
    point = at.to_text()
    out = bench.succeed("undo", name)
    assert f"taken back: the run at {point}, " in out and lie in out
    bench.lab.ran.clear()
    report = bench.report("resume", name, "--quiet")
    assert report["status"] == "isolated" and culprits_of(report) == [bench.commit(CULPRIT)]
    assert lie not in bench.lab.ran, "it has a new key"
    assert lie not in {probe["key"] for probe in report["probes"]}
    assert requests_of(bench.events(name)).count((point, 0, 0)) == 2, "the first is still in the store"
    assert "1 run taken back by hand" in report["warnings"]


def test_undone_result_does_not_come_back_for_another_state_with_the_same_files(bench: Bench, tmp_path: Path) -> None:
    bench.lab = replace(Lab.build(tmp_path / "alike", culprit=CULPRIT, same_tree=(5, 6, 7, 8)), home=bench.lab.home)
    bench.script = bench.lab.run_of
    name, _, point = stop_at_lie(bench)
    assert 4 <= point.prefix <= 8, "one of the states that have the same files"
    bench.succeed("undo", name)
    bench.succeed("mark", bench.commit(point.prefix), "untestable")
    bench.lab.ran.clear()
    bench.report("resume", name, "--quiet")
    specs = [event.data["spec"] for event in bench.events(name) if event.kind == "probe_finished"]
    searched = {(spec["point"], spec["seed_idx"]) for spec in specs if spec["attempt"] == 0}
    assert searched & {(str(version), 0) for version in range(4, 9) if version != point.prefix}, "run afresh, not known"


def test_answer_is_no_answer_once_something_is_undone(bench: Bench) -> None:
    name = bench.ask()
    assert bench.report("resume", "--quiet")["status"] == "isolated"
    before = {event.data["key"] for event in bench.events() if event.kind == "probe_finished"}
    assert bench.succeed("undo", "--last", "3").count("taken back: ") == 3
    assert "  changed" in bench.succeed("status") and "resume" in bench.succeed("status")
    assert "changed" in bench.succeed("list")
    assert "has no answer yet" in bench.refuse("report")
    bench.lab.ran.clear()
    report = bench.report("resume", "--quiet")
    assert report["status"] == "isolated" and len(bench.lab.ran) == 3 and not before & set(bench.lab.ran)
    assert any("of a proof" in text for text in report["warnings"])
    with bench.store() as store:
        assert store.load(name).status == "finished"
    bench.lab.ran.clear()
    assert "FOUND THE CULPRIT" in bench.succeed("report").upper() and not bench.lab.ran


def test_same_run_can_be_undone_twice(bench: Bench) -> None:
    bench.ask()
    bench.report("resume", "--quiet")
    keys = set()
    for _ in range(3):
        bench.succeed("undo")
        bench.lab.ran.clear()
        assert bench.report("resume", "--quiet")["status"] == "isolated"
        assert len(bench.lab.ran) == 1
        keys.update(bench.lab.ran)
    assert len(keys) == 3


def test_undo_takes_back_a_mark_and_then_the_one_before_holds(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(5), "good")
    bench.succeed("mark", bench.commit(5), "bad")
    assert f"taken back: mark {bench.commit(5)[:12]} bad" in bench.succeed("undo")
    assert f"mark {bench.commit(5)[:12]} good" in bench.succeed("log", "--observations")
    bench.succeed("undo")
    assert "\nmark " not in bench.succeed("log", "--observations")
    assert "has 0 observations and marks, not 1" in bench.refuse("undo")


def test_bisection_that_was_undone_survives_a_kill(bench: Bench) -> None:
    """Undo, go on, stop again after each start: the taken-back run never comes back."""
    name = bench.interrupt(14)
    bench.succeed("undo", name, "--last", "4")
    finished = Counter(requests_of(bench.events(name)))
    for num in (1, 2, 3):
        with bench.store() as store, pytest.raises(InterruptedByUser):
            drive(bench.lab, store, bisection_id=name, executor=bench.lab.executor(slots=1), listener=stop_after(num))
    report = bench.report("resume", name, "--quiet")
    assert report["status"] == "isolated"
    again = Counter(requests_of(bench.events(name))) - finished
    assert sum((again & finished).values()) == 4, "each is run again, once"


# ---- log and replay ------------------------------------------------------------------------------------------------------


def written_log(bench: Bench, folder: Path) -> tuple[Path, list[str]]:
    """Write the newest bisection's log; return its place and its lines."""
    place = folder / "runs.txt"
    assert "correct them" in bench.succeed("log", "--observations", "--out", str(place))
    return place, place.read_text().splitlines()


def index_of(lines: list[str], *parts: str) -> int:
    return next(idx for idx, line in enumerate(lines) if all(part in line for part in parts) and not line.startswith("#"))


@pytest.fixture
def answered(bench: Bench) -> Bench:
    """A bisection that has its answer."""
    bench.ask()
    assert bench.report("resume", "--quiet")["status"] == "isolated"
    bench.lab.ran.clear()
    return bench


def test_untouched_log_replays_to_the_same_answer_without_a_run(answered: Bench, tmp_path: Path) -> None:
    place, lines = written_log(answered, tmp_path)
    first = answered.report("report")
    num_runs = sum(event.kind in ("probe_finished", "result_shared") for event in answered.events())
    assert sum(" key=" in line for line in lines) == num_runs
    assert any(line.split()[0] == "bad" for line in lines) and any(line.split()[0] == "good" for line in lines)
    report = answered.report("replay", str(place), "--quiet")
    assert not answered.lab.ran
    assert report["id"] != first["id"] and f"this is a replay of {first['id']}" in report["warnings"]
    assert (report["status"], culprits_of(report)) == (first["status"], culprits_of(first))
    assert report["culprits"][0]["effect"] == first["culprits"][0]["effect"]
    # a replay of the replay, which is the newest now
    again, _ = written_log(answered, tmp_path)
    assert answered.report("replay", str(again), "--quiet")["status"] == "isolated" and not answered.lab.ran


def test_deleted_line_never_happened_and_is_run_again_where_it_is_needed(answered: Bench, tmp_path: Path) -> None:
    place, lines = written_log(answered, tmp_path)
    gone = index_of(lines, "at=0 ", "seed=0 ", "repeat=0", "attempt=0")
    key = lines.pop(gone).split("key=")[1].split()[0]
    place.write_text("\n".join(lines))
    old = answered.report("report")["id"]
    status, _, err = answered.call("replay", str(place))
    assert status == 0 and "1 left out" in err
    assert len(answered.lab.ran) == 1 and key not in answered.lab.ran
    report = answered.report("report")
    assert f"this is a replay of {old} without 1 observation of it" in report["warnings"]
    assert key not in {probe["key"] for probe in report["probes"]}
    assert answered.report("report", old)["status"] == "isolated", "the old one stays as it is"


def test_runs_taken_over_are_not_doubted_where_runs_do_not_repeat(bench: Bench, tmp_path: Path) -> None:
    """A fresh repeat that differs drops the results of other bisections, but not those that a person kept."""

    def never_the_same(job: ProbeJob) -> SimulatedRun:
        bench.lab.ran.append(job.id)
        return SimulatedRun(fingerprint_of(bench.lab.level_of(job), seed_idx=job.spec.seed_idx, salt=job.id), 1.0)

    bench.script = never_the_same
    bench.ask()
    assert bench.report("resume", "--quiet")["status"] == "isolated"
    place, lines = written_log(bench, tmp_path)
    lines.pop(index_of(lines, "at=0 ", "repeat=1"))
    place.write_text("\n".join(lines))
    bench.lab.ran.clear()
    assert bench.report("replay", str(place), "--quiet")["status"] == "isolated"
    assert len(bench.lab.ran) == 1
    assert "reuse_distrusted" not in {event.kind for event in bench.events()}


def test_log_written_before_the_ends_were_proved_can_be_replayed_later(bench: Bench, tmp_path: Path) -> None:
    bench.interrupt(5)
    place, lines = written_log(bench, tmp_path)
    assert {line.split()[0] for line in lines if " key=" in line} == {"value"}
    assert bench.report("resume", "--quiet")["status"] == "isolated"
    assert "0 untestable" in bench.succeed("replay", str(place), "--dry-run")


def test_runs_called_untestable_say_nothing(answered: Bench, tmp_path: Path) -> None:
    place, lines = written_log(answered, tmp_path)
    point = f"at={CULPRIT} "
    changed = [f"untestable {line.split(' ', 1)[1]}" if point in line else line for line in lines]
    assert changed != lines
    place.write_text("\n".join(changed))
    report = answered.report("replay", str(place), "--quiet")
    assert report["status"] == "candidates"
    assert bench_names(report) >= {answered.commit(CULPRIT), answered.commit(CULPRIT + 1)}


def bench_names(report: dict[str, Any]) -> set[str]:
    return {item["id"] for item in report["candidates"]}


def test_marks_of_a_log_count_in_the_replay(answered: Bench, tmp_path: Path) -> None:
    place, lines = written_log(answered, tmp_path)
    place.write_text("\n".join([*lines, f"mark {answered.commit(CULPRIT)[:10]} untestable  # a comment"]))
    report = answered.report("replay", str(place), "--quiet")
    assert report["status"] == "candidates"
    assert any("marked by hand" in text for text in report["warnings"])
    assert f"mark {answered.commit(CULPRIT)[:12]} untestable" in answered.succeed("log", "--observations")


def test_dry_run_says_where_a_log_leads_and_stores_nothing(answered: Bench, tmp_path: Path) -> None:
    place, lines = written_log(answered, tmp_path)
    proved = [line for line in lines if "attempt=1" not in line]
    place.write_text("\n".join(proved))
    with answered.store() as store:
        before = len(store.list())
    out = answered.succeed("replay", str(place), "--dry-run")
    assert "proving the answer with fresh runs" in out and answered.commit(CULPRIT)[:8] in out
    assert out.count("\nnext ") >= 4 and "proof 1" in out
    place.write_text("\n".join(lines))
    assert "answer    isolated" in answered.succeed("replay", str(place), "--dry-run")
    with answered.store() as store:
        assert len(store.list()) == before
    assert not answered.lab.ran


BAD_LINES: list[tuple[Callable[[str], str], str]] = [
    (lambda line: line.replace("value=", "value=1"), "a result cannot be changed"),
    (lambda line: line.replace("bits=", "bits=0"), "a result cannot be changed"),
    (lambda line: line.rsplit(" key=", 1)[0], "the bisection has no such run"),
    (lambda line: line.replace("seed=0", "seed=77"), "the bisection has no such run"),
    (lambda line: line.replace("at=0 ", "at=1 "), "the bisection has no such run"),
    (lambda line: line.replace("good ", "bad ", 1), "can only become `untestable`"),
    (lambda line: line.split("bits=")[0] + " ".join(line.split("  # ")[0].split()[-1:]), "a result cannot be changed"),
    (lambda line: f"{line}\n{line}", "this run comes twice"),
    (lambda line: line.replace("good ", "okay ", 1), "a line begins with `mark`"),
    (lambda line: "mark", "a mark is `mark COMMIT good|bad|untestable`"),
    (lambda line: "mark HEAD~2 fine", "a mark is `mark COMMIT good|bad|untestable`"),
    (lambda line: "mark nosuch bad", "unknown revision 'nosuch'"),
    (lambda line: "mark HEAD bad", "is the bad end"),
    (lambda line: "bisection one two", "one line `bisection ID`"),
]


def test_bad_lines_are_refused_with_file_and_line(answered: Bench, tmp_path: Path) -> None:
    place, lines = written_log(answered, tmp_path)
    at = index_of(lines, "good", "at=0 ", "seed=0 ")
    with answered.store() as store:
        before = len(store.list())
    for edit, said in BAD_LINES:
        place.write_text("\n".join([*lines[:at], edit(lines[at]), *lines[at + 1 :]]))
        err = answered.refuse("replay", str(place), "--quiet")
        number = at + 2 if "twice" in said else at + 1
        assert f"{place}:{number}: " in err and said in err, err
    with answered.store() as store:
        assert len(store.list()) == before


def test_files_that_cannot_be_read_are_refused(answered: Bench, tmp_path: Path) -> None:
    assert "No such file" in answered.refuse("replay", str(tmp_path / "nosuch.txt"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "no UTF-8 text" in answered.refuse("replay", str(tmp_path / "binary"))
    place, _ = written_log(answered, tmp_path)
    assert "there is no bisection 'ffff'" in answered.refuse("replay", str(place), "ffff")
    assert "exclude each other" in answered.refuse("log", "--observations", "--json")
    assert "--out is for --observations" in answered.refuse("log", "--out", str(place))


def test_log_of_events_shows_what_a_person_did(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(5), "good")
    bench.succeed("undo")
    out = bench.succeed("log")
    assert f"marked           point=5  commit={bench.commit(5)}  verdict=good" in out and "1 events taken back" in out


# ---- priors --------------------------------------------------------------------------------------------------------------

RUN = ("run", "--quiet", "--parallel", "1")
TRAINING = ("--", "python", "train.py")


def ask_with(bench: Bench, *priors: str, dry: bool = False) -> tuple[str, ...]:
    rules = [part for rule in priors for part in ("--prior", rule)]
    return (*RUN, *(["--dry-run"] if dry else []), "--good", bench.commit(0), "--no-reuse", *rules)


def num_searched(events: tuple[StoredEvent, ...]) -> int:
    return sum(attempt == 0 and point not in ("0", "13") for point, _, attempt in requests_of(events))


def test_prior_is_stored_and_shortens_the_search(bench: Bench) -> None:
    assert bench.call(*ask_with(bench), *TRAINING)[0] == 0
    plain = num_searched(bench.events())
    assert bench.call(*ask_with(bench, "message:number 9$=300"), *TRAINING)[0] == 0
    assert num_searched(bench.events()) < plain
    with bench.store() as store:
        assert store.load("last").question["priors"] == ["message:number 9$=300"]


def test_culprit_found_against_its_prior_is_named_with_a_warning(bench: Bench) -> None:
    place = bench.lab.home / "report.json"
    status, _, _ = bench.call(*ask_with(bench, "message:number 9$=0.001"), "--json", str(place), *TRAINING)
    report = json.loads(place.read_text())
    assert status == 0 and culprits_of(report) == [bench.commit(CULPRIT)]
    assert f"{bench.commit(CULPRIT)[:8]} was found against its prior (weight 0.001)" in report["warnings"]


def test_dry_run_tells_the_priors_and_idle_ones_are_warned_of(bench: Bench) -> None:
    status, out, err = bench.call(*ask_with(bench, "path:train.py=2", "path:docs/**=0.1", dry=True), *TRAINING)
    assert status == 0 and "prior     path:train.py=2 (13 changes)" in out and "prior     path:docs/**=0.1 (0 changes)" in out
    assert err == "bisect-train: warning: --prior 'path:docs/**=0.1' matches no change of the range\n"


@pytest.mark.parametrize("rule", ["docs=1", "message:(=1", "path:docs=0", "path:docs=2000", "file:docs=1"])
def test_bad_prior_is_refused(bench: Bench, rule: str) -> None:
    assert f"--prior {rule!r}" in bench.refuse(*ask_with(bench, rule), *TRAINING)
