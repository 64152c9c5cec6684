"""Watching: one bisection, or all of them, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from bisect_train.service.feed import HEARTBEAT
from bisect_train.service.overview import Item
from bisect_train.service.parts import Parts, find
from bisect_train.service.problems import Refused, problems
from bisect_train.service.routes.shared import Has, Id, Who

router = APIRouter(tags=["watch"])
MAX_ITEMS = 200
LOOK_S = 1.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream of server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@router.get(
    "/bisections/{bisection_id}/events",
    summary="Watch one bisection",
    response_class=StreamingResponse,
    responses={**problems(404, 422, 429), **_STREAM},
)
async def watch(
    bisection_id: Id,
    parts: Has,
    who: Who,
    after: Annotated[int, Query(ge=0, le=10**9, description="Number of the last event that is known.")] = 0,
    last_event_id: Annotated[str | None, Header(description="As `after`; browsers send it when they come back.")] = None,
) -> StreamingResponse:
    """Send the events behind `after`, each with its number as id, then new ones as they come; `event: end` is the last.

    Who comes back with the last number that was seen misses nothing. `event: live` says what runs now and has no number.
    """
    await asyncio.to_thread(find, parts, bisection_id)
    seq = _number_of(last_event_id, after)
    return _stream(parts, who.name, parts.feed.watch(bisection_id, seq))


@router.get("/events", summary="Watch all bisections", response_class=StreamingResponse, responses={**problems(429), **_STREAM})
async def watch_all(parts: Has, who: Who) -> StreamingResponse:
    """Send each of the newest bisections as `event: bisection`, then each that changes, as lists show them.

    A message holds the whole state of a bisection, so that who comes back is up to date with the first of them.
    """
    return _stream(parts, who.name, _changes(parts))


def _number_of(header: str | None, after: int) -> int:
    if header is None or not header:
        return after
    if not header.isascii() or not header.isdigit() or len(header) > 10:
        raise Refused(422, "Last-Event-ID is not the number of an event")
    return int(header)


def _stream(parts: Parts, user: str, messages: AsyncIterator[str]) -> StreamingResponse:
    parts.seats.take(user)
    return StreamingResponse(_seated(parts, user, messages), media_type="text/event-stream", headers=HEADERS)


async def _seated(parts: Parts, user: str, messages: AsyncIterator[str]) -> AsyncIterator[str]:
    try:
        async for text in messages:
            yield text
    finally:
        parts.seats.give_back(user)
        await messages.aclose()  # type: ignore[attr-defined]


async def _changes(parts: Parts) -> AsyncIterator[str]:
    sent: dict[str, Item] = {}
    quiet_s = 0.0
    yield "retry: 2000\n\n"
    while not parts.feed.is_closing:
        items = [item for item in await asyncio.to_thread(parts.overview.items) if not item.part_of][:MAX_ITEMS]
        news = [item for item in reversed(items) if sent.get(item.id) != item]
        for item in news:
            yield f"event: bisection\ndata: {json.dumps(item.to_json(), separators=(',', ':'))}\n\n"
        sent = {item.id: item for item in items}
        quiet_s = 0.0 if news else quiet_s + LOOK_S
        if quiet_s >= parts.settings.heartbeat_s:
            quiet_s = 0.0
            yield HEARTBEAT
        await asyncio.sleep(LOOK_S)
