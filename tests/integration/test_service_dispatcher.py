"""The queue at work with stand-ins for coordinators, real processes: fair, bounded, mended, ended in good order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select, update

from bisect_train.core.errors import MachineError
from bisect_train.service.cluster import Cluster, RayPlace
from bisect_train.service.dispatcher import Dispatcher
from bisect_train.service.settings import Settings
from bisect_train.store.address import STORE_VARIABLE
from bisect_train.store.home import HOME_VARIABLE
from bisect_train.store.queue_contract import QueueState, UserLimits
from bisect_train.store.tables import leases
from tests.postgres import PostgresServer
from tests.support.service import ServiceLab, service_lab, small_repo

Check = Callable[[], bool]


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_repo(tmp_path_factory.mktemp("dispatch") / "repo").path


@pytest.fixture
def lab(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceLab]:
    monkeypatch.setattr("bisect_train.service.dispatcher.PAUSE_S", 0.1)
    with service_lab(tmp_path / "home", repo, max_running=2, lease_s=2.0, stop_s=10.0) as made:
        made.backend.queue.add_user("anna")
        made.backend.queue.add_user("ben")
        yield made


class NoRay(Cluster):
    """Where no Ray is needed, or none starts."""

    def __init__(self, settings: Settings, problem: str = "") -> None:
        super().__init__(settings)
        self.trouble = problem

    async def place(self) -> RayPlace:
        if self.trouble:
            raise MachineError(self.trouble)
        return RayPlace("nowhere", {"RAY_AUTH_TOKEN": "t"})


def dispatcher_of(lab: ServiceLab, plans: dict[str, dict[str, Any]], *, trouble: str = "", **more: Any) -> Dispatcher:
    def command_of(bisection_id: str, address: str) -> list[str]:
        assert address == "nowhere"
        plan = plans.get(bisection_id, {"events": 2})
        return [sys.executable, "-m", "tests.support.fake_coordinator", bisection_id, json.dumps(plan)]

    return Dispatcher(
        lab.settings,
        store=lab.store,
        queue=lab.backend.queue,
        board=lab.board,
        cluster=NoRay(lab.settings, trouble),
        command_of=command_of,
        env={**os.environ, HOME_VARIABLE: str(lab.settings.home)},
        **more,
    )


def put(lab: ServiceLab, user: str = "anna", **more: Any) -> str:
    question = {"kind": "run", "repo": str(lab.settings.repositories[0][1]), "settings": {"gpus": 0.0}, **more}
    name = lab.store.create(question, title="queued")
    lab.backend.queue.submit(name, user)
    return name


async def until(check: Check, *, limit_s: float = 60.0) -> None:
    async def wait() -> None:
        while not await asyncio.to_thread(check):
            await asyncio.sleep(0.03)

    await asyncio.wait_for(wait(), limit_s)


def work(dispatcher: Dispatcher, body: Callable[[], Awaitable[None]]) -> None:
    """Let a dispatcher work while `body` runs."""

    async def both() -> None:
        async with dispatcher.running():
            await body()

    asyncio.run(both())


def is_over(lab: ServiceLab, *names: str) -> Check:
    def check() -> bool:
        return all(entry is not None and entry.state.is_over for entry in map(lab.backend.queue.entry, names))

    return check


def state_of(lab: ServiceLab, name: str) -> QueueState:
    entry = lab.backend.queue.entry(name)
    assert entry is not None
    return entry.state


def runs_of(lab: ServiceLab) -> list[tuple[str, int]]:
    lines = (lab.settings.home / "runs.txt").read_text().splitlines()
    return [(line.split()[0], int(line.split()[1])) for line in lines]


def kinds(lab: ServiceLab, name: str) -> list[str]:
    return [event.kind for event in lab.store.events(name)]


def test_everything_that_waits_is_run_once_two_at_a_time_users_in_turn(lab: ServiceLab) -> None:
    names = [put(lab, "anna") for _ in range(3)] + [put(lab, "ben")]
    plans = {name: {"events": 3, "pause_s": 0.05} for name in names}
    dispatcher = dispatcher_of(lab, plans)
    most = 0

    def check() -> bool:
        nonlocal most
        most = max(most, sum(state_of(lab, name) is QueueState.RUNNING for name in names))
        return is_over(lab, *names)()

    async def body() -> None:
        await until(check)

    work(dispatcher, body)
    assert [state_of(lab, name) for name in names] == [QueueState.DONE] * 4
    started = [name for name, _ in runs_of(lab)]
    assert sorted(started) == sorted(names) and set(started[:2]) == {names[0], names[3]}, "ben does not wait for all of anna's"
    assert most == 2
    assert all(kinds(lab, name) == ["started", "noted", "noted", "noted", "finished"] for name in names)
    shares = {event.data["share"] for name in names for event in lab.store.events(name) if event.kind == "noted"}
    assert shares <= {1, 2} and 2 in shares
    assert all(lab.board.runs(name) is None for name in names)


def test_coordinator_that_dies_is_started_again_and_goes_on(lab: ServiceLab) -> None:
    killed, broken = put(lab), put(lab)
    dispatcher = dispatcher_of(lab, {killed: {"events": 4, "die": -9, "tries": 1}, broken: {"events": 4, "die": 1, "tries": 2}})

    async def body() -> None:
        await until(is_over(lab, killed, broken))

    work(dispatcher, body)
    for name, num_starts in ((killed, 2), (broken, 3)):
        assert state_of(lab, name) is QueueState.DONE
        assert kinds(lab, name).count("started") == num_starts and kinds(lab, name).count("noted") == 4


@pytest.fixture
def leased_lab(tmp_path: Path, repo: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceLab]:
    """Where coordinators hold leases: one that was killed has its bisection for a while."""
    monkeypatch.setattr("bisect_train.service.dispatcher.PAUSE_S", 0.1)
    monkeypatch.setenv(STORE_VARIABLE, postgres.new_database())
    with service_lab(tmp_path / "home", repo, max_running=1, lease_s=30.0, stop_s=10.0) as made:
        made.backend.queue.add_user("anna")
        yield made


def end_leases(lab: ServiceLab) -> None:
    with lab.store._database.write() as connection:
        connection.execute(update(leases).values(until_s=0.0))


def test_coordinator_that_was_killed_is_started_again_once_its_lease_is_over(leased_lab: ServiceLab) -> None:
    lab, name = leased_lab, put(leased_lab)
    dispatcher = dispatcher_of(lab, {name: {"events": 4, "die": -9, "tries": 1}})

    async def body() -> None:
        await until(lambda: kinds(lab, name).count("noted") == 2 and not psutil.pid_exists(runs_of(lab)[0][1]))
        await asyncio.sleep(1.5)
        assert state_of(lab, name) is QueueState.RUNNING and len(runs_of(lab)) == 1, "it waits"
        await asyncio.to_thread(end_leases, lab)
        await until(is_over(lab, name))

    work(dispatcher, body)
    assert state_of(lab, name) is QueueState.DONE and kinds(lab, name).count("noted") == 4


def test_cancel_of_one_whose_coordinator_was_killed_is_noted_once_its_lease_is_over(leased_lab: ServiceLab) -> None:
    lab, name = leased_lab, put(leased_lab)
    dispatcher = dispatcher_of(lab, {name: {"events": 1000, "pause_s": 0.1}})

    async def body() -> None:
        await until(lambda: "noted" in kinds(lab, name))
        os.kill(runs_of(lab)[0][1], signal.SIGKILL)
        await asyncio.to_thread(lab.backend.queue.cancel, name, reason="by anna")
        await asyncio.sleep(1.5)
        assert state_of(lab, name) is QueueState.RUNNING
        await asyncio.to_thread(end_leases, lab)
        await until(is_over(lab, name))

    work(dispatcher, body)
    entry = lab.backend.queue.entry(name)
    assert entry is not None and (entry.state, entry.reason) == (QueueState.CANCELLED, "by anna")
    assert lab.store.load(name).status == "cancelled" and len(runs_of(lab)) == 1


def test_service_that_ends_waits_for_no_lease(leased_lab: ServiceLab) -> None:
    lab, name = leased_lab, put(leased_lab)
    dispatcher = dispatcher_of(lab, {name: {"events": 4, "die": -9}})

    async def body() -> None:
        await until(lambda: kinds(lab, name).count("noted") == 2 and not psutil.pid_exists(runs_of(lab)[0][1]))
        await asyncio.to_thread(lab.backend.queue.cancel, name, reason="by anna")

    work(dispatcher, body)
    assert state_of(lab, name) is QueueState.QUEUED and len(runs_of(lab)) == 1
    with lab.store._database.read() as connection:
        assert connection.scalar(select(leases.c.bisection_id)) == name, "the lease is there to this moment"


def test_coordinator_that_dies_again_and_again_fails_with_its_reason(lab: ServiceLab) -> None:
    hopeless, refused = put(lab), put(lab)
    dispatcher = dispatcher_of(lab, {hopeless: {"events": 2, "die": 1}, refused: {"events": 2, "die": 2}})

    async def body() -> None:
        await until(is_over(lab, hopeless, refused))

    work(dispatcher, body)
    for name, num_tries in ((hopeless, 3), (refused, 1)):
        entry = lab.backend.queue.entry(name)
        assert entry is not None and (entry.state, entry.reason) == (QueueState.FAILED, "it cannot go on")
        assert sum(started == name for started, _ in runs_of(lab)) == num_tries, "bad input is not tried again"
    assert lab.get(f"/bisections/{hopeless}/live", headers=admin(lab)) == {"runs": None}


def admin(lab: ServiceLab) -> dict[str, str]:
    names = {user.name for user in lab.backend.queue.users()}
    token = lab.backend.queue.renew_token("root") if "root" in names else lab.backend.queue.add_user("root", is_admin=True)
    return {"Authorization": f"Bearer {token}"}


def test_ray_that_does_not_start_is_told_and_fails_what_was_asked(lab: ServiceLab) -> None:
    name = put(lab)
    dispatcher = dispatcher_of(lab, {}, trouble="Ray could not be started")

    async def body() -> None:
        await until(is_over(lab, name))

    work(dispatcher, body)
    entry = lab.backend.queue.entry(name)
    assert entry is not None and (entry.state, entry.reason) == (QueueState.FAILED, "Ray could not be started")


def test_running_one_is_cancelled_and_the_next_one_starts(lab: ServiceLab) -> None:
    long, other, waiting = put(lab), put(lab), put(lab)
    plan = {"events": 10_000, "pause_s": 0.05}
    dispatcher = dispatcher_of(lab, {long: plan, other: plan})

    async def body() -> None:
        await until(lambda: "noted" in kinds(lab, long) and "noted" in kinds(lab, other))
        assert state_of(lab, waiting) is QueueState.QUEUED
        await asyncio.to_thread(lab.backend.queue.cancel, long, reason="by anna")
        dispatcher.wake()
        await until(is_over(lab, long, waiting))

    work(dispatcher, body)
    entry = lab.backend.queue.entry(long)
    assert entry is not None and (entry.state, entry.reason) == (QueueState.CANCELLED, "by anna")
    assert lab.store.load(long).status == "cancelled" and state_of(lab, waiting) is QueueState.DONE
    assert state_of(lab, other) is QueueState.QUEUED and kinds(lab, other)[-1] == "interrupted", "it goes on some other day"


def test_service_that_ends_gives_everything_back_and_the_next_one_goes_on(lab: ServiceLab) -> None:
    name = put(lab)
    dispatcher = dispatcher_of(lab, {name: {"events": 6, "pause_s": 0.3}})

    async def begin() -> None:
        await until(lambda: kinds(lab, name).count("noted") >= 2)

    work(dispatcher, begin)
    assert state_of(lab, name) is QueueState.QUEUED and kinds(lab, name)[-1] == "interrupted"
    assert not any(psutil.pid_exists(pid) for _, pid in runs_of(lab))
    num_before = kinds(lab, name).count("noted")

    async def end() -> None:
        await until(is_over(lab, name))

    work(dispatcher_of(lab, {name: {"events": 6}}), end)
    assert state_of(lab, name) is QueueState.DONE and 2 <= num_before < 6
    assert kinds(lab, name).count("noted") == 6


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["started"], ["interrupted"]),  # a coordinator whose service is gone stops by itself
        (["started"], []),
        ([], ["started", "interrupted"]),
        (["started"], ["cancelled"]),  # it has obeyed, and nobody was there to note that in the queue
    ],
)
def test_cancel_right_before_the_service_was_killed_is_obeyed_by_the_next_one(
    lab: ServiceLab, before: list[str], after: list[str]
) -> None:
    name, queue = put(lab), lab.backend.queue
    with queue.join() as dead:
        assert queue.claim(dead) is not None
        for kind in before:
            lab.store.append(name, kind, {})
        assert queue.cancel(name, reason="by anna").state is QueueState.RUNNING
        for kind in after:
            lab.store.append(name, kind, {})

    async def body() -> None:
        await until(is_over(lab, name))

    work(dispatcher_of(lab, {}), body)
    entry = queue.entry(name)
    assert entry is not None and (entry.state, entry.reason) == (QueueState.CANCELLED, "by anna")
    assert lab.store.load(name).status == "cancelled" and not (lab.settings.home / "runs.txt").exists()


def test_what_follows_is_asked_before_the_entry_is_over(lab: ServiceLab) -> None:
    name, seen = put(lab), []

    def follow(bisection_id: str) -> None:
        seen.append((bisection_id, state_of(lab, bisection_id)))
        if len(seen) == 1:
            raise MachineError("the repository is gone")

    dispatcher = dispatcher_of(lab, {}, follow=follow)

    async def body() -> None:
        await until(is_over(lab, name))

    work(dispatcher, body)
    assert seen == [(name, QueueState.RUNNING)] and state_of(lab, name) is QueueState.DONE


def test_bisection_with_an_answer_that_is_asked_to_go_on_is_run_again(lab: ServiceLab) -> None:
    name = put(lab)
    lab.store.append(name, "started", {})
    lab.store.append(name, "finished", {"answer": {"status": "budget"}, "exit_status": 3})

    async def body() -> None:
        await until(is_over(lab, name))

    work(dispatcher_of(lab, {}), body)
    assert state_of(lab, name) is QueueState.DONE
    assert kinds(lab, name) == ["started", "finished", "started", "noted", "noted", "finished"]


def test_user_whose_day_is_spent_waits(lab: ServiceLab) -> None:
    queue = lab.backend.queue
    queue.add_user("carl", limits=UserLimits(max_probes_per_day=0))
    name, other = put(lab, "carl"), put(lab, "ben")

    async def body() -> None:
        await until(is_over(lab, other))

    work(dispatcher_of(lab, {}), body)
    assert state_of(lab, name) is QueueState.QUEUED and kinds(lab, name) == []


def test_limit_that_is_reached_while_it_runs_interrupts_it(lab: ServiceLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisect_train.service.dispatcher.LIMITS_S", 0.1)
    queue = lab.backend.queue
    name = put(lab, "ben")
    dispatcher = dispatcher_of(lab, {name: {"events": 10_000, "pause_s": 0.05}})

    async def body() -> None:
        await until(lambda: "noted" in kinds(lab, name))
        await asyncio.to_thread(queue.set_user, "ben", limits=UserLimits(max_gpu_hours_per_day=0.0))
        await until(lambda: state_of(lab, name) is QueueState.QUEUED)

    work(dispatcher, body)
    assert kinds(lab, name)[-1] == "interrupted" and kinds(lab, name).count("started") == 1
