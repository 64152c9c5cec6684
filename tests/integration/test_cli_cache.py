"""`cache ls|gc|verify` through the command line: bisections with simulated probes, real git objects, real folders."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.cli.stored_results import Machine
from bisect_train.core.probe import RECORDER_VERSION, MachineFacts, ProbeJob, RunSettings
from bisect_train_workers.locks import try_lock
from bisect_train_workers.simulated import SIMULATED_FACTS, SimulatedRun
from tests.support.command_bench import Bench
from tests.support.git_repos import UserRepo
from tests.support.simulated_bisection import fingerprint_of

OLD_S = time.time() - 90 * 86_400
facts_of = Machine.facts


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are simulated, so this machine is the simulated one."""
    monkeypatch.setattr(Machine, "facts", lambda self, settings: SIMULATED_FACTS)
    monkeypatch.delenv("BISECT_TRAIN_CACHE_LIMIT", raising=False)


def listed(bench: Bench) -> dict[str, Any]:
    place = bench.lab.home.parent / "cache.json"
    bench.succeed("cache", "ls", "--json", str(place))
    data: dict[str, Any] = json.loads(place.read_text())
    return data


def run_to_end(bench: Bench) -> str:
    """Run the lab's question to its answer; return the id."""
    name = bench.ask()
    bench.call("resume", "--quiet")
    return name


def fill_node(bench: Bench, key: str = "r") -> Path:
    """Write a checkout and a mirror as a probe leaves them; return the checkout's slot."""
    repo = bench.lab.home / "node/repos" / key
    (repo / "slots/0/tree/.git").mkdir(parents=True)
    (repo / "slots/0/tree/train.py").write_bytes(os.urandom(20_000))
    (repo / "slots/0/lock").touch()
    subprocess.run(["git", "init", "-q", "--bare", str(repo / "mirror.git")], check=True)
    (repo / "mirror.git/packs-put").mkdir()
    return repo / "slots/0"


def text_of(output: str) -> str:
    return " ".join(output.split())


# ---- ls -----------------------------------------------------------------------------------------------------------


def test_missing_home_is_said_and_not_made(bench: Bench) -> None:
    bench.lab.home.rmdir()
    assert "nothing is kept" in bench.succeed("cache", "ls") and "does not exist" in bench.succeed("cache", "ls")
    assert "removed 0 items" in bench.succeed("cache", "gc")
    assert "all is well" in bench.succeed("cache", "verify", "--rerun", "2")
    assert not bench.lab.home.exists()


def test_what_is_kept_is_listed_by_kind(bench: Bench) -> None:
    name = run_to_end(bench)
    fill_node(bench)
    (bench.lab.home / "node/kept/1/checkout").mkdir(parents=True)
    data = listed(bench)
    assert {item["kind"] for item in data["items"]} == {"mirror", "packs", "checkout", "node mirror", "kept probe"}
    held = {item["kind"]: item["held_by"] for item in data["items"]}
    assert held["mirror"] == "1 bisection" and held["checkout"] is None
    assert [item["id"] for item in data["bisections"]] == [name]
    assert data["total_bytes"] == data["database_bytes"] + sum(item["bytes"] for item in data["items"]) > 20_000
    (group,) = data["results"]
    num = sum(event.kind == "probe_finished" for event in bench.events())
    assert group["num"] == num > group["num_reusable"] > 0, "repeats and proofs are fresh in each bisection"
    assert group["hardware_class"] == SIMULATED_FACTS.hardware_class
    said = text_of(bench.succeed("cache", "ls"))
    assert f"{num} results" in said and f"{group['num_reusable']} reusable here now" in said and str(bench.lab.home) in said


@pytest.mark.parametrize("change", [{"hardware_class": "another CPU"}, {"interpreter": "python 3.13.0, torch 2.14.0"}], ids=str)
def test_results_of_another_machine_are_not_reusable_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    run_to_end(bench)
    monkeypatch.setattr(Machine, "facts", lambda self, settings: replace(SIMULATED_FACTS, **change))
    assert listed(bench)["results"][0]["num_reusable"] == 0


def test_results_of_another_recorder_are_not_reusable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to_end(bench)
    monkeypatch.setattr("bisect_train.cli.stored_results.RECORDER_VERSION", "99")
    assert listed(bench)["results"][0]["num_reusable"] == 0


