"""No bisection has two coordinators, though machines share nothing but a database: processes that are killed or stopped."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy import select

from bisect_train.coordinator import CoordinatorEvent, ProbeDone
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store import SqlStore
from bisect_train.store.address import parse_address
from bisect_train.store.contract import PROBE_FINISHED
from bisect_train.store.engine import Database
from bisect_train.store.leases import LeaseBook
from bisect_train.store.tables import bisections, leases
from tests.postgres import PostgresServer
from tests.support.simulated_bisection import Lab, drive, keys_of, kinds_of

LEASE_S = 2.0
RESULT = ProbeResult("aa", Fingerprint(Ending(EndingKind.STOPPED)))
HOLDER = """
import sys
from bisect_train.core.errors import BisectTrainError
from bisect_train.store import SqlStore, engine, rows

engine._STOPPED_MS = 1000
store = SqlStore(sys.argv[1], lease_s=float(sys.argv[3]))
try:
    with store.lock(sys.argv[2]):
        print("held", flush=True)
        for line in sys.stdin:
            try:
                if line == "begin\\n":  # in the middle of writing
                    with store._database.write() as connection:
                        rows.lock_row(connection, sys.argv[2])
                        print("begun", flush=True)
                        sys.stdin.readline()
                        rows.append_event(connection, sys.argv[2], "holder", {}, time_s=0.0)
                    print("written", flush=True)
                elif line == "cancelled?\\n":
                    print(store.cancel_requested(sys.argv[2]), flush=True)
                else:
                    print(store.append(sys.argv[2], "holder", {}), flush=True)
            except BisectTrainError as error:
                print(type(error).__name__, error.message, flush=True)
except BisectTrainError as error:
    print(type(error).__name__, error.message, flush=True)
"""
WRITER = """
import os, sys, time
from bisect_train.core.errors import InputError
from bisect_train.store import SqlStore

store, done, give_up_s = SqlStore(sys.argv[1]), 0, time.monotonic() + 60
while done < 3 and time.monotonic() < give_up_s:
    try:
        with store.lock(sys.argv[2]):
            for _ in range(3):
                store.append(sys.argv[2], "note", {"pid": os.getpid(), "turn": done})
            done += 1
    except InputError:
        time.sleep(0.01)
print(done)
"""


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    opened = SqlStore(url, lease_s=LEASE_S)
    yield opened
    opened.close()


class Holder:
    """A process that holds a bisection's lease and writes when it is told to."""

    def __init__(self, url: str, bisection_id: str) -> None:
        command = [sys.executable, "-c", HOLDER, url, bisection_id, str(LEASE_S)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.read()

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def hold(url: str) -> Iterator[Callable[[str], Holder]]:
    made: list[Holder] = []

    def start(bisection_id: str) -> Holder:
        made.append(Holder(url, bisection_id))
        assert made[-1].said == "held"
        return made[-1]

    yield start
    for holder in made:
        holder.end()


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def test_killed_holder_is_followed_when_its_lease_is_over(store: SqlStore, hold: Callable[[str], Holder]) -> None:
    new = store.create({}, title="")
    holder = hold(new)
    assert holder.ask("append") == "1"
    holder.process.kill()
    with pytest.raises(InputError, match=f"being run by process {holder.process.pid} on ") as caught, store.lock(new):
        pass
    assert "if that process is dead, try again in" in caught.value.hint and store.is_running(new)
    wait_until(lambda: not store.is_running(new))
    with store.lock(new):
        assert store.is_running(new) and store.append(new, "mine", {}) == 2
    assert not store.is_running(new)


def test_stopped_holder_writes_nothing_once_another_has_taken_over(store: SqlStore, hold: Callable[[str], Holder]) -> None:
    new = store.create({}, title="")
    holder = hold(new)
    assert holder.ask("append") == "1"
    holder.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: not store.is_running(new))
    with store.lock(new):
        assert store.append(new, "mine", {}) == 2
        holder.tell("append")
        holder.process.send_signal(signal.SIGCONT)
        assert holder.read().startswith("MachineError this process was not heard of for so long")
        assert holder.ask("cancelled?").startswith("MachineError"), "it stops even if it has nothing to write"
        assert holder.process.stdin is not None
        holder.process.stdin.close()
        assert holder.process.wait() == 0
        assert store.is_running(new), "who has lost a lease gives nothing back"
        assert store.append(new, "mine", {}) == 3
    assert [event.kind for event in store.events(new)] == ["holder", "mine", "mine"]


