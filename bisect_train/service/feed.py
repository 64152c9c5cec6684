"""The events of bisections as they come, for any number of watchers: each is read and written down once for all of them.

A watcher holds the number of the last event that it has sent, and nothing is kept for it: what has left the small memory of
recent events is read from the store again. So no event is lost to a slow watcher, and none costs memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bisect_train.core.errors import BisectTrainError
from bisect_train.service.backend import Backend
from bisect_train.service.live import LiveBoard
from bisect_train.service.views import event_view, live_view
from bisect_train.store.contract import StoredEvent
from bisect_train.store.queue_contract import QueueState

MAX_KEPT = 200
PAGE = 200
OVER = ("finished", "cancelled")
HEARTBEAT = ": still here\n\n"


@dataclass(slots=True)
class _Topic:
    """What is known of one bisection that is watched."""

    bisection_id: str
    kept: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))
    last: int = 0
    live_version: int = -1
    live_text: str = ""
    over: str | None = None
    problem: str = ""
    num_watchers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def tell(self) -> None:
        """Wake those who wait; each waits for the event that it saw before it looked."""
        self.changed.set()
        self.changed = asyncio.Event()

    def since(self, seq: int) -> list[tuple[int, str]] | None:
        """Return the messages above a number; None where some of them have left the memory."""
        if seq >= self.last:
            return []
        if not self.kept or self.kept[0][0] > seq + 1:
            return None
        return [item for item in self.kept if item[0] > seq][:PAGE]


class Feed:
    """Reads events of watched bisections.

    Args:
        backend: store and queue.
        board: running probes.
        poll_s: between two looks, seconds.
        heartbeat_s: between two signs of life on a quiet stream, seconds.
    """

    def __init__(self, backend: Backend, board: LiveBoard, *, poll_s: float, heartbeat_s: float) -> None:
        self._backend = backend
        self._board = board
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._topics: dict[str, _Topic] = {}
        self.is_closing = False

    async def watch(self, bisection_id: str, after: int) -> AsyncIterator[str]:
        """Yield a stream of server-sent events from the one behind `after` until the bisection is over.

        A message with `id: SEQ` for each stored event, `event: live` for running probes, `event: end` at the end.
        """
        async with self._subscribed(bisection_id) as topic:
            seq, live = after, -1
            yield "retry: 2000\n\n"
            while not self.is_closing:
                changed, over = topic.changed, topic.over  # before looking: what comes now wakes us
                messages = topic.since(seq)
                if messages is None:
                    messages = await asyncio.to_thread(self._read, bisection_id, seq)
                for number, text in messages:
                    yield text
                    seq = number
                if messages:
                    continue
                if topic.live_version > live:
                    live = topic.live_version
                    yield topic.live_text
                if topic.problem:
                    yield f"event: problem\ndata: {json.dumps({'error': topic.problem})}\n\n"
                    return
                if over is not None and seq >= topic.last:
                    yield over
                    return
                try:
                    await asyncio.wait_for(changed.wait(), self._heartbeat_s)
                except asyncio.TimeoutError:
                    yield HEARTBEAT

    def wake(self, bisection_id: str) -> None:
        """Look at a bisection now, where somebody watches it."""
        topic = self._topics.get(bisection_id)
        if topic is not None:
            topic.tell()

    def stop(self) -> None:
        """Let all streams come to their end; called in the event loop."""
        self.is_closing = True
        for topic in self._topics.values():
            topic.tell()

    async def close(self) -> None:
        """End all streams."""
        self.stop()
        for topic in list(self._topics.values()):
            if topic.task is not None:
                topic.task.cancel()
                with suppress(asyncio.CancelledError):
                    await topic.task

    @asynccontextmanager
    async def _subscribed(self, bisection_id: str) -> AsyncIterator[_Topic]:
        topic = self._topics.get(bisection_id)
        if topic is None:
            topic = self._topics[bisection_id] = _Topic(bisection_id)
        topic.num_watchers += 1
        try:
            if topic.task is None:
                topic.task = asyncio.create_task(self._follow(topic))
            yield topic
        finally:
            topic.num_watchers -= 1
            if topic.num_watchers == 0:
                self._topics.pop(bisection_id, None)
                if topic.task is not None:
                    topic.task.cancel()

    async def _follow(self, topic: _Topic) -> None:
        """Keep a topic up to date while somebody watches."""
        while True:
            try:
                over, events = await asyncio.to_thread(self._look, topic.bisection_id, topic.last)
            except BisectTrainError as error:
                topic.problem = error.message
                topic.tell()
                return
            if len(events) == PAGE:
                over = None  # there may be more to read
            for event in events:
                topic.kept.append((event.seq, message_of(event)))
                topic.last = event.seq
            has_news = bool(events) or over != topic.over or self._take_live(topic)
            topic.over = over
            if has_news:
                topic.tell()
            if len(events) < PAGE:
                await asyncio.sleep(self._poll_s)

    def _look(self, bisection_id: str, after: int) -> tuple[str | None, tuple[StoredEvent, ...]]:
        """Return whether it is over, asked before its events are read: so none is missing once it is."""
        over = over_message(self._backend, bisection_id)
        return over, self._backend.store.events(bisection_id, after=after, limit=PAGE)

    def _read(self, bisection_id: str, seq: int) -> list[tuple[int, str]]:
        return [(event.seq, message_of(event)) for event in self._backend.store.events(bisection_id, after=seq, limit=PAGE)]

    def _take_live(self, topic: _Topic) -> bool:
        version = self._board.version(topic.bisection_id)
        if version == topic.live_version or (version == 0 and topic.live_version < 0):
            return False
        runs = self._board.runs(topic.bisection_id) or ()
        topic.live_version = version
        topic.live_text = f"event: live\ndata: {_text({'runs': [live_view(run, with_curve=False) for run in runs]})}\n\n"
        return True


def message_of(event: StoredEvent) -> str:
    """Return a stored event as a server-sent one; it has no name, so that a page hears all kinds with one listener."""
    return f"id: {event.seq}\ndata: {_text(event_view(event))}\n\n"


def over_message(backend: Backend, bisection_id: str) -> str | None:
    """Return the last message of a stream where nothing will happen any more unless a person asks for it, else None."""
    entry = backend.queue.entry(bisection_id)
    if entry is not None and not entry.state.is_over:
        return None
    if entry is not None and entry.state in (QueueState.FAILED, QueueState.CANCELLED):
        data = {"status": entry.state.value, "reason": entry.reason}
        return f"event: end\ndata: {_text(data)}\n\n"
    stored = backend.store.load(bisection_id)
    if stored.status not in OVER:
        return None
    data = {"status": stored.status, "reason": ""}
    return f"event: end\ndata: {_text(data)}\n\n"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
