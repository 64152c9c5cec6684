"""Takes bisections from the queue when their turn comes, and runs each in a process of its own until it is over.

The queue is in the store, so nothing is lost when the service dies: what it ran goes back to the queue once its lease is over,
and the bisection goes on where it was. A coordinator that dies is started again, a few times. Whoever has used up the day's
limits is interrupted and waits in the queue. When the service ends, coordinators are interrupted and their entries go back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from bisect_train.core.errors import BisectTrainError, MachineError
from bisect_train.service.children import Child
from bisect_train.service.cluster import Cluster
from bisect_train.service.live import LiveBoard
from bisect_train.service.logs import last_complaint, log_path
from bisect_train.service.settings import Settings
from bisect_train.store.contract import CANCEL_REQUESTED, Store
from bisect_train.store.leases import LEASE_S
from bisect_train.store.queue_contract import Queue, QueueEntry, QueueState, is_cancel_in_force

_LOG = logging.getLogger("bisect_train.service")
MAX_TRIES = 3
PAUSE_S = 2.0
LOOK_S = 1.0
LIMITS_S = 5.0
CANCEL_S = 10.0
"""For a coordinator to see by itself that it was cancelled, before it is interrupted."""
HELD_S = LEASE_S + 5.0
"""So long at most a coordinator that died without a word still has its bisection; where leases tell, not the kernel."""
HELD_LOOK_S = 0.5
BAD_INPUT = 2


@dataclass(slots=True)
class _Running:
    """A claimed entry: its process while there is one, and why it is to end."""

    entry: QueueEntry
    child: Child | None = None
    is_held: bool = False  # back to the queue: a limit is used up, or the service ends
    cancelled_t: float | None = None
    has_finished: bool = False  # since it was claimed: one that had an answer may be asked to go on
    reason: str = ""
    seq: int = -1  # of the last event that was looked at
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Dispatcher:
    """See the module; `app.Runner`.

    Args:
        settings: how many at a time, the home folder.
        store, queue: what is run, and what waits.
        board: takes what coordinators report.
        cluster: the Ray that they share.
        command_of: argument list of the coordinator of a bisection, given Ray's address.
        env: environment of coordinators.
        follow: asks what follows from a bisection that has its answer, and puts it into the queue; may be called again.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        queue: Queue,
        board: LiveBoard,
        cluster: Cluster,
        command_of: Callable[[str, str], Sequence[str]],
        env: Mapping[str, str],
        follow: Callable[[str], None] = lambda bisection_id: None,
    ) -> None:
        self._settings = settings
        self._follow = follow
        self._store = store
        self._queue = queue
        self._board = board
        self._cluster = cluster
        self._command_of = command_of
        self._env = dict(env)
        self._running: dict[str, _Running] = {}
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = False
        self._id = ""
        self._problem = "the dispatcher has not started yet"

    def wake(self) -> None:
        """Look at the queue at once; any thread may call."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._news.set)

    def problem(self) -> str:
        """Return why no bisection can be started now, or ""."""
        return self._problem or self._cluster.problem

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work until the context ends; then interrupt what runs, and give it back to the queue."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._work())
        try:
            yield
        finally:
            self._is_stopping = True
            self._problem = "the service is ending"
            self._news.set()
            await task
            await self._cluster.close()

    async def _work(self) -> None:
        while not self._is_stopping:
            with ExitStack() as stack:
                try:
                    self._id = await asyncio.to_thread(stack.enter_context, self._queue.join(lease_s=self._settings.lease_s))
                    await self._dispatch()
                except BisectTrainError as error:
                    _LOG.error("the queue cannot be used: %s", error.message)
                    self._problem = "the queue cannot be used"
                await self._stop_all()
                with contextlib.suppress(BisectTrainError):
                    await asyncio.to_thread(stack.close)
            if not self._is_stopping:
                await self._sleep(PAUSE_S)

    async def _dispatch(self) -> None:
        """Start and mind what is due. Raises BisectTrainError where the queue cannot be used, or counts us as dead."""
        limits_t = 0.0
        while not self._is_stopping:
            while len(self._running) < self._settings.max_running:
                entry = await asyncio.to_thread(self._queue.claim, self._id)
                self._problem = ""
                if entry is None:
                    break
                self._take(entry)
            now = asyncio.get_running_loop().time()
            await self._look_for_cancels(now)
            if now - limits_t >= LIMITS_S:
                limits_t = now
                await self._look_at_limits()
            await self._sleep(LOOK_S)

    async def _sleep(self, limit_s: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), limit_s)
        self._news.clear()

    def _take(self, entry: QueueEntry) -> None:
        running = self._running[entry.bisection_id] = _Running(entry)
        running.task = asyncio.create_task(self._mind(running))
        self._share()

    def _share(self) -> None:
        """Tell all coordinators how many they are."""
        for running in self._running.values():
            if running.child is not None:
                running.child.share(max(1, len(self._running)))

    # ---- one bisection ---------------------------------------------------------------------------------------------

    async def _mind(self, running: _Running) -> None:
        """Run a bisection until it is over, and say so in the queue."""
        bisection_id = running.entry.bisection_id
        state, reason = QueueState.QUEUED, ""
        try:
            state, reason = await self._run(running)
            if state is QueueState.DONE:
                await self._ask_what_follows(bisection_id)
        except BisectTrainError as error:
            state, reason = QueueState.FAILED, error.message
        except asyncio.CancelledError:
            raise
        except Exception as error:  # an edge: the other bisections go on
            _LOG.error("bisection %s: %s", bisection_id, type(error).__name__, exc_info=error)
            state, reason = QueueState.FAILED, f"this is a fault of bisect-train: {type(error).__name__}"
        finally:
            self._board.forget(bisection_id)
            self._running.pop(bisection_id, None)
            self._share()
        try:
            await asyncio.to_thread(self._queue.finish, self._id, bisection_id, state, reason=reason)
        except BisectTrainError as error:
            _LOG.warning("bisection %s: %s", bisection_id, error.message)
        self._news.set()

    async def _ask_what_follows(self, bisection_id: str) -> None:
        """Put what follows into the queue before the entry is over: who dies in between finds it again."""
        try:
            await asyncio.to_thread(self._follow, bisection_id)
        except Exception as error:  # an edge: the bisection itself has its answer
            _LOG.error("bisection %s: what follows from it cannot be asked: %s", bisection_id, error, exc_info=error)

    async def _run(self, running: _Running) -> tuple[QueueState, str]:
        bisection_id, reason = running.entry.bisection_id, ""
        for num_tries in range(1, MAX_TRIES + 1):
            if num_tries > 1:
                await self._pause(running)
            await self._wait_until_free(running)
            if (over := await self._over(running)) is not None:
                return over
            status, reason = await self._run_once(running)
            if (over := await self._over(running)) is not None:
                return over
            reason = reason or f"its coordinator ended with status {status}"
            _LOG.warning("bisection %s, try %d: %s", bisection_id, num_tries, reason)
            if status == BAD_INPUT:
                break
        return QueueState.FAILED, reason

    async def _pause(self, running: _Running) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(running.ending.wait(), PAUSE_S)

    async def _wait_until_free(self, running: _Running) -> None:
        """Wait while a dead coordinator still counts as the one that runs it; not once it is to end."""
        until_t = asyncio.get_running_loop().time() + HELD_S
        while await self._has_coordinator(running, until_t) and not running.ending.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(running.ending.wait(), HELD_LOOK_S)

    async def _has_coordinator(self, running: _Running, until_t: float) -> bool:
        """Return whether some coordinator has it, False from a time on."""
        if asyncio.get_running_loop().time() >= until_t:
            return False
        return await asyncio.to_thread(self._store.is_running, running.entry.bisection_id)

    async def _run_once(self, running: _Running) -> tuple[int, str]:
        """Run a coordinator to its end; return its exit status and what it complained of."""
        bisection_id = running.entry.bisection_id
        try:
            place = await self._cluster.place()
        except MachineError as error:
            return 1, error.message
        if self._is_stopping:
            return 0, ""
        log = log_path(self._settings.home, bisection_id)
        running.child = await Child.start(
            self._command_of(bisection_id, place.address),
            env={**self._env, **place.env},
            log=log,
            listener=partial(self._board.take, bisection_id),
        )
        self._share()
        if self._is_stopping or running.is_held:  # while it was being started
            running.child.interrupt()
        try:
            status = await running.child.wait()
        finally:
            running.child = None
        return status, last_complaint(log) if status else ""

    async def _over(self, running: _Running) -> tuple[QueueState, str] | None:
        """Return how a bisection without a coordinator has ended, None where it is to go on."""
        bisection_id = running.entry.bisection_id
        await self._read_news(running)
        status = (await asyncio.to_thread(self._store.load, bisection_id)).status
        if running.has_finished and status == "finished":
            return QueueState.DONE, ""
        if running.cancelled_t is not None:
            if status != "cancelled" and not await self._note_cancelled(running):
                return QueueState.QUEUED, ""  # whoever claims it next notes it
            return QueueState.CANCELLED, running.reason
        return (QueueState.QUEUED, "") if self._is_stopping or running.is_held else None

    async def _note_cancelled(self, running: _Running) -> bool:
        """Note what a coordinator did not come to note, or was not there to; return False where the service ends first."""
        until_t = asyncio.get_running_loop().time() + HELD_S
        while await self._has_coordinator(running, until_t):
            if self._is_stopping or running.is_held:
                return False
            await asyncio.sleep(HELD_LOOK_S)
        await asyncio.to_thread(self._append_cancelled, running.entry.bisection_id)
        return True

    def _append_cancelled(self, bisection_id: str) -> None:
        with self._store.lock(bisection_id):
            self._store.append(bisection_id, "cancelled", {})

    async def _read_news(self, running: _Running) -> None:
        """Look for a cancel since the entry was claimed, or one from before that still holds."""
        is_first = running.seq < 0
        events = await asyncio.to_thread(self._store.events, running.entry.bisection_id, after=max(0, running.seq))
        kinds = [event.kind for event in events]
        running.seq = events[-1].seq if events else max(0, running.seq)
        if is_first:
            kinds = [CANCEL_REQUESTED] if is_cancel_in_force(kinds) else []
        running.has_finished |= "finished" in kinds
        if running.cancelled_t is None and (CANCEL_REQUESTED in kinds or "cancelled" in kinds):
            running.cancelled_t = asyncio.get_running_loop().time()
            asked = [event for event in events if event.kind == CANCEL_REQUESTED]
            running.reason = str(asked[-1].data.get("reason", "")) if asked else ""
            running.ending.set()

    # ---- endings ---------------------------------------------------------------------------------------------------

    async def _look_for_cancels(self, now: float) -> None:
        """Interrupt those that were cancelled and do not see it themselves: Ray is starting, say."""
        for running in list(self._running.values()):
            if running.child is None or running.seq < 0:
                continue
            await self._read_news(running)
            if running.cancelled_t is not None and now - running.cancelled_t > CANCEL_S and running.child is not None:
                running.child.interrupt()

    async def _look_at_limits(self) -> None:
        """Interrupt what belongs to users who have nothing left today: it goes on when they have."""
        users = {running.entry.user for running in self._running.values()}
        spent = {user for user in users if (await asyncio.to_thread(self._queue.allowance, user)).is_spent}
        for running in self._running.values():
            if running.entry.user in spent and not running.is_held:
                running.is_held = True
                running.ending.set()
                if running.child is not None:
                    running.child.interrupt()

    async def _stop_all(self) -> None:
        """Interrupt all coordinators, wait until they have ended and their entries are given back; kill those that do not."""
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for running in list(self._running.values()):
            running.is_held = True
            running.ending.set()
            if running.child is not None:
                running.child.interrupt()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._settings.stop_s)
        for running in list(self._running.values()):
            if running.task in late and running.child is not None:
                running.child.kill()
        if late:
            _, late = await asyncio.wait(late, timeout=self._settings.stop_s)
        for task in late:
            task.cancel()
