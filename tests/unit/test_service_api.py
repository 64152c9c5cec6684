"""The REST interface on stored bisections: submit, list, look, act. Nothing is trained: runs are simulated."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.core.secrets import HIDDEN
from tests.support.service import ServiceLab, service_lab, small_repo
from tests.support.simulated_bisection import Lab, drive

SECRET = "hf_aVeryLongSecretToken"
CULPRIT = 9


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_repo(tmp_path_factory.mktemp("api") / "repo").path


@pytest.fixture
def lab(tmp_path: Path, repo: Path) -> Iterator[ServiceLab]:
    with service_lab(tmp_path / "home", repo) as made:
        yield made


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceLab, str]]:
    """A service with a simulated bisection that has its answer, and its id."""
    simulated = Lab.build(tmp_path_factory.mktemp("answered"), culprit=CULPRIT)
    with service_lab(simulated.home, simulated.repo.path) as made:
        name, ended = drive(simulated, made.store)
        made.store.append(name, "finished", {"answer": {"status": "isolated", "summary": "it is the ninth"}, "exit_status": 0})
        assert ended.answer.status == "isolated"
        yield made, name


# ---- submit ------------------------------------------------------------------------------------------------------------


def test_question_is_stored_and_waits_in_the_queue(lab: ServiceLab) -> None:
    name = lab.submit(options={"steps": 7, "seeds": 6, "max_probes": 40, "parallel": 2, "paths": ["train.py"]})
    shown = lab.get(f"/bisections/{name}")
    assert (shown["status"], shown["user"], shown["repository"]) == ("queued", "local", "demo")
    asked = shown["question"]
    assert asked["command"] == ["python", "train.py"] and asked["rung"] == "7 steps x 1 rank"
    assert asked["limits"] | {"max_probes": 40, "parallel": 2, "max_seeds": 6} == asked["limits"]
    assert shown["queue"]["state"] == "queued" and shown["report"] is None
    stored = lab.store.load(name).question
    assert stored["range"]["paths"] == ["train.py"] and stored["settings"]["warm"] and stored["limits"]["early"]


def test_check_compares_configs_as_git_has_them(lab: ServiceLab, tmp_path: Path, repo: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text(f"api_key: {SECRET}\n")
    command = tmp_path / "with_config.yaml"
    command.write_text("command: [python, train.py, --config, '{config}']\nshrink: {steps: [5]}\n")
    with service_lab(tmp_path / "other", repo, recipes=(("conf", command),)) as made:
        wanted = {"kind": "check", "repository": "demo", "recipe": "conf", "config": "conf/a.yaml"}
        name = made.post("/bisections", {**wanted, "other_config": "conf/b.yaml"}).json()["id"]
        changes = made.get(f"/bisections/{name}/changes")
        assert [(item["kind"], item["id"]) for item in changes["items"]] == [("config", "lr")]
        name = made.post("/bisections", {**wanted, "settings": ["seed=5", "lr=4"]}).json()["id"]
        assert made.get(f"/bisections/{name}/changes")["total"] == 2
        same = made.post("/bisections", {**wanted, "other_config": "conf/a.yaml"}).json()
        assert (same["status"], same["verdict"]) == ("finished", "no_regression"), "nothing is queued that needs no run"
        for path in ("../outside.yaml", "conf/../../outside.yaml", ".git/config", "conf//a.yaml", "conf/gone.yaml", "conf"):
            problem = made.refuse(400, "POST", "/api/v1/bisections", json={**wanted, "other_config": path})
            assert SECRET not in str(problem)
        for path in (str(outside), "a:b", "a\\b", ""):
            made.refuse(422, "POST", "/api/v1/bisections", json={**wanted, "other_config": path})


def test_link_in_the_repository_opens_no_file_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("lr: 99\n")
    repo = small_repo(tmp_path / "repo")
    (repo.path / "conf" / "link.yaml").symlink_to(outside)
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "a link")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("command: [python, train.py, --config, '{config}']\n")
    with service_lab(tmp_path / "home", repo.path, recipes=(("conf", recipe),)) as made:
        wanted = {"kind": "check", "repository": "demo", "recipe": "conf", "config": "conf/a.yaml"}
        answer = made.post("/bisections", {**wanted, "other_config": "conf/link.yaml"})
        assert "99" not in answer.text
        assert all("99" not in str(stored.question) for stored in made.store.list())


@pytest.mark.parametrize(
    "more",
    [
        {"repository": "other"}, {"repository": "demo", "good": ["nothing"]}, {"recipe": "gone"}, {"good": ["HEAD"]},
        {"config": "../../etc/passwd"}, {"bad": "old"}, {"good": ["old"], "options": {"metric": "no_such"}},
        {"options": {"budget_gpu_hours": 1.0}},
    ],
)  # fmt: skip
def test_question_that_cannot_be_asked_is_refused_with_what_to_do(lab: ServiceLab, more: dict[str, Any]) -> None:
    lab.refuse(400, "POST", "/api/v1/bisections", json={"repository": "demo", "good": ["old"], **more})
    assert lab.get("/bisections")["total"] == 0


@pytest.mark.parametrize(
    "body",
    [
        None, [], "x", {}, {"repository": "demo"}, {"repository": "demo", "good": []}, {"repository": "demo", "good": "old"},
        {"repository": "../demo", "good": ["old"]}, {"repository": "demo", "good": ["--upload-pack=x"]},
        {"repository": "demo", "good": ["old"], "bad": "-x"}, {"repository": "demo", "good": ["old:secret"]},
        {"repository": "demo", "good": ["a\nb"]}, {"repository": "demo", "good": ["old"], "recipe": "../r.yaml"},
        {"repository": "demo", "good": ["old"], "recipe": "/etc/passwd"}, {"repository": "demo", "good": ["old"], "judge": "x"},
        {"repository": "demo", "good": ["old"], "options": {"python": "/bin/sh"}},
        {"repository": "demo", "good": ["old"], "options": {"steps": 0}},
        {"repository": "demo", "good": ["old"], "options": {"steps": "ten"}},
        {"repository": "demo", "good": ["old"], "options": {"steps": 1.5}},
        {"repository": "demo", "good": ["old"], "options": {"steps": True}},
        {"repository": "demo", "good": ["old"], "options": {"seeds": 1}},
        {"repository": "demo", "good": ["old"], "options": {"min_effect": -1}},
        {"repository": "demo", "good": ["old"], "options": {"skip": ["old"] * 201}},
        {"repository": "demo", "good": ["old"] * 9}, {"repository": "demo", "good": ["old"], "kind": "probe"},
        {"repository": "demo", "kind": "check", "settings": ["lr=1"]}, {"repository": "demo", "kind": "check"},
        {"repository": "demo", "good": ["old"], "settings": ["lr=1"]},
        {"repository": "demo", "kind": "check", "config": "conf/a.yaml", "settings": ["no value"]},
    ],
)  # fmt: skip
def test_malformed_question_is_refused(lab: ServiceLab, body: Any) -> None:
    lab.refuse(422, "POST", "/api/v1/bisections", json=body)
    assert lab.get("/bisections")["total"] == 0


def test_numbers_that_json_does_not_have_are_refused(lab: ServiceLab) -> None:
    for number in ("NaN", "Infinity", "1e999"):
        text = f'{{"repository": "demo", "good": ["old"], "options": {{"min_effect": {number}}}}}'
        lab.refuse(422, "POST", "/api/v1/bisections", content=text, headers={"Content-Type": "application/json"})


def test_offer_names_what_may_be_asked(lab: ServiceLab) -> None:
    assert lab.get("/offer")["repositories"] == ["demo"] and lab.get("/offer")["may_send_command"] is False


# ---- look --------------------------------------------------------------------------------------------------------------


def test_list_is_filtered_and_paged_the_newest_first(lab: ServiceLab) -> None:
    names = [lab.submit() for _ in range(5)]
    lab.post(f"/bisections/{names[1]}/cancel")
    found = lab.get("/bisections?limit=2&offset=1")
    assert found["total"] == 5 and [item["id"] for item in found["items"]] == [names[3], names[2]]
    assert [item["id"] for item in lab.get("/bisections?status=cancelled")["items"]] == [names[1]]
    assert lab.get("/bisections?status=queued&status=cancelled&user=local&repository=demo")["total"] == 5
    assert lab.get("/bisections?user=anna")["total"] == 0 and lab.get("/bisections?repository=other")["total"] == 0
    for query in ("limit=0", "limit=501", "offset=-1", "status=nothing", "offset=99999999999999999999"):
        lab.refuse(422, "GET", f"/api/v1/bisections?{query}")


def test_list_follows_what_happens_in_the_store(lab: ServiceLab) -> None:
    name = lab.submit()
    assert [item["status"] for item in lab.get("/bisections")["items"]] == ["queued"]
    overview = lab.app.state.parts.overview
    lab.backend.queue.cancel(name)
    with lab.store.lock(name):  # by the command line
        lab.store.append(name, "started", {})
        overview.forget()
        assert [item.status for item in overview.items()] == ["running"]
    overview.forget()
    assert [item.status for item in overview.items()] == ["stopped"], "its coordinator is gone without a word"


def test_bisection_with_an_answer_shows_state_changes_probes_and_report(answered: tuple[ServiceLab, str]) -> None:
    lab, name = answered
    state = lab.get(f"/bisections/{name}/state")
    assert state["phase"] == "done" and state["answer"] == "isolated" and state["ends"]["status"] == "separated"
    assert len(state["posterior"]) == state["num_changes"] == 13
    assert state["most_probable"][0]["number"] == CULPRIT and state["most_probable"][0]["probability"] > 0.9
    changes = lab.get(f"/bisections/{name}/changes?offset=8&limit=2")
    assert changes["total"] == 13 and [item["title"] for item in changes["items"]] == ["commit number 9", "commit number 10"]
    results = lab.get(f"/bisections/{name}/results?limit=3")
    assert len(results["items"]) == 3 < results["total"] and results["items"][0]["verdict"] == "good"
    report = lab.get(f"/bisections/{name}/report")
    assert report["status"] == "isolated" and len(report["probes"]) == results["total"]
    page = lab.call("GET", f"/api/v1/bisections/{name}/report.html")
    assert page.status_code == 200 and "sandbox" in page.headers["content-security-policy"]


def test_probes_are_shown_with_curves_and_compared(answered: tuple[ServiceLab, str]) -> None:
    lab, name = answered
    rows = lab.get(f"/bisections/{name}/results")["items"]
    good = next(row["key"] for row in rows if row["what"] == "good end")
    bad = next(row["key"] for row in rows if row["what"] == "bad end")
    shown = lab.get(f"/probes/{good}")
    assert shown["key"] == good and shown["ending"]["kind"] == "stopped" and shown["ranks"][0]["num_steps"] == 4
    curves = lab.get(f"/probes/{good}/curves?signal=loss&signal=grad_norm")
    assert curves["ranks"][0]["steps"] == [0, 1, 2, 3] and len(curves["ranks"][0]["loss"]) == 4
    assert curves["ranks"][0]["grad_norm"] == [None] * 4
    assert len(lab.get(f"/probes/{good}/curves?points=2")["ranks"][0]["loss"]) == 2
    found = lab.get(f"/compare?left={good}&right={bad}")
    assert found["first_difference"]["stage"] == "forward" and found["num_steps"] == 4
    assert lab.get(f"/compare?left={good}&right={good}")["first_difference"] is None
    lab.refuse(404, "GET", "/api/v1/probes/0123456789abcdef")
    lab.refuse(422, "GET", f"/api/v1/probes/{good}/curves?signal=password")
    for key in ("..", "%2e%2e%2fetc", "XYZ", "a"):
        assert lab.call("GET", f"/api/v1/probes/{key}").status_code in (404, 422)


def test_unknown_and_malformed_ids_are_refused(lab: ServiceLab) -> None:
    name = lab.submit()
    for path in ("", "/state", "/live", "/changes", "/results", "/report", "/report.html", "/events"):
        lab.refuse(404, "GET", f"/api/v1/bisections/00000000{path}")
        for bad in (name[:7], name.upper() if name.upper() != name else "G" * 8, "last", "%2e%2e", "0000000g", "%00"):
            assert lab.call("GET", f"/api/v1/bisections/{bad}{path}").status_code in (404, 422), bad
    lab.refuse(404, "GET", "/api/v1/nothing")
    lab.refuse(405, "PUT", "/api/v1/bisections")


def test_bisection_whose_repository_is_gone_says_so(tmp_path: Path) -> None:
    repo = small_repo(tmp_path / "repo")
    with service_lab(tmp_path / "home", repo.path) as made:
        name = made.submit()
        shutil.rmtree(repo.path)
        made.refuse(400, "GET", f"/api/v1/bisections/{name}/state")
        assert made.get(f"/bisections/{name}")["status"] == "queued"


def test_fingerprint_with_not_a_number_is_plain_json(answered: tuple[ServiceLab, str]) -> None:
    lab, name = answered
    steps = (StepRecord(0, loss=math.nan, lr=(0.1, 0.2)), StepRecord(1, loss=math.inf))
    fingerprint = Fingerprint(
        Ending(EndingKind.CRASHED, message=f"token={SECRET}"), (RankRecord(0, steps),), facts=(("a", "b"),)
    )
    result = ProbeResult("j", fingerprint, log_tail=f"export HF_TOKEN={SECRET}\nloss nan\n")
    spec = {"point": "0", "config": f"api_key: {SECRET}\nlr: 1\n", "seed_idx": 77, "repeat": 5, "attempt": 0, "proof_of": -1}
    other = lab.store.create(lab.store.load(name).question, title="nan")
    lab.store.save_result(other, "feedfeedfeedfeed", result, spec=spec)
    shown = lab.call("GET", "/api/v1/probes/feedfeedfeedfeed")
    assert SECRET not in shown.text and HIDDEN in shown.text and "lr: 1" in shown.text
    curves = lab.get("/probes/feedfeedfeedfeed/curves?signal=loss&signal=lr")
    assert curves["ranks"] == [{"rank": 0, "num_steps": 2, "steps": [0, 1], "loss": [None, None], "lr": [0.1, None]}]


# ---- act ---------------------------------------------------------------------------------------------------------------


def test_waiting_bisection_is_cancelled_and_goes_on_later(lab: ServiceLab) -> None:
    name = lab.submit()
    assert lab.post(f"/bisections/{name}/cancel").json()["status"] == "cancelled"
    lab.refuse(409, "POST", f"/api/v1/bisections/{name}/cancel")
    assert lab.post(f"/bisections/{name}/resume", {"max_probes": 99}).json()["status"] == "queued"
    lab.refuse(409, "POST", f"/api/v1/bisections/{name}/resume")
    changed = [event.data for event in lab.store.events(name) if event.kind == "limits_changed"]
    assert changed == [{"max_probes": 99}]
    lab.refuse(422, "POST", f"/api/v1/bisections/{name}/resume", json={"max_probes": 0})


def test_running_bisection_is_asked_to_stop_and_cannot_be_marked(lab: ServiceLab) -> None:
    name = lab.submit()
    with lab.backend.queue.join() as dispatcher, lab.store.lock(name):
        assert lab.backend.queue.claim(dispatcher) is None, "some coordinator has it"
        lab.store.append(name, "started", {})
        lab.refuse(409, "POST", f"/api/v1/bisections/{name}/marks", json={"revision": "HEAD~1", "verdict": "bad"})
        lab.refuse(409, "POST", f"/api/v1/bisections/{name}/undo", json={"last": 1})
        lab.refuse(409, "POST", f"/api/v1/bisections/{name}/resume")


def test_version_is_marked_and_the_mark_taken_back(lab: ServiceLab) -> None:
    name = lab.submit()
    answer = lab.post(f"/bisections/{name}/marks", {"revision": "HEAD~1", "verdict": "untestable"})
    assert answer.status_code == 201
    assert [event.data["verdict"] for event in lab.store.events(name) if event.kind == "marked"] == ["untestable"]
    assert lab.post(f"/bisections/{name}/undo").json()["taken_back"] == 1
    lab.refuse(400, "POST", f"/api/v1/bisections/{name}/undo", json={"last": 1})
    lab.refuse(400, "POST", f"/api/v1/bisections/{name}/marks", json={"revision": "HEAD", "verdict": "bad"})
    lab.refuse(400, "POST", f"/api/v1/bisections/{name}/marks", json={"revision": "--all", "verdict": "bad"})
    lab.refuse(422, "POST", f"/api/v1/bisections/{name}/marks", json={"revision": "HEAD~1", "verdict": "ugly"})


# ---- what is said ------------------------------------------------------------------------------------------------------


def test_question_is_never_sent_as_stored(lab: ServiceLab) -> None:
    name = lab.submit()
    question = lab.store.load(name).question
    question = {
        **question,
        "env": [["HF_TOKEN", SECRET]],
        "command": ["python", "train.py", "--hf-token", SECRET, f"--api-key={SECRET}"],
    }
    name = lab.store.create(question, title=f"login https://user:{SECRET}@host/")
    lab.store.append(name, "limits_changed", {"reason": f"password: {SECRET}", "api_key": SECRET, "max_probes": 3})
    lab.app.state.parts.overview.forget()
    for path in (f"/bisections/{name}", "/bisections", f"/bisections/{name}/state", f"/bisections/{name}/report"):
        answer = lab.call("GET", f"/api/v1{path}")
        assert answer.status_code == 200 and SECRET not in answer.text, path
    assert SECRET not in lab.call("GET", f"/api/v1/bisections/{name}/report.html").text


def test_fault_tells_nothing_of_the_inside(lab: ServiceLab, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"at /srv/secret/path {SECRET}")

    parts = lab.app.state.parts
    lab.app.state.parts = replace(parts, overview=type("Broken", (), {"items": broken})())
    problem = lab.refuse(500, "GET", "/api/v1/bisections")
    assert "fault of bisect-train" in problem["error"] and SECRET not in str(problem)
    assert "GET /api/v1/bisections: RuntimeError" in caplog.text


def test_metrics_count_bisections_and_requests_by_pattern_without_names(lab: ServiceLab) -> None:
    name = lab.submit()
    lab.get(f"/bisections/{name}")
    lab.call("GET", "/api/v1/made/up/address")
    lab.call("BREW", "/api/v1/bisections")
    text = lab.call("GET", "/metrics").text
    assert 'bisect_train_bisections{status="queued"} 1.0' in text and "bisect_train_queue_length 1.0" in text
    assert "bisect_train_queue_oldest_seconds" in text and "bisect_train_probes_total 0.0" in text
    assert 'method="GET",route="other",status="404"' in text and 'method="other"' in text
    assert name not in text and "local" not in text and "made/up" not in text


def test_health_needs_no_token_and_readiness_says_why_not(lab: ServiceLab) -> None:
    assert lab.call("GET", "/healthz").json() == {"status": "ok"}
    assert lab.call("GET", "/readyz").json() == {"status": "ok"}
    parts = lab.app.state.parts
    lab.app.state.parts = replace(parts, dispatcher_problem=lambda: "Ray does not start")
    assert lab.refuse(503, "GET", "/readyz")["error"] == "Ray does not start"


def test_document_describes_the_interface_and_pages_load_nothing_from_elsewhere(lab: ServiceLab) -> None:
    document = lab.call("GET", "/api/v1/openapi.json").json()
    assert "/api/v1/bisections/{bisection_id}/events" in document["paths"] and "/metrics" in document["paths"]
    assert not any(path.startswith("/b/") for path in document["paths"])
    for path in ("/docs", "/redoc"):
        lab.refuse(404, "GET", path)