def test_stopped_holder_writes_nothing_even_after_the_other_is_done(store: SqlStore, hold: Callable[[str], Holder]) -> None:
    new = store.create({}, title="")
    holder = hold(new)
    holder.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: not store.is_running(new))
    with store.lock(new):
        pass
    holder.tell("append")
    holder.process.send_signal(signal.SIGCONT)
    assert holder.read().startswith("MachineError")
    assert store.events(new) == () and not store.is_running(new)


def test_holder_that_is_stopped_in_the_middle_of_writing_blocks_nobody(store: SqlStore, hold: Callable[[str], Holder]) -> None:
    new = store.create({}, title="")
    holder = hold(new)
    assert holder.ask("begin") == "begun"
    holder.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: not store.is_running(new))
    with store.lock(new):  # waits until the server has ended the transaction
        assert store.append(new, "mine", {}) == 1
        holder.tell("go on")
        holder.process.send_signal(signal.SIGCONT)
        assert "the server has closed the connection" in (said := holder.read()) or "stopped for too long" in said
        assert holder.ask("append").startswith("MachineError")
    assert [event.kind for event in store.events(new)] == ["mine"]


def test_holder_that_lives_keeps_its_lease(url: str) -> None:
    quick = SqlStore(url, lease_s=0.4)
    new = quick.create({}, title="")

    def end_of_lease() -> float:
        with quick._database.read() as connection:
            return float(connection.scalar(select(leases.c.until_s)) or 0.0)

    with quick.lock(new):
        first_s = end_of_lease()
        wait_until(lambda: end_of_lease() > first_s + 1.0)
        assert quick.append(new, "note", {}) == 1
    quick.close()


def test_anyone_may_ask_a_holder_to_stop(store: SqlStore, hold: Callable[[str], Holder]) -> None:
    new = store.create({}, title="")
    holder = hold(new)
    assert holder.ask("cancelled?") == "False"
    store.request_cancel(new)
    assert holder.ask("cancelled?") == "True"


def test_processes_that_all_want_a_bisection_have_it_in_turn(store_url: str) -> None:
    store = SqlStore(store_url)
    new = store.create({}, title="")
    command = [sys.executable, "-c", WRITER, store_url, new]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [writer.communicate()[0] for writer in writers] == ["3\n"] * 3
    turns = [(event.data["pid"], event.data["turn"]) for event in store.events(new)]
    assert len(turns) == 27
    assert all(len(set(turns[start : start + 3])) == 1 for start in range(0, 27, 3)), "nobody wrote in another's turn"
    store.close()


def test_write_of_a_lost_lease_is_refused_before_its_thread_has_noticed(url: str) -> None:
    slow, other = SqlStore(url, lease_s=3600.0), SqlStore(url)
    new = slow.create({}, title="")
    other.save_result(other.create({}, title=""), "known", RESULT, spec={})
    with slow.lock(new):
        slow.append(new, "note", {})
        with slow._database.write() as connection:
            connection.execute(leases.update().values(until_s=1.0))
        slow.append(new, "late, but nobody has taken it", {})
        with other.lock(new):
            writes: list[Callable[[], object]] = [
                lambda: slow.append(new, "note", {}),
                lambda: slow.save_result(new, "aa", RESULT, spec={}),
                lambda: slow.reuse_result(new, "known", {}),
            ]
            for write in writes:
                slow._locks._held[new].is_lost = False  # type: ignore[union-attr]
                with pytest.raises(MachineError, match="it writes no more"):
                    write()
            slow.request_cancel(new)  # which anyone may
            assert other.cancel_requested(new)
    assert [event.kind for event in slow.events(new)] == ["note", "late, but nobody has taken it", "cancel_requested"]
    slow.close()
    other.close()


def test_lease_is_refused_and_lost_by_the_row_alone(tmp_path: Path) -> None:
    """The rules hold on any database, whoever keeps the time."""
    database = Database(parse_address(f"sqlite:///{tmp_path}/x.db"))
    first, second = LeaseBook(database, lease_s=60.0), LeaseBook(database, lease_s=60.0)
    with database.write() as connection:
        connection.execute(bisections.insert().values(id="0a", created_s=0.0, title="", question="{}"))
    with pytest.raises(InputError, match="no bisection"), first.hold("0b"):
        pass
    with first.hold("0a"):
        with pytest.raises(InputError, match=f"process {os.getpid()} on"), second.hold("0a"):
            pass
        with database.write() as connection:
            first.check(connection, "0a")
            second.check(connection, "0a")  # who never had it is not judged: anyone may ask to cancel
            connection.execute(leases.update().values(until_s=1.0))
        assert not first.is_held("0a")
        with database.write() as connection:
            first.check(connection, "0a")  # late, but nobody has taken it
        with second.hold("0a"):
            with pytest.raises(MachineError, match="it writes no more"), database.write() as connection:
                first.check(connection, "0a")
            assert second.is_held("0a")
        with pytest.raises(MachineError, match="bisect-train resume 0a"):
            first.check_known("0a")
    first.check_known("0a")
    with database.read() as connection:
        assert connection.execute(select(leases)).all() == []
    database.close()


# ---- whole bisections ---------------------------------------------------------------------------------------------


def coordinate(lab: Lab, url: str, bisection_id: str, num_done: int, pipe: Connection) -> None:
    """Run a bisection; tell when so many probes are done, and go on when told to."""
    store, done = SqlStore(url, lease_s=LEASE_S), 0

    def listen(event: CoordinatorEvent) -> None:
        nonlocal done
        done += isinstance(event, ProbeDone)
        if done == num_done:
            done += 1
            pipe.send("there")
            pipe.recv()

    try:
        drive(lab, store, bisection_id=bisection_id, listener=listen)
        pipe.send("an answer")
    except MachineError as error:
        pipe.send(error.message)


@pytest.fixture
def start(url: str, store: SqlStore, tmp_path: Path) -> Iterator[Callable[[], tuple[Lab, str, int, Connection]]]:
    """Start a coordinator in a process of its own; returns once it is in the middle."""
    context, made = multiprocessing.get_context("spawn"), list[multiprocessing.process.BaseProcess]()

    def begin() -> tuple[Lab, str, int, Connection]:
        lab = Lab.build(tmp_path)
        name = store.create(lab.question().to_json(), title="simulated")
        ours, theirs = context.Pipe()
        process = context.Process(target=coordinate, args=(lab, url, name, 15, theirs))
        process.start()
        made.append(process)
        assert ours.poll(100) and ours.recv() == "there"
        assert process.pid is not None
        return lab, name, process.pid, ours

    yield begin
    for process in made:
        process.kill()
        process.join()


def test_killed_coordinator_is_followed_by_another_and_no_probe_runs_twice(
    store: SqlStore, start: Callable[[], tuple[Lab, str, int, Connection]]
) -> None:
    lab, name, pid, _ = start()
    os.kill(pid, signal.SIGKILL)
    finished = set(keys_of(store, name, PROBE_FINISHED))
    wait_until(lambda: not store.is_running(name))
    _, ended = drive(lab, store, bisection_id=name)
    assert ended.answer.status == "isolated"
    assert ended.answer.culprits[0].changes == (lab.culprit - 1,)
    assert len(finished) >= 10 and lab.ran and finished.isdisjoint(lab.ran)
    keys = keys_of(store, name, PROBE_FINISHED)
    assert len(keys) == len(set(keys))


def test_stopped_coordinator_ends_when_it_wakes_and_another_has_finished(
    store: SqlStore, start: Callable[[], tuple[Lab, str, int, Connection]]
) -> None:
    lab, name, pid, pipe = start()
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not store.is_running(name))
    _, ended = drive(lab, store, bisection_id=name)
    assert ended.answer.status == "isolated"
    events = store.events(name)
    pipe.send("go on")
    os.kill(pid, signal.SIGCONT)
    assert pipe.poll(100) and "it writes no more" in pipe.recv()
    assert store.events(name) == events and kinds_of(store, name)["started"] == 2


# ---- dispatchers --------------------------------------------------------------------------------------------------

DISPATCHER = """
import sys
from bisect_train.store import SqlStore
queue = SqlStore(sys.argv[1]).queue()
with queue.join(lease_s=1.0) as dispatcher:
    print(queue.claim(dispatcher).bisection_id, flush=True)
    sys.stdin.readline()
"""


def test_entry_of_a_killed_dispatcher_goes_to_another(store_url: str) -> None:
    store = SqlStore(store_url)
    queue, new = store.queue(), store.create({}, title="")
    queue.add_user("ann")
    queue.submit(new, "ann")
    command = [sys.executable, "-c", DISPATCHER, store_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == new
        process.kill()
    with queue.join() as dispatcher:
        wait_until(lambda: queue.claim(dispatcher) is not None)
        entry = queue.entry(new)
        assert entry is not None and entry.num_starts == 2 and entry.dispatcher.endswith(f":{os.getpid()}")
    store.close()
