"""The person in the loop: the log of observations and its replay, through the command line. Nothing is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.probe import ProbeJob
from bisect_train_workers.simulated import SimulatedRun
from tests.support.command_bench import CULPRIT, Bench, culprits_of
from tests.support.simulated_bisection import fingerprint_of


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
