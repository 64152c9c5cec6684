"""report.json of older versions, as they wrote it, is read and shown; a newer one and what is none are refused by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.errors import InputError
from bisect_train.report import render_stored_markdown
from bisect_train.report.reading import read_report
from bisect_train.report.wire import SCHEMA
from tests.support.command_bench import Run

KEPT = sorted((Path(__file__).parents[1] / "data" / "reports").glob("*.json.gz"))


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def changed(**more: Any) -> str:
    return json.dumps({**json.loads(text_of(KEPT[0])), **more})


@pytest.mark.parametrize("path", KEPT, ids=[path.name[:9] for path in KEPT])
def test_report_of_an_older_version_is_read_and_shown(path: Path, tmp_path: Path, run: Run) -> None:
    data = read_report(text_of(path), name="r.json")
    assert (data["status"], len(data["culprits"]), data["culprits"][0]["effect"]["metric"]) == ("isolated", 1, "loss")
    (tmp_path / "r.json").write_text(text_of(path))
    status, out, _ = run("report", str(tmp_path / "r.json"))
    assert status == 0 and "## Found the culprit" in out and "git checkout --detach" in out
    status, out, _ = run("report", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "r.md"))
    assert status == 0 and (tmp_path / "r.md").read_text() == render_stored_markdown(data) + "\n"


def test_report_of_every_schema_is_kept() -> None:
    assert {json.loads(text_of(path))["schema"] for path in KEPT} == set(range(1, SCHEMA + 1))


def test_report_without_keys_that_came_later_is_read() -> None:
    data = json.loads(text_of(KEPT[0]))
    for name in ("kind_of_change", "warnings", "triage", "reproduce", "num_changes"):
        del data[name]
    assert "Found the culprit" in render_stored_markdown(read_report(json.dumps(data), name="r.json"))


def test_report_with_keys_of_later_is_read() -> None:
    assert read_report(changed(of_later={"a": 1}), name="r.json")["of_later"] == {"a": 1}


def test_report_of_a_newer_schema_says_so(tmp_path: Path, run: Run) -> None:
    (tmp_path / "r.json").write_text(changed(schema=SCHEMA + 1))
    status, _, err = run("report", str(tmp_path / "r.json"))
    assert status == 2 and "update bisect-train" in err
    assert f"a newer version of bisect-train has written this report (schema {SCHEMA + 1}, this version knows {SCHEMA})" in err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "null",
        "{}",
        '{"schema": true}',
        '{"schema": 0}',
        '{"schema": "1"}',
        changed(culprits={}),
        changed(status=None),
    ],
)
def test_file_that_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"r\.json: this is no report of bisect-train"):
        read_report(text, name="r.json")


def test_report_that_is_damaged_inside_or_missing_is_bad_input(tmp_path: Path, run: Run) -> None:
    (tmp_path / "r.json").write_text(changed(culprits=[{"effect": {"good": 1}}]))
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    for name in ("r.json", "b.json", "none.json"):
        status, _, err = run("report", str(tmp_path / name))
        assert status == 2 and name in err
    (tmp_path / "r.json").write_text(changed())
    assert run("report", str(tmp_path / "r.json"), "--out", str(tmp_path / "out"))[0] == 2
