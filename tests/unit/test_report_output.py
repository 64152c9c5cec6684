"""The renderings of a report: JSON of schema 1, one HTML page, the terminal text, `compare`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Fingerprint, MetricSeries
from bisect_train.core.probe import ProbeResult
from bisect_train.report import ReportData, render_compare, render_html, render_text, report_to_json
from bisect_train.report.text import fold_command
from tests.support.report_cases import FakeSpace, make_commits, make_failure, make_fingerprint, play, step_change

EVIL = 'fast path <script>alert("x")</script> & [bold]more[/bold] {{ 7 * 7 }}'


def evil_space() -> FakeSpace:
    return FakeSpace(make_commits(24, titles={13: EVIL}))


@pytest.fixture(scope="module")
def isolated() -> ReportData:
    return play(step_change(13), evil_space()).report()


@pytest.fixture(scope="module")
def failed() -> ReportData:
    missing = make_failure("ModuleNotFoundError: No module named 'wandb'", missing="wandb")
    return play(lambda p, s, r: missing, evil_space()).report()


@pytest.fixture(scope="module")
def unfinished() -> ReportData:
    return play(step_change(13), evil_space(), max_probes=11).report()


@pytest.fixture(scope="module")
def crash() -> ReportData:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        if point.holds(13):
            return make_failure("RuntimeError: <b>boom</b>", steps=3, seed=seed)
        return make_fingerprint(3.0, seed=seed)

    return play(behave, evil_space()).report()


CASES = ["isolated", "failed", "unfinished", "crash"]


@pytest.fixture(params=CASES)
def any_report(request: pytest.FixtureRequest) -> ReportData:
    report = request.getfixturevalue(request.param)
    assert isinstance(report, ReportData)
    return report


# ---- JSON ----------------------------------------------------------------------------------------------------------

NUMBER: Any = (int, float)
OPTIONAL_NUMBER: Any = (int, float, type(None))
OPTIONAL_TEXT: Any = (str, type(None))
CHANGE = {"kind": str, "id": str, "title": str}
END = {
    "revision": str,
    "config": OPTIONAL_TEXT,
    "metric": str,
    "unit": str,
    "mean": OPTIONAL_NUMBER,
    "sd": OPTIONAL_NUMBER,
    "num": int,
    "repeats_bitwise": (bool, type(None)),
    "ending": str,
}
EFFECT = {
    "metric": OPTIONAL_TEXT,
    "unit": OPTIONAL_TEXT,
    **dict.fromkeys(("good", "bad", "good_sd", "bad_sd", "num_good", "num_bad"), OPTIONAL_NUMBER),
    **dict.fromkeys(("share", "share_low", "share_high"), OPTIONAL_NUMBER),
}
FINDING = {
    **dict.fromkeys(("category", "symptom", "stage", "summary", "look_at"), str),
    "step": (int, type(None)),
    "ranks": [int],
    "needs_baseline": bool,
    "evidence": [{**dict.fromkeys(("name", "value", "expected", "source"), str), "rank": (int, type(None))}],
}
RANK = {
    **dict.fromkeys(("rank", "steps"), int),
    **dict.fromkeys(("first_loss", "last_loss", "grad_norm", "num_samples", "num_distinct"), OPTIONAL_NUMBER),
    "lr": [NUMBER],
    **dict.fromkeys(("param_hash", "ending"), str),
}
SCHEMA: dict[str, Any] = {
    "schema": int,
    "id": str,
    "status": str,
    "summary": str,
    "kind_of_change": OPTIONAL_TEXT,
    "ends": {"good": END, "bad": END},
    "num_changes": dict.fromkeys(("commit", "config", "package", "env", "launch", "data", "hunk"), int),
    "culprits": [
        {
            "changes": [CHANGE],
            "probability": NUMBER,
            "effect": EFFECT,
            "necessary": (bool, type(None)),
            "sufficient": (bool, type(None)),
            "conditions": [str],
            "inside": [CHANGE],
            "two_by_two": [{"with": str, "mean": OPTIONAL_NUMBER, "sd": OPTIONAL_NUMBER, "num_runs": int, "num_failed": int}],
        }
    ],
    "candidates": [{**CHANGE, "probability": NUMBER}],
    "null_probability": OPTIONAL_NUMBER,
    "triage": {
        **dict.fromkeys(("category", "symptom", "stage"), OPTIONAL_TEXT),
        "evidence": [str],
        "look_first": [str],
        "findings": [FINDING],
        "ranks": [RANK],
        "baseline_ranks": [RANK],
        "curves": [{"side": str, "rank": int, "steps": [int], "losses": [OPTIONAL_NUMBER], "grad_norms": [OPTIONAL_NUMBER]}],
        "stacks": [{"name": str, "rank": (int, type(None)), "waits_at": str, "text": str}],
        "samples": [{"rank": int, "step": int, "baseline": [str], "run": [str]}],
        "second_look": (dict, type(None)),
        "looked_at": [str],
        "cannot_see": [str],
    },
    "probe": {"steps": int, "ranks": int, "rung": str, "covers": [str], "cannot_see": [str], "tried": [str]},
    "cost": {
        **dict.fromkeys(("probes", "rounds", "steps", "cached", "pruned", "early", "saved_steps"), int),
        **dict.fromkeys(("wall_s", "gpu_s"), NUMBER),
    },
    "probes": [
        {
            **dict.fromkeys(("key", "point", "what", "purpose", "ending", "verdict"), str),
            "seed": int,
            "repeat": int,
            "steps": int,
            "value": OPTIONAL_NUMBER,
            "wall_s": NUMBER,
        }
    ],
    "reproduce": [str],
    "warnings": [str],
    "nodes": [{"name": str, "probes": int, "lost": int, "suspect": OPTIONAL_TEXT, "reason": str}],
}


def check(value: Any, schema: Any, path: str = "report") -> None:
    """Fail unless the value has exactly the schema's keys and types."""
    if isinstance(schema, dict):
        assert isinstance(value, dict) and value.keys() == schema.keys(), f"{path}: {value.keys() ^ schema.keys()}"
        for key, inner in schema.items():
            check(value[key], inner, f"{path}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list), path
        for idx, item in enumerate(value):
            check(item, schema[0], f"{path}[{idx}]")
    else:
        assert isinstance(value, schema), f"{path}: {value!r}"


def test_json_has_every_key_of_schema_1_and_is_strict(any_report: ReportData) -> None:
    data = report_to_json(any_report)
    check(data, SCHEMA)
    assert data["schema"] == 1
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_json_isolated_values(isolated: ReportData) -> None:
    data = report_to_json(isolated)
    assert data["status"] == "isolated" and data["num_changes"]["commit"] == 24
    culprit = data["culprits"][0]
    assert len(culprit["changes"][0]["id"]) == 40 and culprit["changes"][0]["title"] == EVIL
    assert culprit["effect"]["share"] == 1.0 and culprit["necessary"] is culprit["sufficient"] is True
    assert data["cost"]["steps"] == 40 * len(data["probes"])
    assert "# With it" in " ".join(data["reproduce"])


def test_json_replaces_nan_and_infinity_by_null(isolated: ReportData) -> None:
    rows = (replace(isolated.probes[0], value=math.inf), replace(isolated.probes[1], value=math.nan))
    data = report_to_json(replace(isolated, probes=rows, null_probability=math.nan))
    assert [row["value"] for row in data["probes"]] == [None, None] and data["null_probability"] is None


# ---- HTML ----------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects tags with their attributes, and the text outside scripts and styles; checks that tags are closed."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_html_is_well_formed_and_accessible(any_report: ReportData) -> None:
    page = Page(render_html(any_report))
    assert page.open == []
    assert page.count("h1") == page.count("main") == 1
    assert dict(page.tags)["html"]["lang"] == "en"
    assert page.count("caption") == page.count("table") > 0
    assert all(attrs.get("scope") == "col" for tag, attrs in page.tags if tag == "th")
    assert all(attrs.get("aria-label") for _, attrs in page.tags if attrs.get("role") in ("img", "region"))
    assert any(attrs.get("name") == "viewport" for tag, attrs in page.tags if tag == "meta")


def test_html_loads_nothing_from_outside(any_report: ReportData) -> None:
    text = render_html(any_report)
    page = Page(text)
    for tag, attrs in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base"), tag
        assert not {"src", "href", "action", "srcset"} & attrs.keys(), (tag, attrs)
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)  # plotly's own script names its licences
    assert "http://" not in own and "https://" not in own and "url(" not in own and "@import" not in own
    assert "default-src 'none'" in own  # and a browser refuses it, too


