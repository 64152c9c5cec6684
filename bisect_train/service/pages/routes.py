"""The pages: the list, one bisection, its changes and probes, two probes over one another, and the files that they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from starlette.requests import Request
from starlette.responses import Response

from bisect_train.coordinator.event_log import read_probe
from bisect_train.core.errors import InputError
from bisect_train.report.parts import ProbePart
from bisect_train.service.pages.bisection_view import BisectionView, check_id
from bisect_train.service.pages.desk import PageDesk, desk_of, guarded, refuse
from bisect_train.service.pages.flight_view import flight_to_json, list_flight, running_probes
from bisect_train.service.pages.list_view import ListFilter, make_list
from bisect_train.service.pages.nightly_view import make_branch
from bisect_train.service.pages.probe_page_view import make_compare_page, make_probe_page
from bisect_train.service.pages.rendering import asset, render_page
from bisect_train.service.pages.strip_view import version_of
from bisect_train.service.pages.words import FILTERS, HALTED, Status, say_cost, status_of, status_words
from bisect_train.store.contract import StoredBisection, StoredProbe

router = APIRouter(include_in_schema=False)
T = TypeVar("T")

NUM_PROBES = 20  # on the page of a bisection; another page has all
PROBES_PER_PAGE = 100
MAX_CHOICES = 300  # of probes to compare with
MAX_WATCHERS = 500
MAX_WATCHERS_PER_USER = 250
MAX_TEXT = 200


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1


@router.get("/")
@guarded
def front(request: Request, q: str = "", status: str = "", user: str = "", page: str = "1") -> Response:
    """The list of bisections, what waits, the form, the nightly histories."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    wanted = ListFilter(q[:MAX_TEXT], status[:MAX_TEXT], user[:MAX_TEXT], _number(page))
    return render_page(
        request,
        "front.html.j2",
        wanted=wanted,
        found=make_list(desk.backend, wanted, desk.shelf),
        statuses=[(name, status_words(name)) for name in FILTERS],
        offer=desk.backend.offer(desk.user(request)),
        branches=[make_branch(branch, idx) for idx, branch in enumerate(desk.backend.branches())],
    )


def _load(desk: PageDesk, bisection_id: str) -> tuple[StoredBisection, Status]:
    stored = desk.backend.store.load(check_id(bisection_id))
    if stored.question.get("kind") not in ("run", "check"):
        raise InputError(f"{stored.id} is a {stored.question.get('kind')}, not a bisection")
    queued = any(item.bisection_id == stored.id for item in desk.backend.queue())
    return stored, status_of(stored, desk.backend.store, is_queued=queued)


@router.get("/b/{bisection_id}")
@guarded
def bisection(request: Request, bisection_id: str) -> Response:
    """One bisection."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    stored, status = _load(desk, bisection_id)
    view = desk.cache.get(stored.id)
    runs = running_probes(desk.backend, stored.id) if status.name == "running" else ()
    answer = stored.answer or {}
    return render_page(
        request,
        "bisection.html.j2",
        stored=stored,
        status=status,
        view=view,
        report=view.report,
        asked_by=desk.backend.user_of(stored.id),
        cost=say_cost(answer.get("cost", {})),
        answered_as=str(answer.get("summary", "")),
        flight=list_flight(runs, view.names),
        flight_data=flight_to_json(runs, view.names),
        newest=view.probes[:NUM_PROBES],
        choices=_choices(view),
        pair=_usual_pair(view.probes),
        is_running=status.name in ("running", "queued"),
        is_halted=status.name in HALTED or status.name in ("created", "budget"),
    )


def _choices(view: BisectionView) -> tuple[ProbePart, ...]:
    """Return the probes that can be chosen for a comparison: all, or of many those of the ends and the newest."""
    if len(view.probes) <= MAX_CHOICES:
        return view.probes
    ends = [row for row in view.probes if row.purpose == "ends"][: MAX_CHOICES // 3]
    others = [row for row in view.probes if row.purpose != "ends"]
    return (*others[: MAX_CHOICES - len(ends)], *ends)


def _usual_pair(rows: Sequence[ProbePart]) -> tuple[str, str]:
    """Return the keys of a good and a bad end on the same seed; ("", "") where there are none."""
    by_side: dict[str, dict[int, str]] = {"good end": {}, "bad end": {}}
    for row in rows:
        if row.what in by_side and not row.repeat:
            by_side[row.what][row.seed_idx] = row.key
    shared = sorted(by_side["good end"].keys() & by_side["bad end"].keys())
    return (by_side["good end"][shared[0]], by_side["bad end"][shared[0]]) if shared else ("", "")


@router.get("/b/{bisection_id}/live")
@guarded
def live(request: Request, bisection_id: str) -> Response:
    """How a bisection stands, as it changes: server-sent events."""
    desk = desk_of(request)
    user = desk.setup.guard.user_of(request)
    if user is None:
        return refuse(request, 401, "this service needs a token", hint="log in first")
    stored, _ = _load(desk, bisection_id)
    if desk.watch.num_of(user) >= MAX_WATCHERS_PER_USER:
        return refuse(request, 429, "too many of your pages are watching", hint="close one, or load this one again by hand")
    if desk.watch.num_watchers >= MAX_WATCHERS:
        return refuse(request, 503, "too many pages are watching", hint="close one, or load this one again by hand")
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(desk.watch.stream(stored.id, user=user), media_type="text/event-stream", headers=headers)


@router.get("/b/{bisection_id}/changes")
@guarded
def changes(request: Request, bisection_id: str, page: str = "1") -> Response:
    """All changes of a bisection as a table."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    stored, status = _load(desk, bisection_id)
    view = desk.cache.get(stored.id)
    rows, number, num_pages = _page_of(view.strip.cells, page)
    return render_page(
        request, "changes.html.j2", stored=stored, status=status, view=view, rows=rows, page=number, num_pages=num_pages
    )