def test_reusable_results_are_those_that_the_next_bisection_takes_over(bench: Bench) -> None:
    run_to_end(bench)
    num = listed(bench)["results"][0]["num_reusable"]
    run_to_end(bench)
    kinds = [event.kind for event in bench.events()]
    assert 0 < kinds.count("probe_reused") <= num


@pytest.mark.parametrize("change", [{"hardware_class": "another CPU"}, {"interpreter": "python 3.13.0, torch 2.14.0"}], ids=str)
def test_bisection_on_another_machine_takes_nothing_over(bench: Bench, change: dict[str, str]) -> None:
    run_to_end(bench)
    facts: MachineFacts = replace(SIMULATED_FACTS, **change)
    lab = bench.lab
    bench.lab.executor = lambda script=None, **more: type(lab).executor(lab, script, facts=facts)  # type: ignore[method-assign]
    run_to_end(bench)
    kinds = [event.kind for event in bench.events()]
    assert kinds.count("probe_reused") == 0 < kinds.count("probe_finished")


def test_damaged_database_is_said_and_the_rest_is_listed(bench: Bench) -> None:
    run_to_end(bench)
    (bench.lab.home / "bisect-train.db").write_bytes(b"not a database at all" * 100)
    for name in ("-wal", "-shm"):
        (bench.lab.home / f"bisect-train.db{name}").unlink(missing_ok=True)
    status, out, err = bench.call("cache", "ls")
    assert status == 1 and "mirror" in out and "this file is not a database" in err and "move it away" in err
    status, out, _ = bench.call("cache", "gc", "--max-size", "0")
    assert status == 1 and (bench.lab.home / "mirrors").exists(), "what a lost bisection may have needed stays"
    assert len(list((bench.lab.home / "mirrors").iterdir())) == 1 and len(list((bench.lab.home / "packs").iterdir())) == 1
    status, out, _ = bench.call("cache", "verify")
    assert status == 1 and "FAIL  database" in out and "mv " in out


def test_home_that_cannot_be_written_is_listed_and_said(bench: Bench) -> None:
    """In a process of a user who may read the home and not write it: this test may be root's."""
    run_to_end(bench)
    for path in bench.lab.home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    parent = bench.lab.home.parent
    while parent != parent.parent and parent.stat().st_uid == os.geteuid() and str(parent) != "/tmp":
        parent.chmod(parent.stat().st_mode | 0o055)
        parent = parent.parent
    program = (
        "import os, sys; from pathlib import Path; from bisect_train.cli.stock import take_stock;"
        "home = Path(sys.argv[1]); take_stock(home); os.getuid() or os.setuid(12345); stock = take_stock(home);"
        "print(sorted(item.kind for item in stock.items), stock.trouble and stock.trouble.message)"
    )
    bench.lab.home.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", program, str(bench.lab.home)], capture_output=True, text=True, check=False)
    bench.lab.home.chmod(0o755)
    assert done.stdout.startswith("['mirror', 'packs']") and "no permission to write there" in done.stdout, done.stderr


# ---- gc -----------------------------------------------------------------------------------------------------------


def test_dry_run_lists_and_removes_nothing(bench: Bench) -> None:
    run_to_end(bench)
    slot = fill_node(bench)
    before = listed(bench)
    said = bench.succeed("cache", "gc", "--dry-run", "--max-size", "0")
    assert "would remove 3 items" in text_of(said) and "checkout" in said
    assert listed(bench) == before and (slot / "tree").is_dir()


def test_what_nothing_needs_goes_and_reports_stay_readable(bench: Bench) -> None:
    run_to_end(bench)
    slot = fill_node(bench)
    report = bench.succeed("report")
    said = text_of(bench.succeed("cache", "gc", "--max-size", "0"))
    assert "removed 3 items" in said and "nothing is left behind" in said
    assert "above the limit all the same" in said and "in use or needed" in said and "--bisections-older-than" in said
    assert not (slot / "tree").exists() and (slot / "lock").exists()
    assert [item["kind"] for item in listed(bench)["items"]] == ["mirror"]
    assert bench.succeed("report") == report
    run_to_end(bench)
    assert sum(event.kind == "probe_reused" for event in bench.events()) > 0


