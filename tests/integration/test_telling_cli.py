"""`--tell`, `tell` and `--markdown` on whole simulated bisections: told once, edited; a fault changes no answer."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_train.telling import patience
from tests.support.command_bench import CULPRIT, Bench
from tests.support.fake_github import REPO, TOKEN, FakeGithub, start_github
from tests.support.receivers import Answer, WebhookReceiver, start_receiver

STEPS = ("--steps", "4", "--quiet", "--", "python", "train.py")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with start_receiver() as started:
        yield started


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGithub]:
    with start_github() as started:
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setenv("GITHUB_API_URL", started.url)
        yield started


@pytest.fixture(autouse=True)
def _no_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_SERVER_URL", "BUILD_URL", "CI_JOB_URL", "GITHUB_TOKEN", "GH_TOKEN", "BISECT_TRAIN_WEBHOOK_SECRET"):
        monkeypatch.delenv(name, raising=False)


def run(bench: Bench, *more: str) -> tuple[int, str, str]:
    return bench.call("run", "--good", bench.commit(0), "--bad", bench.commit(-1), *more, *STEPS)


def test_run_tells_a_confirmed_culprit_and_resume_does_not_tell_again(bench: Bench, receiver: WebhookReceiver) -> None:
    status, _, err = run(bench, "--tell", receiver.url)
    assert status == 0, err
    (request,) = receiver.taken
    assert [item["id"] for item in request.data["culprits"]] == [bench.commit(CULPRIT)]
    assert request.data["is_confirmed"] and request.data["report"]["status"] == "isolated"
    assert receiver.url not in bench.succeed("log"), "an address may be a secret"
    again = bench.call("resume", "--tell", receiver.url)
    assert again[0] == 0 and "has this message already" in again[2]
    assert len(receiver.taken) == 1


def test_answer_that_changes_edits_the_message(bench: Bench, receiver: WebhookReceiver) -> None:
    run(bench, "--tell", receiver.url)
    for idx in range(1, 13):
        bench.succeed("mark", bench.commit(idx), "bad" if idx > 4 else "good")
    bench.call("resume", "--quiet")
    said = bench.succeed("tell", "--to", receiver.url)
    assert "candidates is not confirmed" in said and len(receiver.taken) == 1
    bench.succeed("tell", "--to", receiver.url, "--candidates")
    first, second = (request.data for request in receiver.taken)
    assert (first["id"], second["state"]) == (second["id"], "updated")
    assert second["revision"] == first["revision"] + 1 and not second["is_confirmed"]


def test_no_regression_tells_nobody_new(bench: Bench, receiver: WebhookReceiver, github: FakeGithub) -> None:
    number = github.add_issue()
    status, _, _ = bench.call("run", "--good", bench.commit(0), "--bad", bench.commit(3), "--tell", receiver.url, *STEPS)
    assert status == 4
    assert receiver.asked == []
    said = bench.succeed("tell", "--to", f"github-comment:{REPO}#{number}")
    assert "there is no message that it could close" in said
    assert github.comments == {}


def test_one_message_for_all_bisections_of_a_pull_request(bench: Bench, receiver: WebhookReceiver, github: FakeGithub) -> None:
    number = github.add_issue()
    to = ("--to", f"github-comment:{REPO}#{number}", "--to", receiver.url, "--as", f"pull-request-{number}")
    run(bench)
    assert "created" in bench.succeed("tell", *to)
    bench.call("run", "--good", bench.commit(0), "--bad", bench.commit(3), *STEPS)
    assert "edited" in bench.succeed("tell", *to)
    (comment,) = github.comments.values()
    assert "No regression" in comment["body"]
    assert [request.data["state"] for request in receiver.taken] == ["open", "closed"]
    assert receiver.taken[0].data["revision"] < receiver.taken[1].data["revision"]
    assert github.complaints == []


def test_place_that_is_down_changes_nothing_about_the_answer(
    bench: Bench, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PAUSES_S", (0.0, 0.0, 0.0))
    receiver.answers = [Answer(500)] * 4
    status, out, err = run(bench, "--tell", receiver.url)
    assert status == 0 and bench.commit(CULPRIT)[:8] in out
    assert "not told: webhook 127.0.0.1: answered 500" in err
    receiver.answers = [Answer(404)]
    status, out, err = bench.call("tell", "--to", receiver.url)
    assert status == 1 and "nothing is lost" in err
    assert "sent" in bench.succeed("tell", "--to", receiver.url)
    assert len(receiver.taken) == 1


def test_address_that_is_none_is_refused_before_anything_is_run(bench: Bench) -> None:
    for address in ("nowhere", "https://u:s3cret@host/x", "env:NOT_SET", "github-issue:acme/trainer"):
        status, _, err = run(bench, "--tell", address)
        assert status == 2 and "s3cret" not in err
    assert bench.lab.ran == []
    assert "letters, digits and dashes" in bench.refuse("tell", "--to", "https://host/x", "--as", "<!-- -->")


def test_secrets_of_the_environment_stay_out_of_stores_reports_and_output(
    bench: Bench, receiver: WebhookReceiver, github: FakeGithub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": REPO, "GITHUB_RUN_ID": "42"}
    secrets = {"BISECT_TRAIN_WEBHOOK_SECRET": "hmac-s3cret", "PLACE": f"{receiver.url}?token=url-s3cret"}
    for name, value in {**pages, **secrets}.items():
        monkeypatch.setenv(name, value)
    reports = tmp_path / "reports"
    status, out, err = run(bench, "--tell", "env:PLACE", "--tell", f"github-issue:{REPO}", "--out", str(reports))
    assert status == 0 and len(receiver.taken) == 1
    assert f"[the run](https://github.com/{REPO}/actions/runs/42)" in github.issues[1]["body"]
    kept = [out, err, *(path.read_text() for path in reports.iterdir()), bench.succeed("log", "--json")]
    with sqlite3.connect(next(bench.lab.home.glob("*.db"))) as store:
        kept.append("\n".join(store.iterdump()))
    for secret in ("hmac-s3cret", "url-s3cret", TOKEN):
        assert not any(secret in text for text in kept)


def test_markdown_goes_to_a_file_or_in_place_of_the_report(bench: Bench, tmp_path: Path) -> None:
    place, data = tmp_path / "verdict.md", tmp_path / "report.json"
    _, out, _ = run(bench, "--markdown", str(place), "--json", str(data))
    assert "FOUND THE CULPRIT" in out
    assert place.read_text().startswith("## Found the culprit\n")
    assert f"bisection `{json.loads(data.read_text())['id']}`" in place.read_text()
    assert bench.succeed("report", "--markdown", "-", "--out", str(tmp_path)) == place.read_text()


def test_bisection_without_an_answer_is_not_told(bench: Bench) -> None:
    bench.ask()
    assert "has no answer yet" in bench.refuse("tell", "--to", "https://example.org/hook")