@router.get("/b/{bisection_id}/change/{number}")
@guarded
def change(request: Request, bisection_id: str, number: str) -> Response:
    """One change: what it is, what is believed of it, and the runs of the version that ends with it."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    stored, status = _load(desk, bisection_id)
    view = desk.cache.get(stored.id)
    idx = _number(number)
    if not (number.isdigit() and 1 <= idx <= len(view.strip.cells)):
        raise InputError("this bisection has no change of this number", hint=f"they are numbered 1 to {len(view.strip.cells)}")
    item = view.names.changes[idx - 1]
    return render_page(
        request,
        "change.html.j2",
        stored=stored,
        status=status,
        cell=view.strip.cells[idx - 1],
        change=item,
        total=len(view.strip.cells),
        runs=[row for row in view.probes if version_of(row.point) == idx][:PROBES_PER_PAGE],
        metric=view.report.metric if view.report else None,
        is_running=status.name in ("running", "queued"),
    )


@router.get("/b/{bisection_id}/probes")
@guarded
def probes(request: Request, bisection_id: str, page: str = "1", purpose: str = "", verdict: str = "") -> Response:
    """All finished probes of a bisection."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    stored, status = _load(desk, bisection_id)
    view = desk.cache.get(stored.id)
    found = [row for row in view.probes if row.purpose.startswith(purpose) and (not verdict or row.verdict == verdict)]
    rows, number, num_pages = _page_of(found, page)
    return render_page(
        request,
        "probes.html.j2",
        stored=stored,
        status=status,
        view=view,
        report=view.report,
        rows=rows,
        num_found=len(found),
        page=number,
        num_pages=num_pages,
        purpose=purpose[:MAX_TEXT],
        verdict=verdict[:MAX_TEXT],
        verdicts=sorted({row.verdict for row in view.probes}),
    )


def _page_of(rows: Sequence[T], page: str) -> tuple[Sequence[T], int, int]:
    """Return the rows of a page, its number, and how many pages there are."""
    num_pages = max(1, -(-len(rows) // PROBES_PER_PAGE))
    number = min(max(1, _number(page)), num_pages)
    return rows[(number - 1) * PROBES_PER_PAGE : number * PROBES_PER_PAGE], number, num_pages


def _probe(desk: PageDesk, bisection_id: str, key: str) -> StoredProbe:
    """Return a probe of a bisection, found by its whole key. Raises InputError where it is none of its own."""
    store = desk.backend.store
    is_key = 4 <= len(key) <= 128 and key.isascii() and key.isalnum()
    if not is_key or not any(event.data.get("key") == key for event in store.events(bisection_id)):
        raise InputError("this bisection has no finished probe of this key", hint="its page lists the probes that it has")
    return read_probe(store, key)


@router.get("/b/{bisection_id}/probe/{key}")
@guarded
def probe(request: Request, bisection_id: str, key: str) -> Response:
    """One probe."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    stored, status = _load(desk, bisection_id)
    found = _probe(desk, stored.id, key)
    view = desk.cache.get(stored.id)
    return render_page(
        request,
        "probe.html.j2",
        stored=stored,
        status=status,
        row=view.find_probe(key),
        metric=view.report.metric if view.report else None,
        probe=make_probe_page(found),
        choices=[item for item in _choices(view) if item.key != key],
    )


@router.get("/b/{bisection_id}/compare")
@guarded
def compare(request: Request, bisection_id: str, a: str = "", b: str = "") -> Response:
    """Two probes over one another."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    stored, status = _load(desk, bisection_id)
    view = desk.cache.get(stored.id)
    pair = [_probe(desk, stored.id, key) for key in (a, b)]
    rows = [view.find_probe(item.key) for item in pair]
    names = [f"{row.what}, seed {row.seed_idx}" if row else item.key[:8] for row, item in zip(rows, pair, strict=True)]
    fingerprints = [item.result.fingerprint for item in pair]
    return render_page(
        request,
        "compare.html.j2",
        stored=stored,
        status=status,
        keys=(a, b),
        names=names,
        rows=rows,
        compared=make_compare_page(
            fingerprints[0],
            fingerprints[1],
            names=(names[0], names[1]),
            is_same_seed=pair[0].spec.get("seed_idx") == pair[1].spec.get("seed_idx"),
        ),
        choices=_choices(view),
    )


@router.get("/static/{name}")
def static(request: Request, name: str) -> Response:
    """One of the files that the pages need; they hold nothing of anybody."""
    try:
        body, kind = asset(name)
    except KeyError:
        return Response("there is no such file\n", status_code=404, media_type="text/plain")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(body, media_type=kind, headers=headers)