def test_items_go_by_age_whatever_the_size(bench: Bench) -> None:
    old, young = fill_node(bench, "old"), fill_node(bench, "young")
    os.utime(old / "tree/.git", (OLD_S, OLD_S))
    os.utime(old.parents[1] / "mirror.git/packs-put", (OLD_S, OLD_S))
    assert "removed 2 items" in bench.succeed("cache", "gc", "--older-than", "30d")
    assert not (old / "tree").exists() and (young / "tree").is_dir()


def test_folder_that_is_not_of_the_cache_is_listed_and_stays(bench: Bench) -> None:
    (bench.lab.home / "notes").mkdir()
    (bench.lab.home / "notes/mine.txt").write_text("x")
    assert [item["kind"] for item in listed(bench)["items"]] == ["other folder"]
    assert "removed 0 items" in bench.succeed("cache", "gc", "--max-size", "0", "--older-than", "0", "--kept")
    assert (bench.lab.home / "notes/mine.txt").exists()


def test_limit_comes_from_the_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = fill_node(bench)
    assert "removed 0 items" in bench.succeed("cache", "gc") and (slot / "tree").is_dir()
    monkeypatch.setenv("BISECT_TRAIN_CACHE_LIMIT", "1kB")
    assert "limit 1.00 kB" in bench.succeed("cache", "gc") and not (slot / "tree").exists()
    monkeypatch.setenv("BISECT_TRAIN_CACHE_LIMIT", "plenty")
    for command in ("ls", "gc"):
        assert "'plenty' is not a size" in bench.refuse("cache", command)


def test_what_a_probe_or_a_running_bisection_holds_stays(bench: Bench) -> None:
    name = run_to_end(bench)
    slot = fill_node(bench)
    held = try_lock(slot / "lock")
    assert held is not None
    with bench.store() as store, store.lock(name):
        said = text_of(bench.succeed("cache", "gc", "--max-size", "0", "--bisections-older-than", "0"))
        assert "removed 0 items" in said
        assert f"bisection {name} is running" in bench.refuse("cache", "gc", "--bisection", name)
        assert "1 running" in bench.succeed("cache", "ls")
        assert {item["held_by"] for item in listed(bench)["items"]} == {"1 bisection", "a running bisection", "a probe"}
    held.release()
    assert "removed 3 items" in bench.succeed("cache", "gc", "--max-size", "0")


def test_kept_probes_go_only_when_asked_for(bench: Bench) -> None:
    kept = bench.lab.home / "node/kept/1"
    (kept / "checkout").mkdir(parents=True)
    said = bench.succeed("cache", "gc", "--max-size", "0", "--older-than", "0")
    assert "removed 0 items" in said and kept.is_dir() and "kept for a person (--kept)" in said
    assert "removed 1 item " in bench.succeed("cache", "gc", "--max-size", "0", "--kept") and not kept.exists()


def test_mirror_of_no_bisection_goes_once_it_has_settled(bench: Bench, tmp_path: Path) -> None:
    run_to_end(bench)
    other = UserRepo.create(tmp_path / "other")
    other.commit({"a": "b"})
    mirror = other.open(bench.lab.home).mirror
    assert "removed 1 item " in bench.succeed("cache", "gc", "--max-size", "0"), "packs only: it may be just being asked about"
    assert mirror.is_dir()
    for path in (mirror / "objects", *(mirror / "objects").iterdir()):
        os.utime(path, (OLD_S, OLD_S))
    bench.succeed("cache", "gc", "--older-than", "30d")
    assert not mirror.exists() and len(list(mirror.parent.iterdir())) == 1


