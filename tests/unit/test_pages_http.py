"""The pages over HTTP: what they refuse, what they escape, under which policy they are sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from bisect_train.core.changes import FilePatch
from bisect_train.core.question import ConfigEnd
from tests.support.page_lab import CSRF, PageLab, make_app, serving
from tests.support.page_samples import HOSTILE, hostile_pages
from tests.support.simulated_bisection import Lab


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageLab]:
    lab = Lab.build(tmp_path_factory.mktemp("pages"))
    made = PageLab.create(lab)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def solved(pages: PageLab) -> str:
    name = pages.store.create(pages.lab.question().to_json(), title="what made nano worse?")
    pages.drive(name)
    return name


@pytest.fixture(scope="module")
def client(pages: PageLab) -> Iterator[httpx.Client]:
    with serving(make_app(pages)) as address, httpx.Client(base_url=address) as made:
        yield made


def _every_page(pages: PageLab, name: str) -> list[str]:
    keys = [probe.key for probe in pages.store.results(name)]
    inner = [
        "",
        "/changes",
        "/change/3",
        "/probes",
        f"/probe/{keys[0]}",
        f"/probe/{keys[-1]}",
        f"/compare?a={keys[0]}&b={keys[-1]}",
    ]
    return ["/", "/?q=x&status=running", *(f"/b/{name}{path}" for path in inner)]


class _Outline(HTMLParser):
    """Collects what makes a page usable and what must not be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def _outline(text: str) -> _Outline:
    parser = _Outline()
    parser.feed(text)
    return parser


def test_every_page_has_its_landmarks_and_nothing_inline(client: httpx.Client, pages: PageLab, solved: str) -> None:
    for path in _every_page(pages, solved):
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "script-src 'self' 'unsafe" not in policy
        tags = _outline(answer.text).tags
        names = [tag for tag, _ in tags]
        assert (names.count("main"), names.count("h1")) == (1, 1), path
        assert all("src" in attrs or attrs.get("type") == "application/json" for tag, attrs in tags if tag == "script"), path
        assert not any(name.startswith("on") for _, attrs in tags for name in attrs), path
        assert not any("style" in attrs for _, attrs in tags), path
        links = [attrs.get(name) or "" for _, attrs in tags for name in ("src", "href") if name in attrs]
        assert all(link.startswith(("/", "#", "data:,")) and not link.startswith("//") for link in links), path


def test_files_are_ours_and_plotly_is_the_one_of_the_reports(client: httpx.Client) -> None:
    page = client.get("/").text
    for name in re.findall(r"/static/([\w.-]+)\?v=", page):
        assert client.get(f"/static/{name}").status_code == 200, name
    vendored = Path("bisect_train/report/vendor/plotly-basic.min.js").read_bytes()
    assert client.get("/static/plotly.js").content == vendored
    assert not list(Path("bisect_train/service").rglob("*plotly*"))


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2f..%2f__init__.py",
        "/static/contract.py",
        "/static/../rendering.py",
        "/b/ZZZZZZZZ",
        "/b/00000000",
        "/b/last",
        "/b/%2e%2e%2fetc",
        "/b/{name}/change/0",
        "/b/{name}/change/99",
        "/b/{name}/change/-1",
        "/b/{name}/change/1e3",
        "/b/{name}/probe/ffff",
        "/b/{name}/probe/%00",
        "/b/{name}/compare",
        "/b/{name}/compare?a=x&b=y",
        "/b/{name}/compare?a=<script>&b=%00",
    ],
)
def test_what_is_not_there_is_a_plain_no(client: httpx.Client, solved: str, path: str) -> None:
    answer = client.get(path.format(name=solved))
    assert answer.status_code == 404, answer.text[:200]
    assert "<script>" not in answer.text.replace("<script src", "")


def test_probe_of_another_bisection_is_not_shown(client: httpx.Client, pages: PageLab, solved: str) -> None:
    other = pages.store.create(pages.lab.question().to_json(), title="another")
    key = pages.store.results(solved)[0].key
    assert client.get(f"/b/{other}/probe/{key}").status_code == 404
    assert client.get(f"/b/{solved}/probe/{key[:-1]}").status_code == 404, "a whole key, not its beginning"


@pytest.mark.parametrize("act", ["cancel", "resume", "mark"])
@pytest.mark.parametrize("token", [None, "", "another", CSRF + "x"])
def test_form_without_its_token_does_nothing(
    client: httpx.Client, pages: PageLab, solved: str, act: str, token: str | None
) -> None:
    before = len(pages.store.events(solved))
    fields = {"rev": pages.lab.commits[3], "verdict": "good", **({} if token is None else {"csrf": token})}
    assert client.post(f"/b/{solved}/{act}", data=fields).status_code == 403
    assert client.post("/submit", data={"repository": "nano", "good": "HEAD~5"}).status_code == 403
    assert len(pages.store.events(solved)) == before


