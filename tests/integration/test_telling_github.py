"""GitHub told through PyGithub over a real connection to a small GitHub: created once, edited, closed; faults lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from bisect_train.cli.nightly_telling import Place
from bisect_train.core.errors import NotDelivered
from bisect_train.nightly.finding import FindingKind, FindingState
from bisect_train.telling.github import mark_of
from tests.support.fake_github import REPO, TOKEN, FakeGithub, Refused, start_github
from tests.support.findings import CULPRIT, HOSTILE, closed, make_finding, updated
from tests.support.places import NOW_S, open_place
from tests.support.receivers import Answer
from tests.support.report_cases import sha

Open = Callable[..., Place]


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with start_github() as started:
        yield started
    assert started.complaints == []


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture
def open_at(github: FakeGithub, naps: list[float]) -> Open:
    def opened(address: str, **more: Any) -> Place:
        environ = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": github.url}
        return open_place(address, environ=environ, sleep=naps.append, **more)

    return opened


# ---- a comment ----------------------------------------------------------------------------------------------------


def test_comment_is_created_once_and_then_edited(github: FakeGithub, open_at: Open) -> None:
    number = github.add_issue()
    place, finding = open_at(f"github-comment:{REPO}#{number}"), make_finding()
    first = place.tell(finding, earlier=None)
    second = place.tell(updated(finding, summary="It is known better now."), earlier=first)
    (comment,) = github.comments.values()
    assert (first["how"], second["how"]) == ("created", "edited")
    assert first["place"] == second["place"] == comment["html_url"]
    assert comment["body"].startswith(mark_of(finding.id)) and "It is known better now." in comment["body"]


def test_comment_is_found_again_by_its_mark_where_the_receipt_is_lost(github: FakeGithub, open_at: Open) -> None:
    number = github.add_issue()
    for idx in range(130):
        github.add_comment(number, f"talk {idx}")
    finding = make_finding()
    for _ in range(3):
        open_at(f"github-comment:{REPO}#{number}").tell(finding, earlier=None)
    assert len(github.comments) == 131
    assert [text.split()[0] for text in github.writes] == ["POST"]  # the same text needs no edit


def test_comments_of_two_findings_stay_apart(github: FakeGithub, open_at: Open) -> None:
    place = open_at(f"github-comment:{REPO}#{github.add_issue()}")
    one, other = make_finding(), make_finding(id="drift-ba9876543210", kind=FindingKind.DRIFT)
    for finding in (one, other, updated(one), updated(other)):
        place.tell(finding, earlier=None)
    assert len(github.comments) == 2


@pytest.mark.parametrize("login", ["train-bot", ""])
def test_comment_of_somebody_else_with_our_mark_is_left_alone(github: FakeGithub, open_at: Open, login: str) -> None:
    github.login = login
    number, finding = github.add_issue(), make_finding()
    forged = github.add_comment(number, f"{mark_of(finding.id)}\nall is well")
    assert open_at(f"github-comment:{REPO}#{number}").tell(finding, earlier=None)["how"] == "created"
    assert open_at(f"github-comment:{REPO}#{number}").tell(updated(finding, summary="x"), earlier=None)["how"] == "edited"
    assert github.comments[forged]["body"].endswith("all is well")
    assert len(github.comments) == 2


def test_comment_says_that_it_is_over_and_none_is_made_for_that_alone(github: FakeGithub, open_at: Open) -> None:
    place, finding = open_at(f"github-comment:{REPO}#{github.add_issue()}"), make_finding()
    assert place.tell(closed(finding), earlier=None)["how"] == "left out"
    assert github.comments == {}
    place.tell(finding, earlier=None)
    place.tell(closed(finding), earlier=None)
    (comment,) = github.comments.values()
    assert "Over: loss is worse" in comment["body"]


def test_hostile_subject_calls_nobody_and_makes_no_second_mark(github: FakeGithub, open_at: Open) -> None:
    place = open_at(f"github-comment:{REPO}#{github.add_issue()}")
    change = replace(make_finding().culprits[0], title=HOSTILE)
    finding = make_finding(title=HOSTILE, summary=HOSTILE, culprits=(change,), details=(HOSTILE,))
    place.tell(finding, earlier=None)
    place.tell(replace(finding, id="other"), earlier=None)
    first, second = (comment["body"] for comment in github.comments.values())
    assert first.count("<!--") == second.count("<!--") == 1
    assert "@torvalds" not in first and "@acme" not in first and "#12" not in first and "<script" not in first


# ---- an issue -----------------------------------------------------------------------------------------------------


def test_issue_is_opened_edited_closed_and_opened_again(github: FakeGithub, open_at: Open) -> None:
    place, finding = open_at(f"github-issue:{REPO}"), make_finding()
    receipt, seen = None, []
    for telling in (finding, updated(finding), closed(updated(finding)), replace(finding, revision=4)):
        receipt = place.tell(telling, earlier=receipt)
        issue = github.issues[1]
        seen.append((receipt["how"], issue["state"], issue["state_reason"]))
    assert seen[:3] == [("created", "open", None), ("edited", "open", None), ("edited", "closed", "completed")]
    assert seen[3][:2] == ("edited", "open")
    assert len(github.issues) == 1
    assert [label["name"] for label in github.issues[1]["labels"]] == ["bisect-train"]


def test_intended_change_closes_its_issue_as_not_planned(github: FakeGithub, open_at: Open) -> None:
    place, finding = open_at(f"github-issue:{REPO}"), make_finding()
    first = place.tell(finding, earlier=None)
    place.tell(replace(finding, state=FindingState.INTENDED, revision=2), earlier=first)
    assert (github.issues[1]["state"], github.issues[1]["state_reason"]) == ("closed", "not_planned")


@pytest.mark.parametrize("can_label", [True, False])
def test_issue_is_found_again_without_a_receipt(github: FakeGithub, open_at: Open, can_label: bool) -> None:
    github.can_label = can_label
    for idx in range(5):
        github.add_issue(f"issue {idx}")
    finding = make_finding()
    for telling in (finding, updated(finding, summary="more is known"), closed(finding)):
        open_at(f"github-issue:{REPO}").tell(telling, earlier=None)
    assert len(github.issues) == 6
    assert github.issues[6]["state"] == "closed"


@pytest.mark.parametrize("status", [404, 410])
def test_issue_that_was_deleted_is_made_anew(
    github: FakeGithub, open_at: Open, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, finding = open_at(f"github-issue:{REPO}"), make_finding()
    first = place.tell(finding, earlier=None)
    del github.issues[1]
    github.add_issue("somebody else's")
    earlier = first | {"place": f"https://github.com/{REPO}/issues/7"}
    with monkeypatch.context() as patch:
        patch.setattr(github, "_issue", lambda found: _refuse(status))
        second = place.tell(updated(finding), earlier=earlier)
    assert second["how"] == "created" and len(github.issues) == 2
    assert github.complaints == [f"GET /repos/{REPO}/issues/7: {status} it was deleted"]
    github.complaints.clear()
    third = place.tell(closed(updated(finding)), earlier=second)
    assert third["how"] == "edited" and github.issues[2]["state"] == "closed"


def _refuse(status: int) -> None:
    raise Refused(status, "it was deleted")


def test_candidates_are_told_only_where_that_was_asked_for(github: FakeGithub, open_at: Open) -> None:
    finding = make_finding(is_confirmed=False, culprits=(), candidates=make_finding().culprits)
    receipt = open_at(f"github-issue:{REPO}").tell(finding, earlier=None)
    assert (receipt["how"], github.requests) == ("left out", [])
    open_at(f"github-issue:{REPO}", with_candidates=True).tell(finding, earlier=receipt)
    assert "Nothing is proved" in github.issues[1]["body"]


# ---- a check-run --------------------------------------------------------------------------------------------------


def test_check_run_is_created_and_then_edited(github: FakeGithub, open_at: Open) -> None:
    github.login = ""
    place, finding = open_at(f"github-check:{REPO}"), make_finding()
    first = place.tell(finding, earlier=None)
    assert next(iter(github.check_runs.values()))["conclusion"] == "failure"
    second = place.tell(closed(finding), earlier=first)
    (run,) = github.check_runs.values()
    assert (first["how"], second["how"], run["head_sha"]) == ("created", "edited", finding.bad)
    assert (run["external_id"], run["conclusion"]) == (finding.id, "neutral")  # this commit is still bad


def test_check_run_on_a_named_commit_says_success_where_nothing_was_found(github: FakeGithub, open_at: Open) -> None:
    github.login = ""
    commit = sha("head of the pull request")
    finding = make_finding(state=FindingState.CLOSED, culprits=())
    open_at(f"github-check:{REPO}@{commit}").tell(finding, earlier=None)
    (run,) = github.check_runs.values()
    assert (run["head_sha"], run["conclusion"]) == (commit, "success")


def test_check_run_needs_the_token_of_an_app(open_at: Open, github: FakeGithub) -> None:
    with pytest.raises(NotDelivered, match="You must authenticate via a GitHub App"):
        open_at(f"github-check:{REPO}").tell(make_finding(), earlier=None)
    assert github.complaints.pop().endswith("403 You must authenticate via a GitHub App.")


# ---- authors ------------------------------------------------------------------------------------------------------


def test_author_is_called_only_where_that_was_asked_for(github: FakeGithub, open_at: Open) -> None:
    github.logins = {CULPRIT: "ada"}
    open_at(f"github-issue:{REPO}").tell(make_finding(), earlier=None)
    assert "@" not in github.issues[1]["body"]
    open_at(f"github-issue:{REPO}", mention_authors=True).tell(make_finding(), earlier=None)
    assert f"@ada (author of {CULPRIT[:8]})" in github.issues[1]["body"]


def test_author_is_known_by_a_noreply_address_and_left_out_where_unknown(github: FakeGithub, open_at: Open) -> None:
    known = replace(make_finding().culprits[0], email="12+ada-l@users.noreply.github.com")
    open_at(f"github-issue:{REPO}", mention_authors=True).tell(make_finding(culprits=(known,)), earlier=None)
    assert "@ada-l (author" in github.issues[1]["body"]
    open_at(f"github-issue:{REPO}", mention_authors=True).tell(make_finding(id="another"), earlier=None)
    assert "@" not in github.issues[2]["body"]


def test_candidates_are_never_called(github: FakeGithub, open_at: Open) -> None:
    github.logins = {CULPRIT: "ada"}
    finding = make_finding(is_confirmed=False, culprits=(), candidates=make_finding().culprits)
    open_at(f"github-issue:{REPO}", mention_authors=True, with_candidates=True).tell(finding, earlier=None)
    assert "@" not in github.issues[1]["body"]


# ---- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "waits_s"),
    [
        (Answer(500), [1.0]),
        (Answer(502), [1.0]),
        (Answer(403, {"Retry-After": "9"}), [9.0]),
        (Answer(429, {"Retry-After": "5"}), [5.0]),
        (Answer(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW_S) + 30)}), [30.0]),
    ],
)
def test_passing_fault_is_waited_for(
    github: FakeGithub, open_at: Open, naps: list[float], answer: Answer, waits_s: list[float]
) -> None:
    github.faults = [answer]
    assert open_at(f"github-issue:{REPO}").tell(make_finding(), earlier=None)["how"] == "created"
    assert naps == waits_s


def test_limit_that_lasts_an_hour_is_said_and_not_waited_for(github: FakeGithub, open_at: Open, naps: list[float]) -> None:
    github.faults = [Answer(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW_S) + 3000)})]
    with pytest.raises(NotDelivered, match="a limit of requests is reached, it asks to wait 3000 s"):
        open_at(f"github-issue:{REPO}").tell(make_finding(), earlier=None)
    assert naps == []


@pytest.mark.parametrize("address", [f"github-issue:{REPO}", f"github-comment:{REPO}#1", f"github-check:{REPO}"])
def test_answer_that_is_lost_after_the_message_was_made_makes_no_second_one(
    github: FakeGithub, open_at: Open, address: str
) -> None:
    if "comment" in address:
        github.add_issue()
    github.login = "" if "check" in address else "train-bot"
    github.lost_answers = [Answer(502)]
    assert open_at(address).tell(make_finding(), earlier=None)["how"] == "edited"
    made = [text for text in github.writes if text.startswith("POST")]
    assert len(made) == 1


def test_slow_server_is_tried_again(github: FakeGithub, open_at: Open) -> None:
    github.faults = [Answer(200, delay_s=1.5)]
    place = open_at(f"github-issue:{REPO}")
    client = place.messenger.messenger._client  # type: ignore[attr-defined]
    client.requester._Requester__timeout = 0.3
    assert place.tell(make_finding(), earlier=None)["how"] == "created"


def test_server_that_stays_down_is_said_and_the_next_call_tells(github: FakeGithub, open_at: Open) -> None:
    github.faults = [Answer(503)] * 4
    place = open_at(f"github-issue:{REPO}")
    with pytest.raises(NotDelivered, match=f"issue in {REPO}: answered 503"):
        place.tell(make_finding(), earlier=None)
    assert place.tell(make_finding(), earlier=None)["how"] == "created"


def test_refusals_say_what_to_do_and_never_show_the_token(github: FakeGithub) -> None:
    environ = {"GITHUB_TOKEN": "ghp_another", "GITHUB_API_URL": github.url}
    place = open_place(f"github-issue:{REPO}", environ=environ, sleep=lambda wait_s: None)
    with pytest.raises(NotDelivered) as caught:
        place.tell(make_finding(), earlier=None)
    assert "GITHUB_TOKEN must hold one that is valid" in str(caught.value)
    assert "ghp_another" not in str(caught.value) + repr(place) + repr(caught.value.__cause__)
    github.complaints.clear()


def test_repository_that_is_not_there_is_said(open_at: Open, github: FakeGithub) -> None:
    with pytest.raises(NotDelivered, match="GitHub answered 404"):
        open_at("github-issue:acme/other").tell(make_finding(), earlier=None)
    github.complaints.clear()