def test_mirror_of_a_worktree_is_needed_by_its_bisection(bench: Bench, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    bench.lab.repo.git("worktree", "add", "-q", "--detach", str(tree))
    try:
        with bench.store() as store:
            store.create(replace(bench.lab.question(), repo=str(tree)).to_json(), title="in a worktree")
        bench.lab.repo.open(bench.lab.home)
        assert [item["held_by"] for item in listed(bench)["items"]] == ["1 bisection"]
    finally:
        bench.lab.repo.git("worktree", "remove", "--force", str(tree))


def test_bisections_go_when_asked_for_with_their_parts_and_locks(bench: Bench) -> None:
    first = run_to_end(bench)
    with bench.store() as store:
        part = store.create(replace(bench.lab.question(), part_of=first).to_json(), title="a part")
        (bench.lab.home / "locks").mkdir(exist_ok=True)
        (bench.lab.home / f"locks/{first}.lock").touch()
        second = store.create(bench.lab.question().to_json(), title="another")
    said = bench.succeed("cache", "gc", "--dry-run", "--bisection", first)
    assert f"bisection {first}" in said and f"bisection {part}" in said and second not in said
    bench.succeed("cache", "gc", "--bisection", first)
    with bench.store() as store:
        assert [stored.id for stored in store.list()] == [second]
    assert not (bench.lab.home / f"locks/{first}.lock").exists()
    bench.succeed("cache", "gc", "--bisections-older-than", "1h")
    assert len(listed(bench)["bisections"]) == 1, "something happened in it within the hour"
    bench.succeed("cache", "gc", "--bisections-older-than", "0")
    assert listed(bench)["bisections"] == [] and listed(bench)["results"] == []
    assert "there is no bisection 'ffff'" in bench.refuse("cache", "gc", "--bisection", "ffff")


@pytest.mark.parametrize("args", [("--max-size", "big"), ("--older-than", "30"), ("--bisections-older-than", "-1d")])
def test_amounts_that_are_none_are_refused(bench: Bench, args: tuple[str, str]) -> None:
    assert "such as" in bench.refuse("cache", "gc", *args)


# ---- verify -------------------------------------------------------------------------------------------------------


def edit(bench: Bench, statement: str, *values: object) -> None:
    """Change a row behind the store's back."""
    connection = sqlite3.connect(bench.lab.home / "bisect-train.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


def a_result(bench: Bench) -> tuple[str, bytes]:
    connection = sqlite3.connect(bench.lab.home / "bisect-train.db")
    key, packed = connection.execute("SELECT key, result FROM probes ORDER BY key LIMIT 1").fetchone()
    connection.close()
    return str(key), bytes(packed)


def test_whole_cache_is_well(bench: Bench) -> None:
    run_to_end(bench)
    fill_node(bench)
    said = bench.succeed("cache", "verify")
    num = sum(event.kind == "probe_finished" for event in bench.events())
    assert "all is well" in said and "FAIL" not in said and f"{num} of {num} decode and are those of their keys" in said
    assert "cannot be computed again" not in said


def test_result_that_cannot_be_decoded_is_named_with_what_mends_it(bench: Bench) -> None:
    name = run_to_end(bench)
    key, packed = a_result(bench)
    edit(bench, "UPDATE probes SET result = ? WHERE key = ?", packed[:-20], key)
    status, out, _ = bench.call("cache", "verify", "--rerun", "1")
    assert status == 1 and f"{key} of bisection {name}: a stored result cannot be read" in text_of(out)
    assert f"bisect-train cache gc --bisection {name}" in out and "nothing is run again" in out
    bench.succeed("cache", "gc", "--bisection", name)
    bench.succeed("cache", "verify")


def test_result_under_another_key_is_found(bench: Bench) -> None:
    run_to_end(bench)
    key, packed = a_result(bench)
    data = json.loads(zlib.decompress(packed)) | {"job_id": "0" * 16}
    edit(bench, "UPDATE probes SET result = ? WHERE key = ?", zlib.compress(json.dumps(data).encode()), key)
    status, out, _ = bench.call("cache", "verify")
    assert status == 1 and f"{key}" in out and "it is the result of probe 0000000000000000" in text_of(out)


def test_result_of_an_older_recorder_is_told_and_no_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to_end(bench)
    newer = str(int(RECORDER_VERSION) + 1)
    monkeypatch.setattr("bisect_train.cli.stored_results.RECORDER_VERSION", newer)
    monkeypatch.setattr("bisect_train.cli.checking.RECORDER_VERSION", newer)
    assert f"of recorder {RECORDER_VERSION}, never taken over" in bench.succeed("cache", "verify")


def test_question_that_cannot_be_read_is_found(bench: Bench) -> None:
    with bench.store() as store:
        name = store.create({"kind": "run", "repo": "/nowhere"}, title="of another version")
    status, out, _ = bench.call("cache", "verify")
    assert status == 1 and f"first that of {name}" in out


def test_damaged_git_objects_are_found(bench: Bench) -> None:
    run_to_end(bench)
    mirror = next((bench.lab.home / "mirrors").glob("*.git"))
    stray = next(path for path in (mirror / "objects").rglob("*") if path.is_file() and path.parent.name != "info")
    stray.chmod(0o644)
    stray.write_bytes(b"something else")
    status, out, _ = bench.call("cache", "verify")
    assert status == 1 and "FAIL  mirror" in out and f"rm -r {mirror}" in text_of(out)


def test_lost_ends_of_a_bisection_are_found(bench: Bench) -> None:
    name = run_to_end(bench)
    with bench.store() as store:
        question = store.load(name).question
        question["range"]["goods"] = ["0123456789" * 4]
    edit(bench, "UPDATE bisections SET question = ? WHERE id = ?", json.dumps(question), name)
    status, out, _ = bench.call("cache", "verify")
    assert status == 1 and f"the ends of 1 of 1 bisections are not in their repositories: {name}" in text_of(out)


def test_environment_that_does_not_start_and_overlay_without_files_are_found(bench: Bench) -> None:
    environment = bench.lab.home / "node/environments/abc/env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    overlay = bench.lab.home / "node/overlays/def"
    info = overlay / "site-packages/toy-1.0.dist-info"
    info.mkdir(parents=True)
    (overlay / "overlay.json").write_text('{"digest": "1"}')
    (overlay / "site-packages/toy.py").write_text("x = 1\n")
    (info / "RECORD").write_text("toy.py,sha256=abc,6\ntoy-1.0.dist-info/RECORD,,\n")
    bench.succeed("cache", "verify")
    (overlay / "site-packages/toy.py").write_text("x = 1 # more\n")
    (environment / "bin/python").unlink()
    status, out, _ = bench.call("cache", "verify")
    assert status == 1 and "toy.py has 13 bytes, its package says 6" in text_of(out) and "its python does not start" in out
    bench.succeed("cache", "gc", "--max-size", "0")
    bench.succeed("cache", "verify")


def test_fresh_runs_that_give_the_same_bits_are_well(bench: Bench) -> None:
    run_to_end(bench)
    bench.lab.ran.clear()
    said = bench.succeed("cache", "verify", "--rerun", "3")
    assert text_of(said).count("a fresh run gives the same bits") == 3 == len(bench.lab.ran)
    assert len(listed(bench)["bisections"]) == 1, "fresh runs are stored nowhere"


def test_stored_result_that_a_fresh_run_does_not_give_is_named(bench: Bench) -> None:
    name = run_to_end(bench)

    def changed(job: ProbeJob) -> SimulatedRun:
        bench.lab.ran.append(job.id)
        level = bench.lab.level_of(job) + 1.0  # as if something outside git had changed
        return SimulatedRun(fingerprint_of(level, seed_idx=job.spec.seed_idx))

    bench.script = changed
    status, out, _ = bench.call("cache", "verify", "--rerun", "1")
    assert status == 1 and "is not what a fresh run gives" in text_of(out) and f"cache gc --bisection {name}" in out
    assert "first differ" in text_of(out)


def test_run_that_does_not_repeat_today_says_nothing(bench: Bench) -> None:
    run_to_end(bench)

    def random(job: ProbeJob) -> SimulatedRun:
        bench.lab.ran.append(job.id)
        return SimulatedRun(fingerprint_of(1.0, seed_idx=job.spec.seed_idx, salt=str(len(bench.lab.ran))))

    bench.script = random
    assert "two fresh runs differ from each other" in text_of(bench.succeed("cache", "verify", "--rerun", "1"))


def test_nothing_is_run_again_without_a_repository_or_on_another_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to_end(bench)
    bench.lab.ran.clear()
    monkeypatch.setattr(Machine, "facts", lambda self, settings: replace(SIMULATED_FACTS, hardware_class="another"))
    assert "none of this hardware" in text_of(bench.succeed("cache", "verify", "--rerun", "1"))
    assert bench.lab.ran == []


def test_settings_without_an_interpreter_are_of_no_machine() -> None:
    assert facts_of(Machine(), RunSettings("/no/such/python")) is None
