"""`--keep`: what a probe leaves on the node for a person, and that the next probe does not notice."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import ProbeResult
from bisect_train.report.probe_view import render_probe
from bisect_train.store.codec import pack_result, unpack_result
from bisect_train.store.contract import StoredProbe
from bisect_train_workers.node import NodeHome
from tests.support.probes import TinyRepo, job_of, make_job, make_settings, result_of

PROGRAM = (
    "import sys, pathlib\npathlib.Path('made.txt').write_text('here')\npathlib.Path(sys.argv[1], 'saved').write_text('s')\n"
)
COMMAND = ("python", "train.py", "{out}")
KEEP = make_settings(needs_recorder=False, keep=True)
PLAIN = make_settings(needs_recorder=False)


def names_in(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_kept_probe_leaves_its_checkout_output_and_log(tmp_path: Path) -> None:
    home = tmp_path / "n"
    result = result_of(job_of(tmp_path / "r", PROGRAM, id="abc123", command=COMMAND, settings=KEEP), home)
    assert result.fingerprint.ending.kind is EndingKind.FINISHED and result.warnings == ()
    kept = Path(result.kept)
    assert kept == home / "kept" / "abc123"
    assert names_in(kept / "checkout") == [".git", "made.txt", "train.py"] and names_in(kept / "out") == ["saved"]
    assert {"program.log", "records"} <= set(names_in(kept)) and not {"lock", "tmp"} & set(names_in(kept))
    assert names_in(NodeHome(home).probes) == []


def test_probe_after_a_kept_one_begins_clean_and_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "n"
    repo = TinyRepo(tmp_path / "r")
    first = repo.commit({"train.py": PROGRAM})
    second = repo.commit({"train.py": "import os\nprint(sorted(os.listdir('.')))\n", "more.py": ""})
    kept = [Path(result_of(make_job(first, id="same", command=COMMAND, settings=KEEP), home).kept) for _ in range(2)]
    assert [folder.name for folder in kept] == ["same", "same-2"]
    after = result_of(make_job(second, settings=PLAIN), home)
    assert after.kept == "" and "['.git', 'more.py', 'train.py']" in after.log_tail
    assert names_in(home / "kept") == ["same", "same-2"]
    assert names_in(kept[0] / "checkout") == names_in(kept[1] / "checkout") == [".git", "made.txt", "train.py"]


def test_probe_whose_setup_fails_is_kept_too(tmp_path: Path) -> None:
    settings = make_settings(keep=True, setup=(("python", "-c", "open('half', 'w'); raise SystemExit(3)"),))
    result = result_of(job_of(tmp_path / "r", PROGRAM, settings=settings), tmp_path / "n")
    assert result.fingerprint.ending.kind is EndingKind.CANNOT_START
    assert "half" in names_in(Path(result.kept) / "checkout") and "setup-0.log" in names_in(Path(result.kept))


def test_folders_that_cannot_be_kept_are_a_warning_and_no_verdict(tmp_path: Path) -> None:
    home = tmp_path / "n"
    home.mkdir()
    (home / "kept").write_text("no folder")
    result = result_of(job_of(tmp_path / "r", PROGRAM, command=COMMAND, settings=KEEP), home)
    assert result.fingerprint.ending.kind is EndingKind.FINISHED and result.kept == ""
    assert any("could not be kept" in warning for warning in result.warnings)


def test_place_of_a_kept_probe_is_stored_and_shown(tmp_path: Path) -> None:
    result = result_of(job_of(tmp_path / "r", PROGRAM, command=COMMAND, settings=KEEP), tmp_path / "n")
    again = unpack_result(pack_result(result))
    assert again == result
    assert f"kept      {result.kept} on {result.node}" in _shown(again)
    assert "kept " not in _shown(ProbeResult("job", result.fingerprint))


def _shown(result: ProbeResult) -> str:
    console = Console(width=1000)
    with console.capture() as capture:
        console.print(render_probe(StoredProbe("key", "bisection", {}, result, 0.0)))
    return capture.get()
