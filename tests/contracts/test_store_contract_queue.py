"""What every queue promises: each entry has one dispatcher, users are treated alike, nothing is lost when one dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import select, update

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store import SqlStore
from bisect_train.store.queue import SqlQueue
from bisect_train.store.queue_contract import (
    MAX_STARTS,
    OWN_NAMES,
    LimitError,
    QueueEntry,
    QueueState,
    UserLimits,
    is_cancel_in_force,
)
from bisect_train.store.tables import dispatchers

QUEUED, RUNNING, DONE = QueueState.QUEUED, QueueState.RUNNING, QueueState.DONE
LEASE_S = 0.3
ONE_GPU = {"settings": {"gpus": 1}}


@pytest.fixture
def store(store_url: str) -> Iterator[SqlStore]:
    opened = SqlStore(store_url)
    yield opened
    opened.close()


@pytest.fixture
def queue(store: SqlStore) -> SqlQueue:
    made = store.queue()
    for name in ("ann", "bob"):
        made.add_user(name)
    return made


@pytest.fixture
def ask(store: SqlStore, queue: SqlQueue) -> Callable[..., str]:
    def submit(user: str, *, priority: int = 0) -> str:
        new = store.create(ONE_GPU, title=user)
        queue.submit(new, user, priority=priority)
        return new

    return submit


@pytest.fixture
def me(queue: SqlQueue) -> Iterator[str]:
    with queue.join() as dispatcher:
        yield dispatcher


def save(store: SqlStore, bisection_id: str, key: str, wall_s: float) -> None:
    result = ProbeResult(key, Fingerprint(Ending(EndingKind.STOPPED)), wall_s=wall_s)
    store.save_result(bisection_id, key, result, spec={})


def claimed(queue: SqlQueue, dispatcher: str) -> list[str]:
    """Return what is claimed one after the other until nothing is due."""
    found: list[str] = []
    while (entry := queue.claim(dispatcher)) is not None:
        found.append(entry.bisection_id)
    return found


def state_of(queue: SqlQueue, bisection_id: str) -> QueueState:
    entry = queue.entry(bisection_id)
    assert entry is not None
    return entry.state


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


# ---- users --------------------------------------------------------------------------------------------------------


def test_token_is_known_until_it_is_renewed_or_revoked(queue: SqlQueue, store: SqlStore) -> None:
    limits = UserLimits(1, 2, 3, 4.5)
    token = queue.add_user("cy@site.org", is_admin=True, limits=limits)
    found = queue.user_of_token(token)
    assert found is not None and (found.name, found.is_admin, found.limits) == ("cy@site.org", True, limits)
    renewed = queue.renew_token("cy@site.org")
    assert queue.user_of_token(token) is None and queue.user_of_token(renewed) == found
    queue.revoke_token("cy@site.org")
    assert queue.user_of_token(renewed) is None and not queue.user("cy@site.org").has_token
    assert [user.name for user in queue.users()] == ["ann", "bob", "cy@site.org"]
    for nobody in ("", "x", token + "x", "bt_\ud800\0", "'; --"):
        assert queue.user_of_token(nobody) is None


def test_database_holds_no_token(queue: SqlQueue, store: SqlStore) -> None:
    token = queue.add_user("cy")
    with store._database.read() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM users").all()
    assert len(rows) == 3 and not any(token in str(row) for row in rows)


def test_token_made_elsewhere_is_taken_if_it_is_long_and_nobodys(queue: SqlQueue) -> None:
    token = "0123456789abcdef0123456789abcdef"
    assert queue.add_user("cy", token=token) == token
    assert queue.user_of_token(token) == queue.user("cy")
    for bad in ("short", "x" * 31, "a" * 40, "0123456789 abcdef 0123456789abcdef", "é" * 40, "x" * 2000, ""):
        with pytest.raises(InputError, match="a token needs") as caught:
            queue.add_user("dan", token=bad)
        assert not bad or bad not in str(caught.value)
    with pytest.raises(InputError, match="another user's"):
        queue.add_user("dan", token=token)


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "a/b", "é", "a\n", "../x", "<b>"])
def test_name_that_is_none_is_refused(queue: SqlQueue, name: str) -> None:
    with pytest.raises(InputError, match="no name for a user"):
        queue.add_user(name)


@pytest.mark.parametrize("name", OWN_NAMES)
def test_name_of_the_services_own_gets_no_token(queue: SqlQueue, name: str) -> None:
    with pytest.raises(InputError, match="gets no token"):
        queue.add_user(name, is_admin=True)
    queue.ensure_own_user(name)
    queue.ensure_own_user(name)
    with pytest.raises(InputError, match="gets no token"):
        queue.renew_token(name)
    assert queue.user(name).is_admin and not queue.user(name).has_token
    with pytest.raises(ValueError, match="no user of the service itself"):
        queue.ensure_own_user("eve")


def test_user_is_changed_and_a_name_is_taken_once(queue: SqlQueue) -> None:
    assert queue.set_user("ann", is_admin=True).is_admin
    assert queue.set_user("ann", limits=UserLimits(max_queued=7)) == queue.user("ann")
    assert queue.user("ann").is_admin and queue.user("ann").limits == UserLimits(max_queued=7)
    with pytest.raises(InputError, match="there is a user 'ann'"):
        queue.add_user("ann")
    with pytest.raises(InputError, match="max_running is -1"):
        queue.set_user("ann", limits=UserLimits(max_running=-1))
    calls: list[Callable[[], object]] = [
        lambda: queue.user("eve"),
        lambda: queue.set_user("eve"),
        lambda: queue.renew_token("eve"),
        lambda: queue.usage("eve"),
        lambda: queue.allowance("eve"),
    ]
    for call in calls:
        with pytest.raises(InputError, match="no user 'eve'"):
            call()


# ---- entries ------------------------------------------------------------------------------------------------------


def test_submitted_entry_waits_runs_and_ends(store: SqlStore, queue: SqlQueue, me: str) -> None:
    new = store.create({}, title="")
    assert queue.entry(new) is None and queue.claim(me) is None
    entry = queue.submit(new, "ann", priority=3)
    assert (entry.user, entry.state, entry.priority, entry.num_starts, entry.dispatcher) == ("ann", QUEUED, 3, 0, "")
    assert abs(entry.submitted_s - time.time()) < 60 and entry.started_s is entry.ended_s is None
    running = queue.claim(me)
    assert running is not None and running == queue.entry(new)
    assert (running.bisection_id, running.state, running.num_starts) == (new, RUNNING, 1)
    assert running.dispatcher and running.started_s is not None and running.started_s >= entry.submitted_s
    assert queue.claim(me) is None
    queue.finish(me, new, QueueState.FAILED, reason="no disk")
    ended = queue.entry(new)
    assert ended is not None and (ended.state, ended.reason, ended.dispatcher) == (QueueState.FAILED, "no disk", "")
    assert ended.ended_s is not None and ended.state.is_over


def test_bisection_is_submitted_once_until_it_is_over(
    store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]
) -> None:
    new = ask("ann")
    with pytest.raises(InputError, match="is queued already"):
        queue.submit(new, "ann")
    queue.claim(me)
    with pytest.raises(InputError, match="is running already"):
        queue.submit(new, "ann")
    queue.finish(me, new, DONE)
    with pytest.raises(InputError, match="another user's"):
        queue.submit(new, "bob")
    assert queue.submit(new, "ann").state is QUEUED
    for unknown, user in (("00000000", "ann"), (new, "eve")):
        with pytest.raises(InputError, match="there is no"):
            queue.submit(unknown, user)


def test_part_of_a_bisection_is_not_submitted(store: SqlStore, queue: SqlQueue) -> None:
    whole = store.create({}, title="")
    part = store.create({"part_of": whole}, title="")
    inner = store.create({"part_of": part}, title="")
    for name in (part, inner):
        with pytest.raises(InputError, match=f"is a part of {whole}"):
            queue.submit(name, "ann")


def test_entries_come_in_pages_the_last_submitted_first(queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    ids = [ask(user) for user in ("ann", "bob", "ann", "bob", "ann")][::-1]
    seen: list[QueueEntry] = []
    while page := queue.entries(limit=2, before=seen[-1].bisection_id if seen else None):
        seen += page
    assert [entry.bisection_id for entry in seen] == ids
    assert [entry.bisection_id for entry in queue.entries(user="bob")] == [ids[1], ids[3]]
    running = queue.claim(me)
    assert queue.entries(states=[RUNNING]) == (running,)
    assert len(queue.entries(states=[QUEUED, DONE])) == 4
    with pytest.raises(InputError, match="never submitted"):
        queue.entries(before="00000000")


def test_cancelled_before_it_runs_it_never_does(store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    new = ask("ann")
    assert queue.cancel(new, reason="by ann").state is QueueState.CANCELLED
    assert queue.claim(me) is None
    assert store.load(new).status == "cancelled"
    with pytest.raises(InputError, match="is cancelled already"):
        queue.cancel(new)
    with pytest.raises(InputError, match="never submitted"):
        queue.cancel("00000000")


def test_cancelled_while_it_runs_its_coordinator_is_asked(
    store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]
) -> None:
    new = ask("ann")
    queue.claim(me)
    store.append(new, "started", {})
    assert queue.cancel(new).state is RUNNING
    assert store.cancel_requested(new)
    queue.finish(me, new, QueueState.CANCELLED)
    assert state_of(queue, new) is QueueState.CANCELLED


@pytest.mark.parametrize("ending", ["interrupted", "cancelled"])
def test_cancel_is_taken_back_by_submitting_again(store: SqlStore, queue: SqlQueue, me: str, ending: str) -> None:
    new = store.create({}, title="")
    store.append(new, "started", {})
    store.request_cancel(new)
    store.append(new, ending, {})
    kinds = [event.kind for event in store.events(new)]
    assert is_cancel_in_force(kinds)
    queue.submit(new, "ann")
    queue.claim(me)
    assert [event.kind for event in store.events(new)] == [*kinds, "cancel_withdrawn"]
    store.append(new, "started", {})
    queue.cancel(new, reason="by ann")
    queue.finish(me, new, QUEUED)
    assert is_cancel_in_force([event.kind for event in store.events(new)]), "given back is not submitted again"


@pytest.mark.parametrize(
    ("kinds", "is_pending"),
    [
        ([], False), (["started"], False), (["cancel_requested"], True), (["started", "cancel_requested", "interrupted"], True),
        (["cancel_requested", "interrupted", "started"], True), (["cancel_requested", "cancelled"], True),
        (["cancelled", "cancel_withdrawn", "started"], False),
        (["cancel_requested", "finished"], False), (["cancel_requested", "cancel_withdrawn", "started"], False),
        (["cancelled", "cancel_withdrawn", "started", "cancel_requested"], True),
    ],
)  # fmt: skip
def test_cancel_holds_until_it_is_done_or_taken_back(kinds: list[str], is_pending: bool) -> None:
    assert is_cancel_in_force(kinds) is is_pending


def test_bisection_that_was_answered_at_once_is_its_users_and_counts_as_one_probe(
    store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]
) -> None:
    queue.set_user("ann", limits=UserLimits(max_queued=1, max_probes_per_day=1))
    first, second, third = (store.create({}, title="") for _ in range(3))
    known = store.last_update()
    entry = queue.note_answered(first, "ann")
    assert (entry.user, entry.state, entry.num_starts) == ("ann", DONE, 0) and entry.ended_s == entry.submitted_s
    assert [item.bisection_id for item in store.updates(known)] == [first]
    assert queue.usage("ann").num_probes == 1 and queue.claim(me) is None
    with pytest.raises(LimitError, match="nothing left today"):
        queue.note_answered(second, "ann")
    with pytest.raises(InputError, match="was submitted already"):
        queue.note_answered(first, "bob")
    queue.set_user("ann", limits=UserLimits(max_queued=1))
    ask("ann")
    with pytest.raises(LimitError, match="ann has 1 in the queue"):
        queue.note_answered(third, "ann")
    assert queue.entry(third) is None and queue.usage("ann").num_probes == 1


def test_each_step_in_the_queue_is_an_update(store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    new = store.create({}, title="")
    steps: list[Callable[[], object]] = [
        lambda: queue.submit(new, "ann"),
        lambda: queue.claim(me),
        lambda: queue.finish(me, new, QUEUED),
        lambda: queue.cancel(new),
    ]
    for step in steps:
        known = store.last_update()
        step()
        assert [item.bisection_id for item in store.updates(known)] == [new]


# ---- whose turn ---------------------------------------------------------------------------------------------------


def test_users_take_turns_whoever_submits_more(queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    many = [ask("ann") for _ in range(3)]
    few = [ask("bob") for _ in range(2)]
    assert claimed(queue, me) == [many[0], few[0], many[1], few[1], many[2]]


def test_fewest_running_then_least_gpu_time_then_fewest_probes_then_oldest(
    store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]
) -> None:
    queue.add_user("cy")
    spent = [ask("ann"), ask("bob"), ask("cy")]
    for name in claimed(queue, me):
        queue.finish(me, name, DONE)
    save(store, spent[0], "a1", 100.0)
    store.append(spent[1], "probe_lost", {"key": "x", "wall_s": 40.0})  # GPU time, but no probe
    save(store, spent[1], "b1", 60.0)
    save(store, spent[1], "b2", 0.0)
    save(store, spent[2], "c1", 99.0)
    waiting = {name: ask(name) for name in ("bob", "ann", "cy")}
    assert claimed(queue, me) == [waiting["cy"], waiting["ann"], waiting["bob"]]
    again = [ask("ann"), ask("cy"), ask("bob")]
    queue.finish(me, waiting["bob"], DONE)
    assert claimed(queue, me)[0] == again[2]


def test_priority_orders_the_entries_of_one_user_only(queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    low, high, other = ask("ann"), ask("ann", priority=5), ask("bob", priority=-1)
    assert claimed(queue, me) == [high, other, low]


def test_limit_of_waiting_entries_refuses_more(store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    queue.set_user("ann", limits=UserLimits(max_queued=2))
    ask("ann"), ask("ann")
    with pytest.raises(LimitError, match="ann has 2 in the queue"):
        ask("ann")
    queue.claim(me)
    ask("ann")
    ask("bob")


def test_what_follows_from_another_one_waits_beyond_the_limit(
    store: SqlStore, queue: SqlQueue, ask: Callable[..., str]
) -> None:
    queue.set_user("ann", limits=UserLimits(max_queued=1))
    ask("ann")
    assert queue.submit(store.create({}, title=""), "ann", is_limited=False).state is QUEUED


def test_limit_of_running_entries_lets_more_wait(queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    queue.set_user("ann", limits=UserLimits(max_running=1))
    first, second, other = ask("ann"), ask("ann"), ask("bob")
    assert claimed(queue, me) == [first, other]
    queue.finish(me, first, DONE)
    assert claimed(queue, me) == [second]


@pytest.mark.parametrize("limits", [UserLimits(max_probes_per_day=2), UserLimits(max_gpu_hours_per_day=0.05)])
def test_spent_day_lets_entries_wait_until_the_limit_is_raised(
    store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str], limits: UserLimits
) -> None:
    queue.set_user("ann", limits=limits)
    first, second = ask("ann"), ask("ann")
    assert queue.claim(me) is not None
    save(store, first, "a", 90.0)
    assert not queue.allowance("ann").is_spent
    part = store.create({"part_of": first, **ONE_GPU}, title="")
    save(store, part, "b", 90.0)
    assert queue.allowance("ann").is_spent
    assert queue.claim(me) is None
    queue.set_user("ann", limits=UserLimits())
    assert claimed(queue, me) == [second]


# ---- usage --------------------------------------------------------------------------------------------------------


def test_usage_counts_own_probes_and_those_of_parts_by_day(store_url: str) -> None:
    day_s, now_s = 86_400.0, [20_000 * 86_400.0 + 100]
    store = SqlStore(store_url, clock=lambda: now_s[0])
    queue = store.queue()
    queue.add_user("ann"), queue.add_user("bob")
    whole, other = store.create(ONE_GPU, title=""), store.create({"settings": {"gpus": 2}}, title="")
    part = store.create({"part_of": whole, **ONE_GPU}, title="")
    inner = store.create({"part_of": part, **ONE_GPU}, title="")
    queue.submit(whole, "ann"), queue.submit(other, "bob")
    save(store, whole, "a", 10.0)
    save(store, inner, "b", 20.0)
    store.reuse_result(part, "a", {})
    save(store, whole, "a", 99.0)
    store.append(part, "probe_cancelled", {"key": "c", "wall_s": 5.0})
    now_s[0] += day_s
    save(store, other, "d", 7.0)
    save(store, whole, "e", 1.0)
    ann, bob = queue.usages(since_s=0.0)
    assert (ann.user, ann.num_queued, ann.num_running, ann.num_probes, ann.gpu_s) == ("ann", 1, 0, 3, 36.0)
    assert (bob.num_probes, bob.gpu_s) == (1, 14.0)
    assert queue.usage("ann", since_s=now_s[0]).num_probes == 1
    days = [(item.day, item.user, item.num_probes, item.gpu_s) for item in queue.daily_usage(since_s=0.0)]
    assert days == [("2024-10-05", "ann", 1, 1.0), ("2024-10-05", "bob", 1, 14.0), ("2024-10-04", "ann", 2, 35.0)]
    assert [item.user for item in queue.daily_usage(since_s=0.0, user="bob")] == ["bob"]
    assert queue.usage("ann").num_probes == 0, "years ago by the database's clock"
    store.close()


def test_allowance_is_what_the_limits_leave(store: SqlStore, queue: SqlQueue, ask: Callable[..., str]) -> None:
    queue.set_user("ann", limits=UserLimits(max_probes_per_day=3, max_gpu_hours_per_day=1.0))
    save(store, ask("ann"), "a", 900.0)
    left = queue.allowance("ann")
    assert (left.num_probes, left.gpu_hours, left.is_spent) == (2, 0.75, False)
    free = queue.allowance("bob")
    assert (free.num_probes, free.gpu_hours, free.is_spent) == (None, None, False)


# ---- dispatchers --------------------------------------------------------------------------------------------------


def test_dispatchers_at_once_never_get_the_same_entry_nor_more_than_a_limit(
    store_url: str, queue: SqlQueue, ask: Callable[..., str]
) -> None:
    queue.set_user("ann", limits=UserLimits(max_running=2))
    ids = [ask("ann") for _ in range(4)] + [ask("bob") for _ in range(8)]
    got: list[str] = []

    def work() -> None:
        own = SqlStore(store_url)
        with own.queue().join() as dispatcher:
            start.wait()
            for _ in range(8):  # a dispatcher passes by users that another one looks at just then
                got.extend(claimed(own.queue(), dispatcher))
            stop.wait()
        own.close()

    start, stop = threading.Barrier(4), threading.Barrier(5)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(queue.entries(states=[RUNNING])) == 10)
    assert queue.usage("ann").num_running == 2
    stop.wait()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 10 and set(got) < set(ids)
    assert {entry.state for entry in queue.entries()} == {QUEUED}, "who leaves gives back what it has"
    assert {entry.num_starts for entry in queue.entries()} == {0}


def test_entry_of_a_dead_dispatcher_goes_back(
    queue: SqlQueue, me: str, ask: Callable[..., str], die_claiming: Callable[[], str]
) -> None:
    new = ask("ann")
    dead = die_claiming()
    again = queue.claim(me)
    assert again is not None and (again.bisection_id, again.num_starts) == (new, 2)
    assert queue.recover() == ()
    with pytest.raises(MachineError, match="not run by this dispatcher"):
        queue.finish(dead, new, DONE)
    with pytest.raises(MachineError, match="counts as dead"):
        queue.claim(dead)
    queue.finish(me, new, DONE)


def test_dispatcher_that_slept_past_its_time_and_was_not_replaced_goes_on(
    queue: SqlQueue, store: SqlStore, ask: Callable[..., str]
) -> None:
    first, second = ask("ann"), ask("bob")
    with queue.join(lease_s=3600) as me:
        assert queue.claim(me) is not None
        with store._database.write() as connection:  # as after a suspended machine, or a clock that was set
            connection.execute(update(dispatchers).where(dispatchers.c.id == me).values(until_s=0.0))
        again = queue.claim(me)
        assert again is not None and again.bisection_id == second
        entry = queue.entry(first)
        assert entry is not None and (entry.state, entry.num_starts) == (RUNNING, 1)
        assert queue.recover() == ()


@pytest.fixture
def die_claiming(store: SqlStore, queue: SqlQueue) -> Iterator[Callable[[], str]]:
    """Claim with a dispatcher that is not heard of any more; returns its id."""
    with ExitStack() as stack:

        def die() -> str:
            dispatcher = stack.enter_context(queue.join(lease_s=3600))
            assert queue.claim(dispatcher) is not None
            with store._database.write() as connection:
                connection.exec_driver_sql(f"UPDATE dispatchers SET until_s = 1 WHERE id = '{dispatcher}'")
            return dispatcher

        yield die


def test_entry_that_kills_its_dispatchers_fails_in_the_end(
    queue: SqlQueue, me: str, ask: Callable[..., str], die_claiming: Callable[[], str]
) -> None:
    new = ask("ann")
    for _ in range(MAX_STARTS):
        assert state_of(queue, new) is QUEUED
        die_claiming()
        assert queue.recover() == (new,)
    entry = queue.entry(new)
    assert entry is not None and entry.state is QueueState.FAILED
    assert entry.reason == f"its dispatcher died {MAX_STARTS} times"
    assert queue.claim(me) is None


def test_dispatcher_that_lives_keeps_its_entry(store: SqlStore, queue: SqlQueue, ask: Callable[..., str]) -> None:
    def end_of_life() -> float:
        with store._database.read() as connection:
            return float(connection.scalar(select(dispatchers.c.until_s)) or 0.0)

    new = ask("ann")
    with queue.join(lease_s=LEASE_S) as dispatcher:
        assert queue.claim(dispatcher) is not None
        first_s = end_of_life()
        wait_until(lambda: end_of_life() > first_s + 3 * LEASE_S)
        queue.finish(dispatcher, new, DONE)
    assert state_of(queue, new) is DONE


def test_bisection_that_a_coordinator_still_has_is_passed_by(
    store: SqlStore, queue: SqlQueue, me: str, ask: Callable[..., str]
) -> None:
    first, second = ask("ann"), ask("ann")
    with store.lock(first):
        assert claimed(queue, me) == [second]
    assert claimed(queue, me) == [first]


def test_queue_survives_a_restart(store_url: str, store: SqlStore, queue: SqlQueue, ask: Callable[..., str]) -> None:
    ids = [ask("ann"), ask("bob")]
    before = queue.entries()
    store.close()
    again = SqlStore(store_url)
    assert again.queue().entries() == before
    with again.queue().join() as dispatcher:
        assert claimed(again.queue(), dispatcher) == ids
    again.close()


def test_finish_as_running_is_a_mistake(queue: SqlQueue, me: str, ask: Callable[..., str]) -> None:
    new = ask("ann")
    queue.claim(me)
    with pytest.raises(ValueError, match="got running"):
        queue.finish(me, new, RUNNING)
