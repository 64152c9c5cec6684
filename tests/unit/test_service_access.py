"""Who may call: tokens, sessions, other sites' pages, the names that the service answers to, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from bisect_train.core.errors import MachineError
from bisect_train.service.auth import COOKIE, MAX_SESSIONS, Doorman, digest_token
from bisect_train.service.guard import is_local_host
from bisect_train.store.queue_contract import LOCAL_USER, OPERATOR, UserLimits
from bisect_train.store.tables import users
from tests.support.service import BASE, ServiceLab, service_lab, small_repo

OWN = {"Origin": BASE}
FOREIGN = {"Origin": "https://evil.example"}
PLACES = ("/bisections", "/offer", "/events", "/session", "/compare?left=abcd&right=abcd", "/bisections/00000001/events")


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_repo(tmp_path_factory.mktemp("access") / "repo").path


@pytest.fixture
def lab(tmp_path: Path, repo: Path) -> Iterator[ServiceLab]:
    with service_lab(tmp_path / "home", repo) as made:
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_person_alone_on_this_machine_needs_no_token(lab: ServiceLab) -> None:
    who = lab.get("/session")
    assert who == {"user": LOCAL_USER, "is_admin": True, "is_alone": True}


def test_once_there_is_a_user_everybody_needs_a_token(lab: ServiceLab) -> None:
    token = lab.backend.queue.add_user("anna")
    for place in PLACES:
        problem = lab.refuse(401, "GET", f"/api/v1{place}")
        assert "token" in problem["error"]
        lab.refuse(401, "GET", f"/api/v1{place}", headers=bearer("x" * 43))
    for headers in (bearer(token[:-1]), bearer(""), {"Authorization": f"Basic {token}"}, {"Authorization": token}):
        lab.refuse(401, "GET", "/api/v1/bisections", headers=headers)
    lab.refuse(401, "GET", "/metrics")
    assert lab.get("/session", headers=bearer(token)) == {"user": "anna", "is_admin": False, "is_alone": False}
    assert lab.call("GET", "/healthz").status_code == 200 and lab.call("GET", "/readyz").status_code == 200


def test_token_that_was_revoked_or_renewed_is_good_for_nothing(lab: ServiceLab) -> None:
    queue = lab.backend.queue
    old, other = queue.add_user("anna"), queue.add_user("ben")
    new = queue.renew_token("anna")
    lab.refuse(401, "GET", "/api/v1/session", headers=bearer(old))
    assert lab.get("/session", headers=bearer(new))["user"] == "anna"
    queue.revoke_token("ben")
    lab.refuse(401, "GET", "/api/v1/session", headers=bearer(other))


def test_service_whose_last_user_lost_the_token_is_open_to_nobody(lab: ServiceLab) -> None:
    queue = lab.backend.queue
    queue.add_user("anna")
    queue.revoke_token("anna")
    lab.refuse(401, "GET", "/api/v1/bisections")
    assert lab.get("/session", headers=bearer(queue.renew_token("anna")))["user"] == "anna"


def test_service_stays_open_to_the_person_alone_that_asks(lab: ServiceLab) -> None:
    lab.submit()
    assert [user.name for user in lab.backend.queue.users()] == [LOCAL_USER]
    assert lab.get("/session")["is_alone"]


@pytest.mark.parametrize("name", [LOCAL_USER, OPERATOR])
def test_token_of_a_name_of_the_services_own_is_nobodys(tmp_path: Path, repo: Path, name: str) -> None:
    with service_lab(tmp_path / "home", repo, host="0.0.0.0") as lab:
        token = "0123456789abcdef0123456789abcdef"
        lab.backend.queue.ensure_own_user(name)
        with lab.store._database.write() as connection:  # as an earlier version let it be added
            connection.execute(update(users).where(users.c.name == name).values(token_hash=digest_token(token)))
        lab.refuse(401, "GET", "/api/v1/session", headers=bearer(token))
        lab.refuse(401, "POST", "/api/v1/session", headers=OWN, json={"token": token})


def test_token_is_kept_as_a_digest_alone(lab: ServiceLab, tmp_path: Path) -> None:
    token = lab.backend.queue.add_user("anna")
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file


def test_operators_token_is_an_administrators(tmp_path: Path, repo: Path) -> None:
    with service_lab(tmp_path / "home", repo, tokens=(digest_token("t" * 40),)) as lab:
        lab.refuse(401, "GET", "/api/v1/session")
        assert lab.get("/session", headers=bearer("t" * 40))["is_admin"] is True


def test_service_that_others_reach_is_never_open(tmp_path: Path, repo: Path) -> None:
    with service_lab(tmp_path / "home", repo, host="0.0.0.0") as lab:
        lab.refuse(401, "GET", "/api/v1/bisections")
        lab.backend.queue.add_user("anna")
        lab.backend.queue.revoke_token("anna")
        lab.refuse(401, "GET", "/api/v1/bisections")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("localhost:8765", True), ("127.0.0.1:1", True), ("[::1]:80", True), ("[::1]", True),
     ("evil.example", False), ("evil.example:8765", False), ("localhost.evil.example", False), ("", False),
     ("127.0.0.1.evil.example:80", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_hosts_of_this_machine_are_told_apart(host: str, is_local: bool) -> None:
    assert is_local_host(host) is is_local


def test_page_of_another_site_that_was_pointed_here_is_turned_away(lab: ServiceLab) -> None:
    lab.refuse(421, "GET", "/api/v1/bisections", headers={"Host": "evil.example:8765"})
    lab.refuse(421, "POST", "/api/v1/bisections", headers={"Host": "evil.example"}, json={})
    token = lab.backend.queue.add_user("anna")  # a rebound name has no cookie and no token of ours
    assert lab.call("GET", "/api/v1/session", headers={"Host": "bisect.example", **bearer(token)}).status_code == 200


@pytest.mark.parametrize(
    "headers", [FOREIGN, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9999"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_page_of_another_site_changes_nothing(lab: ServiceLab, headers: dict[str, str]) -> None:
    name = lab.submit()
    body = {"repository": "demo", "good": ["old"]}
    lab.refuse(403, "POST", "/api/v1/bisections", headers=headers, json=body)
    lab.refuse(403, "POST", f"/api/v1/bisections/{name}/cancel", headers=headers)
    lab.refuse(403, "POST", "/api/v1/session", headers=headers, json={"token": "x" * 40})
    lab.refuse(403, "DELETE", "/api/v1/session", headers=headers)
    assert [item["status"] for item in lab.get("/bisections")["items"]] == ["queued"]
    assert lab.post(f"/bisections/{name}/cancel", headers=OWN).status_code == 200


def test_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(lab: ServiceLab) -> None:
    token = lab.backend.queue.add_user("anna")
    answer = lab.post("/session", {"token": token}, headers=OWN)
    assert answer.status_code == 204
    said = answer.headers["set-cookie"]
    assert "HttpOnly" in said and "SameSite=strict" in said and token not in said
    cookie = {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}
    assert lab.get("/session", headers=cookie)["user"] == "anna"
    body = {"repository": "demo", "good": ["old"]}
    lab.refuse(403, "POST", "/api/v1/bisections", headers=cookie, json=body)  # a browser says where a form comes from
    assert lab.post("/bisections", body, headers={**cookie, **OWN}).status_code == 201
    lab.call("DELETE", "/api/v1/session", headers={**cookie, **OWN})
    lab.refuse(401, "GET", "/api/v1/session", headers=cookie)


def test_session_ends_with_its_users_token(lab: ServiceLab) -> None:
    token = lab.backend.queue.add_user("anna")
    lab.backend.queue.add_user("ben")
    answer = lab.post("/session", {"token": token}, headers=OWN)
    lab.backend.queue.revoke_token("anna")
    lab.refuse(401, "GET", "/api/v1/session", headers={"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"})
    lab.refuse(401, "POST", "/api/v1/session", headers=OWN, json={"token": token})


def test_session_ends_when_its_token_is_renewed(lab: ServiceLab) -> None:
    token = lab.backend.queue.add_user("anna")
    old = {"Cookie": f"{COOKIE}={lab.post('/session', {'token': token}, headers=OWN).cookies[COOKIE]}"}
    renewed = lab.backend.queue.renew_token("anna")
    lab.refuse(401, "GET", "/api/v1/session", headers=old)
    new = {"Cookie": f"{COOKIE}={lab.post('/session', {'token': renewed}, headers=OWN).cookies[COOKIE]}"}
    assert lab.get("/session", headers=new)["user"] == "anna"


def test_session_of_an_operators_token_is_good_as_long_as_the_token(tmp_path: Path, repo: Path) -> None:
    with service_lab(tmp_path / "home", repo, tokens=(digest_token("t" * 40),)) as lab:
        answer = lab.post("/session", {"token": "t" * 40}, headers=OWN)
        cookie = {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}
        assert lab.get("/session", headers=cookie)["user"] == OPERATOR
        lab.app.state.parts.doorman._tokens = (digest_token("u" * 40),)
        lab.refuse(401, "GET", "/api/v1/session", headers=cookie)


def test_sessions_are_bounded_and_end(lab: ServiceLab) -> None:
    now = [0.0]
    token = lab.backend.queue.add_user("anna")
    doorman = Doorman(lab.backend.queue, clock=lambda: now[0])
    first = doorman.open_session(token)
    for _ in range(MAX_SESSIONS):
        doorman.open_session(token)
    assert first is not None and len(doorman._sessions) == MAX_SESSIONS and digest_token(first) not in doorman._sessions
    now[0] = 13 * 3600.0
    doorman.open_session(token)
    assert len(doorman._sessions) == 1
    assert doorman.open_session("y" * 40) is None


def test_form_of_the_login_page_opens_a_session(lab: ServiceLab) -> None:
    token = lab.backend.queue.add_user("anna")
    assert lab.call("GET", "/").headers["location"] == "/login"
    assert 'name="token"' in lab.call("GET", "/login").text
    lab.refuse(403, "POST", "/login", data={"token": token})
    assert lab.call("POST", "/login", data={"token": "nobody's"}, headers=OWN).status_code == 401
    answer = lab.call("POST", "/login", data={"token": token}, headers=OWN)
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert lab.call("GET", "/", headers={"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}).status_code == 200


def test_form_of_too_many_fields_is_refused(lab: ServiceLab) -> None:
    lab.refuse(400, "POST", "/login", data=dict.fromkeys("abcde", "1"), headers=OWN)


def test_fault_of_the_machine_names_no_place_to_a_caller(
    lab: ServiceLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise MachineError("/srv/secret/store.db: cannot use this database", hint="look at /srv/secret")

    monkeypatch.setattr(lab.backend.queue, "users", fail)
    problem = lab.refuse(503, "GET", "/api/v1/bisections")
    page = lab.call("GET", "/")
    assert page.status_code == 503 and "/srv" not in f"{problem} {page.text}"
    assert "/srv/secret/store.db" in caplog.text


def test_users_act_on_their_own_and_administrators_on_all(lab: ServiceLab) -> None:
    queue = lab.backend.queue
    anna, ben, root = queue.add_user("anna"), queue.add_user("ben"), queue.add_user("root", is_admin=True)
    lab.headers = bearer(anna)
    name = lab.submit()
    for path, body in (("cancel", None), ("resume", None), ("marks", {"revision": "old", "verdict": "good"}), ("undo", None)):
        lab.refuse(403, "POST", f"/api/v1/bisections/{name}/{path}", headers=bearer(ben), json=body)
    assert lab.get(f"/bisections/{name}", headers=bearer(ben))["user"] == "anna"
    assert lab.post(f"/bisections/{name}/cancel", headers=bearer(root)).json()["reason"] == "cancelled by root"
    assert lab.post(f"/bisections/{name}/resume", headers=bearer(root)).json()["user"] == "anna"


def test_only_administrators_send_a_training_command(lab: ServiceLab, tmp_path: Path, repo: Path) -> None:
    wanted = {"repository": "demo", "good": ["old"], "command": ["python", "train.py", "--lr", "1"]}
    problem = lab.refuse(403, "POST", "/api/v1/bisections", json=wanted)
    assert "--allow-commands" in problem["hint"]
    queue = lab.backend.queue
    anna, root = queue.add_user("anna"), queue.add_user("root", is_admin=True)
    lab.refuse(403, "POST", "/api/v1/bisections", json=wanted, headers=bearer(anna))
    assert lab.post("/bisections", wanted, headers=bearer(root)).status_code == 201
    with service_lab(tmp_path / "other", repo, allow_commands=True) as other:
        assert other.post("/bisections", wanted).status_code == 201
        token = other.backend.queue.add_user("anna")
        other.refuse(403, "POST", "/api/v1/bisections", json=wanted, headers=bearer(token))


def test_user_with_a_full_queue_is_told_to_wait(lab: ServiceLab) -> None:
    lab.headers = bearer(lab.backend.queue.add_user("anna", limits=UserLimits(max_queued=2)))
    lab.submit()
    name = lab.submit()
    problem = lab.refuse(429, "POST", "/api/v1/bisections", json={"repository": "demo", "good": ["old"]})
    assert "wait" in problem["error"] and lab.get("/bisections")["total"] == 2, "nothing is stored that has no place"
    lab.post(f"/bisections/{name}/cancel")
    lab.submit()


def test_requests_that_are_too_large_are_refused(lab: ServiceLab) -> None:
    large = b'{"repository": "' + b"x" * 300_000 + b'"}'
    lab.refuse(413, "POST", "/api/v1/bisections", content=large, headers={"Content-Type": "application/json"})

    async def drip() -> object:
        for _ in range(40):
            yield b" " * 10_000

    lab.refuse(413, "POST", "/api/v1/bisections", content=drip(), headers={"Content-Type": "application/json"})
    lab.refuse(400, "POST", "/api/v1/bisections", headers={"Content-Length": "a"}, content=b"{}")


def test_answers_keep_browsers_from_guessing_and_framing(lab: ServiceLab) -> None:
    for path in ("/", "/api/v1/offer", "/login", "/nothing"):
        headers = lab.call("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff" and "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers
