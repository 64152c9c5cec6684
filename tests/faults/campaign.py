"""Whole bisections under drawn faults, counted: `python -m tests.faults.campaign --seed 1 --faults 300`.

Each story is one bisection: a cluster is drawn (or one machine), and what happens to each life of its coordinator. It goes on
until there is an answer; the last lives are left alone. Then it is held against the truth: the right commit or an honest "no
answer", every probe that was told of is in the database, none ran again after that, and nothing is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bisect_train.store.sql import SqlStore
from tests.faults.places import Place, tear
from tests.faults.story import TRACEBACK, Life, LifePlan, NodePlan, StoryPlan, live
from tests.support.simulated_bisection import Lab

CULPRITS = (3, 6)
NUM_COMMITS = 9
MAX_DISTURBED = 6  # lives with a fault of their own; after that the story is left alone
MAX_LIVES = 30
STRIKES = ("killed", "killed", "killed", "disk full", "locked for a moment", "locked for long", "clock jump")
BETWEEN = ("read-only", "torn", "torn")
NODE_KINDS = ("slow", "lossy", "dies", "joins")
LIES = ("wrong", "wrong at times", "stale")
TRUE, NONE, WRONG = "right answer", "no answer, and said so", "WRONG"


@dataclass
class Tally:
    """What was injected and what came of it.

    Attributes:
        rows: by (fault, what happened).
        answers: of the bisections.
        broken: promises that were not kept, one line each.
        reasons: of bisections without an answer, one line each.
    """

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    num_probes: int = 0
    num_lives: int = 0

    @property
    def num_faults(self) -> int:
        return sum(self.rows.values())

    def add(self, fault: str, happened: str, num: int = 1) -> None:
        self.rows[fault, happened] += num

    def render(self) -> str:
        """Return the table, as Markdown."""
        lines = ["| fault | what happened | number |", "| --- | --- | ---: |"]
        lines += [f"| {fault} | {happened} | {num} |" for (fault, happened), num in sorted(self.rows.items())]
        lines.append(f"| all | | {self.num_faults} |")
        answers = ", ".join(f"{num} {name}" for name, num in sorted(self.answers.items()))
        lines += ["", f"{sum(self.answers.values())} bisections: {answers}; {self.num_lives} lives, {self.num_probes} probes"]
        lines += [f"without an answer: {len(self.reasons)}", *self.reasons]
        lines += [f"promises broken: {len(self.broken)}", *self.broken]
        return "\n".join(lines)


# ---- draws --------------------------------------------------------------------------------------------------------


def draw_story(seed: int) -> StoryPlan:
    """Return what a bisection has to live with."""
    rng = random.Random(f"story {seed}")
    share_lost = rng.choice((0.0, 0.0, 0.05, 0.1))
    if rng.random() < 0.25:
        return StoryPlan(seed, (), share_lost)
    names = [f"n{idx}" for idx in range(rng.randrange(3, 6))]
    nodes = {name: NodePlan(name) for name in names}
    doubtful = rng.sample(names, len(names) - 2)  # two are always there and honest
    if rng.random() < 0.7:
        liar = doubtful.pop()
        nodes[liar] = NodePlan(liar, rng.choice(LIES))
    for name in doubtful:
        if rng.random() < 0.6:
            nodes[name] = NodePlan(name, rng.choice(NODE_KINDS), time_s=rng.uniform(1.0, 12.0))
    is_noisy = rng.random() < 0.15 and not any(node.kind == "wrong at times" for node in nodes.values())
    return StoryPlan(seed, tuple(nodes[name] for name in names), share_lost, is_noisy)


def draw_life(rng: random.Random) -> tuple[LifePlan, str]:
    """Return what happens to a life, and what happens to the database before it."""
    if rng.random() < 0.35:
        return LifePlan(), rng.choice(BETWEEN)
    return LifePlan(rng.choice(STRIKES), at=rng.randrange(1, 30), is_after=rng.random() < 0.5), ""


# ---- one story ----------------------------------------------------------------------------------------------------


class Story:
    """One bisection from its start to its answer."""

    def __init__(self, lab: Lab, folder: Path, plan: StoryPlan, tally: Tally) -> None:
        self.lab, self.plan, self.tally = lab, plan, tally
        self.folder = folder
        self.place = Place(folder / "home")
        self.notes = folder / "notes.jsonl"
        self.rng = random.Random(f"lives {plan.seed}")
        self.is_torn = False

    def run(self) -> None:
        """Live until there is an answer, then look whether the promises were kept."""
        try:
            for num in range(1, MAX_LIVES + 1):
                if self._live(num):
                    self._look()
                    return
            self._broke(f"no answer after {MAX_LIVES} lives")
        finally:
            self.place.close()

    def _live(self, num: int) -> bool:
        """Let a coordinator live once; return whether it came to an answer."""
        plan, before = draw_life(self.rng) if num <= MAX_DISTURBED else (LifePlan(), "")
        how = self._prepare(before)
        status = live(Life(self.lab, self.place, self.notes, self.plan, plan, num))
        self.tally.num_lives += 1
        self._end_lockers(num)
        self.place.mend()
        self._count(num, status, how)
        return status == 0

    def _prepare(self, before: str) -> str:
        """Do something to the database before a life; return what was done."""
        if not self.place.database.exists():
            return ""
        if before == "read-only" and self.place.make_read_only():
            return "database read-only"
        if before == "torn":
            self.is_torn = True
            for name in (self.place.database, self.place.wal):
                if name.exists():
                    shutil.copyfile(name, self.folder / name.name)
            return f"database torn: {tear(self.place, self.rng)}"
        return ""

    def _restore(self) -> None:
        """Put back what the user has kept of the database."""
        for name in (self.place.database, self.place.wal):
            name.unlink(missing_ok=True)
            if (self.folder / name.name).exists():
                shutil.copyfile(self.folder / name.name, name)
        self.place.database.with_name(f"{self.place.database.name}-shm").unlink(missing_ok=True)

    def _noted(self, kind: str, num: int | None = None) -> list[dict[str, Any]]:
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        noted = [json.loads(line) for line in lines]
        return [note for note in noted if note["kind"] == kind and num in (None, note["life"])]

    def _end_lockers(self, num: int) -> None:
        for note in self._noted("locker", num):
            with contextlib.suppress(ProcessLookupError):
                os.kill(note["pid"], signal.SIGKILL)

    def _count(self, num: int, status: int, how: str) -> None:
        """Count the faults of a life, by what came of it."""
        errors = [note["text"] for note in self._noted("error", num)]
        if status == TRACEBACK:
            self._broke(f"life {num}: {how or 'no damage'}: {self._noted('traceback', num)}")
        went_on = "the run went on" if status == 0 else f"clear error, status {status}"
        if how:
            self.tally.add(how, went_on if status >= 0 else "the run went on")
            if how.startswith("database torn") and status > 0:
                self._restore()
        for note in self._noted("fault", num):
            fault = note["fault"]
            if fault == "killed":
                self.tally.add("coordinator killed (SIGKILL)", "resumed")
            elif fault == "probe lost":
                self.tally.add(fault, "run again")
            else:
                self.tally.add(fault, went_on if status >= 0 else "the run went on")
        if errors and any(not text.strip() for text in errors):
            self._broke(f"life {num}: an error without words")

    # ---- promises -------------------------------------------------------------------------------------------------

    def _broke(self, what: str) -> None:
        self.tally.broken.append(f"story {self.plan.seed}: {what}")

    def _look(self) -> None:
        store = SqlStore(f"sqlite:///{self.place.database}")
        names = [item.id for item in store.list()]
        events = [event for name in names for event in store.events(name)]
        store.close()
        self._look_at_answer([event.data for event in events if event.kind == "node_suspect"])
        finished: set[str] = set()
        for event in events:
            if event.kind == "probe_finished":
                finished.add(event.data["key"])
            elif event.kind == "probe_started" and event.data["key"] in finished:
                self._broke(f"the finished probe {event.data['key']} was run again")
        self.tally.num_probes += len(finished)
        lost = {note["key"] for note in self._noted("probe_done")} - finished
        if lost and not self.is_torn:
            self._broke(f"{len(lost)} probes are not in the database")
        if len(names) != 1:
            self._broke(f"{len(names)} bisections in the database")
        self._look_for_leftovers(names)

    def _look_at_answer(self, suspects: Sequence[dict[str, Any]]) -> None:
        answer = self._noted("answer")[-1]
        is_named = bool(answer["culprits"])
        if is_named and answer["culprits"] == [self.lab.commits[self.lab.culprit]]:
            result = TRUE
        elif not is_named and answer["status"] in ("candidates", "failed", "budget"):
            result = NONE
        else:
            result = WRONG
            self._broke(f"wrong answer: {answer}")
        self.tally.answers[result] += 1
        if result is NONE:
            self.tally.reasons.append(f"story {self.plan.seed}: {answer['status']}: {answer['reason']}")
        blamed = {data["node"]: data["why"] for data in suspects}
        for node in self.plan.nodes:
            if node.kind == "honest":
                if node.name in blamed and blamed[node.name] == "wrong":
                    self._broke(f"the honest node {node.name} was called wrong")
                continue
            has_met = node.kind in ("slow", "dies", "joins") or any(note["node"] == node.name for note in self._noted("met"))
            said = {"wrong": "named as wrong", "loses": "named as losing probes"}.get(blamed.get(node.name, ""), "not named")
            if has_met:
                self.tally.add(f"node {node.kind}", f"{said}; {result}")

    def _look_for_leftovers(self, names: Sequence[str]) -> None:
        children = psutil.Process().children(recursive=True)
        kept = {self.place.database.name, "locks", "bisect-train.open.lock"}
        left = [path.name for path in self.place.folder.iterdir() if path.name not in kept]
        locks = [path for path in (self.place.folder / "locks").iterdir() if path.suffix != ".lock"]
        # a torn database may have lost a whole bisection, whose killed coordinator left its process id there
        left += [path.name for path in locks if path.stem in names or not self.is_torn]
        trees = self.lab.repo.git("worktree", "list").splitlines()
        if children or left or len(trees) != 1:
            self._broke(f"left behind: {children} {left} {trees[1:]}")
        if self.lab.repo.git("status", "--porcelain").strip():
            self._broke("the user's checkout was touched")


# ---- all of them --------------------------------------------------------------------------------------------------


def run_campaign(folder: Path, *, seed: int, num_faults: int, tally: Tally | None = None) -> Tally:
    """Run stories from a seed on until so many faults were injected; return what happened."""
    tally = tally or Tally()
    labs = [Lab.build(folder / f"lab{culprit}", num_commits=NUM_COMMITS, culprit=culprit) for culprit in CULPRITS]
    for number in _count_from(seed):
        if tally.num_faults >= num_faults:
            return tally
        Story(labs[number % len(labs)], folder / f"story{number}", draw_story(number), tally).run()
    raise AssertionError("unreachable")


def _count_from(seed: int) -> Iterator[int]:
    number = seed
    while True:
        yield number
        number += 1


def main() -> None:
    """Print the table; exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first story")
    parser.add_argument("--faults", type=int, default=300, help="stop after so many")
    asked = parser.parse_args()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bisect-train-faults-") as folder:
        tally = run_campaign(Path(folder), seed=asked.seed, num_faults=asked.faults)
    print(tally.render())
    print(f"{time.monotonic() - started_s:.0f} s")
    sys.exit(1 if tally.broken else 0)


if __name__ == "__main__":
    main()
