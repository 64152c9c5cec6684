"""What is asked through the service counts: a check that needs no run, and what comes after an intended change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_train.core.question import Question
from bisect_train.store.queue_contract import QueueState, UserLimits
from tests.support.service import ServiceLab, service_lab, small_repo

SAME = {"kind": "check", "repository": "demo", "config": "conf/a.yaml", "other_config": "conf/a.yaml", "recipe": "conf"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ServiceLab]:
    recipe = tmp_path / "conf.yaml"
    recipe.write_text("command: [python, train.py, --config, '{config}']\nshrink: {steps: [5]}\n")
    repo = small_repo(tmp_path / "repo").path
    with service_lab(tmp_path / "home", repo, recipes=(("conf", recipe),)) as made:
        yield made


def as_user(lab: ServiceLab, name: str, limits: UserLimits) -> dict[str, str]:
    return {"Authorization": f"Bearer {lab.backend.queue.add_user(name, limits=limits)}"}


def test_check_whose_ends_are_the_same_is_its_users_and_counts(lab: ServiceLab) -> None:
    anna = as_user(lab, "anna", UserLimits(max_probes_per_day=2))
    for _ in range(2):
        answer = lab.post("/bisections", SAME, headers=anna)
        assert (answer.status_code, answer.json()["status"], answer.json()["user"]) == (201, "finished", "anna")
        page = lab.call("GET", f"/b/{answer.json()['id']}", headers=anna).text
        assert "No regression: the ends are the same; nothing was run." in page and "Not finished" not in page
    num_stored = len(lab.store.list())
    refused = lab.post("/bisections", SAME, headers=anna)
    assert refused.status_code == 429 and "nothing is left to you today" in refused.json()["error"]
    assert len(lab.store.list()) == num_stored, "what is refused is not stored"
    other = lab.post("/bisections", {**SAME, "other_config": "conf/b.yaml"}, headers=anna)
    assert other.json()["status"] == "queued", "what is to be run waits until something is left"


def test_what_comes_after_an_intended_change_waits_in_the_queue_of_its_user(lab: ServiceLab) -> None:
    anna = as_user(lab, "anna", UserLimits(max_queued=1))
    queue = lab.backend.queue
    asked = lab.post("/bisections", {"repository": "demo", "good": ["old"]}, headers=anna).json()["id"]
    question = lab.store.load(asked).question
    commits = lab.get(f"/bisections/{asked}/changes", headers=anna)["items"]
    meant = commits[0]["id"]
    whole = lab.store.create({**question, "expected": [[meant, "a smaller model"]]}, title="with an intended change")
    queue.submit(whole, "anna", is_limited=False, priority=3)
    culprit = {"changes": [{"kind": "commit", "id": meant, "title": ""}]}
    lab.store.append(whole, "finished", {"answer": {"status": "isolated", "summary": "", "culprits": [culprit]}})
    lab.backend.follow(asked)
    assert len(queue.entries()) == 2, "one that has no answer, or names no intended change, leads to nothing"
    lab.backend.follow(whole)
    lab.backend.follow(whole)  # a service that was killed in between asks again
    behind = [entry for entry in queue.entries() if entry.bisection_id not in (asked, whole)]
    assert [(entry.user, entry.priority, entry.state) for entry in behind] == [("anna", 3, QueueState.QUEUED)]
    stored = lab.store.load(behind[0].bisection_id)
    assert stored.title == f"{meant[:8]}..{question['range']['bad'][:8]}, behind an intended change"
    assert Question.of_json(stored.question).range.goods == (meant,)


def test_bisection_that_is_being_started_can_be_cancelled_on_its_page(lab: ServiceLab) -> None:
    queue = lab.backend.queue
    name = lab.submit()
    with queue.join() as me:
        assert queue.claim(me) is not None
        lab.app.state.parts.overview.forget()
        page = lab.call("GET", f"/b/{name}").text
        assert "waits for its turn" in page and f"/b/{name}/cancel" in page and f"/b/{name}/resume" not in page
        assert "it is being started" in lab.call("GET", "/").text
        with lab.store.lock(name):
            lab.store.append(name, "started", {})
            lab.app.state.parts.overview.forget()
            assert "it is being started" not in lab.call("GET", "/").text