def test_html_escapes_what_users_wrote(isolated: ReportData, crash: ReportData) -> None:
    text = render_html(isolated)
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)
    assert "<script>alert" not in own and "&lt;script&gt;alert" in own
    assert EVIL in Page(text).text
    assert "<b>boom</b>" not in render_html(crash) and "RuntimeError: <b>boom</b>" in Page(render_html(crash)).text


def test_html_shows_curves_belief_proof_and_commands(isolated: ReportData) -> None:
    text = render_html(isolated)
    page = Page(text)
    titles = ("Found the culprit", "Loss step by step", "Where it could be", "The proof", "Probes", "By hand", "It cannot see")
    for part in titles:
        assert part in page.text
    assert 'id="curves"' in text and 'id="posterior"' in text
    assert "git checkout --detach" in page.text
    assert len(text.encode()) < 1_500_000


def test_html_pictures_are_drawn_by_the_script_in_the_page(isolated: ReportData) -> None:
    text = render_html(isolated)
    drawn = re.findall(r'<div id="(\w+)" style="height: \d+px"></div>\n<script>Plotly.newPlot\((.*?)\)</script>', text)
    assert [name for name, _ in drawn] == ["curves", "posterior"]
    name, traces, layout, config = json.loads(f"[{drawn[0][1]}]")
    assert name == "curves" and [trace["name"] for trace in traces] == [curve.label for curve in isolated.curves]
    assert traces[0]["y"] == list(isolated.curves[0].values) and layout["height"] == 380 and config["responsive"]
    assert re.search(r"<script>/\*\*\n\* plotly\.js \(basic - minified\) v", text)