def test_mark_is_stored_and_shown_at_once(client: httpx.Client, pages: PageLab) -> None:
    name = pages.store.create(pages.lab.question().to_json(), title="to be marked")
    fields = {"csrf": CSRF, "rev": pages.lab.commits[3], "verdict": "untestable"}
    answer = client.post(f"/b/{name}/mark", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/b/{name}")
    assert "called untestable by hand" in client.get(f"/b/{name}").text
    assert [event.kind for event in pages.store.events(name)] == ["marked"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rev": "", "verdict": "good"}, "A mark needs"),
        ({"rev": "HEAD~3", "verdict": "worse"}, "A mark needs"),
        ({"rev": "no-such-thing", "verdict": "good"}, "no-such-thing"),
    ],
)
def test_mark_that_cannot_be_made_says_why(client: httpx.Client, solved: str, fields: dict[str, str], said: str) -> None:
    answer = client.post(f"/b/{solved}/mark", data={"csrf": CSRF, **fields})
    assert answer.status_code == 400
    assert said in answer.text


def test_cancel_of_what_does_not_run_says_so(client: httpx.Client, solved: str) -> None:
    answer = client.post(f"/b/{solved}/cancel", data={"csrf": CSRF})
    assert answer.status_code == 400
    assert "is not running" in answer.text


@pytest.mark.parametrize(
    "body",
    [b"csrf=" + b"x" * 70_000, b"&".join(b"f%d=1" % idx for idx in range(50)), b"csrf=\xff\xfe", b"csrf=%ff%fe"],
    ids=["large", "many fields", "not ascii", "not utf-8"],
)
def test_malformed_form_is_refused(client: httpx.Client, solved: str, body: bytes) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post(f"/b/{solved}/cancel", content=body, headers=headers).status_code == 400


def test_stranger_is_sent_to_the_login_and_sees_nothing(pages: PageLab, solved: str) -> None:
    app = make_app(pages, user=None)
    with serving(app) as address, httpx.Client(base_url=address) as stranger:
        for path in [*_every_page(pages, solved), f"/b/{solved}/live"]:
            answer = stranger.get(path)
            assert answer.status_code == 401, path
            assert "nano" not in answer.text
        app.state.pages = replace(app.state.pages, login="/login")
        assert stranger.get("/").headers["location"] == "/login"
        assert stranger.post(f"/b/{solved}/cancel", data={"csrf": CSRF}).status_code == 401


def test_list_finds_by_words_status_and_user(client: httpx.Client, pages: PageLab, solved: str) -> None:
    pages.users[solved] = "grace"
    assert f"/b/{solved}" in client.get("/?q=COMMIT+NUMBER").text
    assert f"/b/{solved}" in client.get("/?status=isolated&user=grace").text
    assert f"/b/{solved}" not in client.get("/?q=nowhere").text
    assert f"/b/{solved}" not in client.get("/?status=running").text
    assert client.get("/?page=99999999999999999999").status_code == 200


def test_live_stream_of_what_has_ended_says_so_and_ends(client: httpx.Client, pages: PageLab, solved: str) -> None:
    answer = client.get(f"/b/{solved}/live")
    assert answer.headers["content-type"].startswith("text/event-stream")
    seq = len(pages.store.events(solved))
    assert f'event: state\ndata: {{"seq": {seq}, "status": "isolated"}}' in answer.text
    assert answer.text.endswith("event: end\ndata: {}\n\n")


def test_single_probe_is_no_bisection(client: httpx.Client, pages: PageLab) -> None:
    question = replace(pages.lab.question(), kind="probe")
    name = pages.store.create(question.to_json(), title="a single probe")
    answer = client.get(f"/b/{name}")
    assert (answer.status_code, "not a bisection" in answer.text) == (404, True)
    assert "a single probe" not in client.get("/").text


# ---- strangers' text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_config", [False, True], ids=["commits", "config keys"])
def test_hostile_text_stays_text(tmp_path: Path, is_config: bool) -> None:
    made, name = hostile_pages(tmp_path)
    if is_config:
        good, bad = (
            "".join(f"{re.sub('[^ -~]', '?', text)!r}: {value}\n" for text in HOSTILE if "'" not in text) for value in (1, 2)
        )
        question = made.lab.question()
        ends = [ConfigEnd(f"{side}.yaml", FilePatch("train.yaml", text)) for side, text in (("good", good), ("bad", bad))]
        question = replace(question, kind="check", good_config=ends[0], bad_config=ends[1])
        question = replace(question, range=replace(question.range, goods=(question.range.bad,)))
        name = made.store.create(question.to_json(), title="check")
    paths = _every_page(made, name) if not is_config else ["/", f"/b/{name}", f"/b/{name}/changes", f"/b/{name}/change/1"]
    with serving(make_app(made)) as address, httpx.Client(base_url=address) as client:
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text[:500])
            tags = _outline(answer.text).tags
            assert not [tag for tag, _ in tags if tag == "img"], path
            assert not any((attrs.get("href") or "").startswith("javascript:") for _, attrs in tags), path
            assert not any(key.startswith("on") for _, attrs in tags for key in attrs), path
            assert sum(tag == "script" and "src" not in attrs and "type" not in attrs for tag, attrs in tags) == 0, path
            assert not re.search("[\x00-\x08\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]", answer.text), path
    made.store.close()