def test_html_and_text_show_author_and_date_of_the_culprit(isolated: ReportData) -> None:
    line = f"Commit {isolated.culprits[0].changes[0].id[:8]} is by Ada, 2024-05-01."
    assert line in Page(render_html(isolated)).text
    assert line in printed(render_text(isolated))


def test_html_without_pictures_needs_no_script(failed: ReportData) -> None:
    text = render_html(failed)
    assert "<script" not in text and len(text) < 40_000
    assert "No module named" in Page(text).text


# ---- terminal ------------------------------------------------------------------------------------------------------


def printed(renderable: RenderableType, *, width: int = 80, **more: Any) -> str:
    console = Console(file=StringIO(), width=width, **more)
    console.print(renderable)
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_text_fits_80_columns_and_has_no_colour_codes(any_report: ReportData) -> None:
    text = printed(render_text(any_report))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_text_says_the_same_with_and_without_colour(any_report: ReportData) -> None:
    coloured = printed(render_text(any_report), force_terminal=True, color_system="standard")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == printed(render_text(any_report))


def test_text_isolated_begins_with_the_verdict(isolated: ReportData) -> None:
    text = printed(render_text(isolated), width=200)
    lines = text.strip().splitlines()
    assert lines[0] == "FOUND THE CULPRIT"
    assert lines[1].startswith("Commit ") and EVIL[:50] in lines[1]
    assert "The proof, by fresh runs" in text and "bitwise equal" in text and "1 + 1" in text
    assert "The last 12 of" in text and "cannot see" in text


def test_text_failed_shows_log_and_no_proof(failed: ReportData) -> None:
    text = printed(render_text(failed))
    assert "Last lines of its output" in text and "No module named 'wandb'" in text
    assert "The proof" not in text and "First difference" not in text


def test_text_folded_command_is_the_same_command() -> None:
    line = "OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' python train.py --name 'two words' --config=a/long/path/to/train.yaml"
    folded = fold_command(line, width=40)
    assert max(map(len, folded)) <= 42 and len(folded) > 2
    joined = " ".join(part.removesuffix("\\").strip() for part in folded)
    assert joined == line
    assert fold_command("# a comment that is longer than the width allows", width=10) == [
        "# a comment that is longer than the width allows"
    ]


# ---- compare -------------------------------------------------------------------------------------------------------


def test_compare_shows_steps_and_first_difference() -> None:
    left, right = make_fingerprint(3.0, salt="a"), make_fingerprint(3.4, salt="b", from_step=5)
    text = printed(render_compare(left, right, left_name="good end", right_name="bad end"), width=120)
    flat = " ".join(text.split())
    assert "On the same seed, good end and bad end first differ at step 0 in the optimizer's update" in flat
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+ ", line)]
    assert len(rows) == 40
    assert rows[0][-2:] == ["differ", "equal"] and rows[1][-2:] == ["-", "equal"]
    assert rows[4][3] == "0" and rows[5][3] == "+0.4"


def test_compare_equal_runs_says_equal() -> None:
    run = make_fingerprint(3.0)
    text = printed(render_compare(run, run), width=120)
    assert "A and B are equal in everything that was recorded." in text


def test_compare_of_other_logs_does_not_say_equal() -> None:
    run = make_fingerprint(3.0)
    left, right = (replace(run, metrics=(MetricSeries("val_loss", (3.0, value), (0, 20)),)) for value in (2.0, 2.5))
    text = " ".join(printed(render_compare(left, right), width=120).split())
    assert "A and B first differ at step 20 in a metric of the log - val_loss: 2.0 against 2.5." in text
    text = " ".join(printed(render_compare(left, run), width=200).split())
    assert "equal in everything that was recorded" not in text
    assert "equal in everything that both recorded, but the logs do not show the same" in text
    assert "2 values of val_loss in A, none in B." in text


@pytest.mark.parametrize("make", [lambda: make_failure("boom").fingerprint])
def test_compare_without_steps_says_so(make: Callable[[], Fingerprint]) -> None:
    assert "Neither run recorded an optimizer step." in printed(render_compare(make(), make()))
