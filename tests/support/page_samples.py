"""What the tests of the pages show: pairs, ranks, nights of each kind, hostile text, a thousand of everything."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bisect_train.coordinator import spec_of_request
from bisect_train.core.changes import Point, Variant
from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeJob, ProbeResult, Rung
from bisect_train.core.question import Question
from bisect_train.search.terms import Request
from bisect_train.service.pages.contract import Night, Waiting, WatchedBranch
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SIMULATED_FACTS, SimulatedRun
from tests.support.git_repos import UserRepo, git
from tests.support.page_lab import PageLab
from tests.support.simulated_bisection import Lab, fingerprint_of


@dataclass
class PairLab(Lab):
    """A history in which two commits make it worse, and only together."""

    partner: int = 4

    def level_of(self, job: ProbeJob) -> float:
        return 2.0 if {self.culprit, self.partner} <= self.parts_of(job) else 1.0


@dataclass
class RankLab(Lab):
    """Trainings of 40 steps on 4 ranks; the culprit makes the loss of rank 2 NaN from step 12 on."""

    def question(self, **more: Any) -> Question:
        return super().question(**{"rung": Rung(40, 4), **more})

    def run_of(self, job: ProbeJob) -> SimulatedRun:
        is_bad = self.culprit in self.parts_of(job)
        ranks = tuple(_rank(rank, job.spec.seed_idx, is_bad=is_bad and rank == 2) for rank in range(4))
        log = "".join(f"step {step.step} loss {step.loss:.4f}\n" for step in ranks[0].steps)
        fingerprint = Fingerprint(Ending(EndingKind.STOPPED), ranks, facts=(("python", "3.11"), ("torch", "2.13")))
        result = ProbeResult("", fingerprint, wall_s=12.0, node="node-1", log_tail=log)
        return SimulatedRun(fingerprint, 12.0, result=result)


def _rank(rank: int, seed_idx: int, *, is_bad: bool) -> RankRecord:
    steps = []
    for idx in range(40):
        own = math.sin(7.0 * idx + rank + 3.0 * seed_idx) * 0.02
        loss = math.nan if is_bad and idx >= 12 else 1.0 + 2.0 * math.exp(-idx / 9.0) + own
        norm = math.nan if is_bad and idx >= 12 else 0.5 + math.exp(-idx / 15.0) + own
        steps.append(
            StepRecord(idx, loss=loss, grad_norm=norm, clip_norm=norm, lr=(3e-4,), param_hash=f"{seed_idx:04x}{idx:012x}")
        )
    return RankRecord(rank, tuple(steps))


NIGHT_STATES = {9: "regression", 10: "regression", 14: "fixed", 19: "untestable", 24: "intended", 29: "drift"}


def made_up_nights(num: int = 30, *, name: str = "nano on main", subject: str = "change number") -> WatchedBranch:
    """Return a branch with a night of each kind."""
    nights = []
    for idx in range(num):
        state = NIGHT_STATES.get(idx, "clean")
        level = (
            2.31 + (0.2 if 9 <= idx < 14 else 0.0) + (0.05 if idx >= 24 else 0.0) + 0.004 * math.sin(5.0 * idx) + 0.001 * idx
        )
        mean = None if state == "untestable" else level
        said = {"clean": "no regression: worse by at most 0.006", "untestable": "it does not start"}.get(state, f"a {state}")
        night = Night(f"{idx:02x}" * 20, f"{subject} {idx}", 1.7e9 + 86_400 * idx, mean, 0.004, 5 if mean else 0, state, said)
        nights.append(night)
    open_findings = ("loss is worse on main since 1d1d1d1d, by small steps (drift)",)
    return WatchedBranch(name, "/src/nano", "main", "loss", "nats", "lower", "1c" * 20, tuple(nights), open_findings)


HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "<a href='javascript:window.hacked = 1'>click</a> javascript:alert(1)",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "safe\u202etxt.exe\u202d and \u2066more\u2069",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} `backtick` </script><!--",
    "x" * 400,
    "' onmouseover='window.hacked = 1' data-x='",
)
"""What a stranger may write into a commit's subject, a key or a log."""


class HostileLab(Lab):
    """A history whose subjects, config values and logs are made to break a page."""

    @staticmethod
    def build_hostile(folder: Path) -> HostileLab:
        repo = UserRepo.create(folder / "repo")
        commits = []
        for idx in range(len(HOSTILE) + 4):
            lines = [f"part {num} {'new' if num <= idx else 'old'}\n" + "pass\n" * 4 for num in range(len(HOSTILE) + 4)]
            subject = HOSTILE[idx - 2] if 2 <= idx < len(HOSTILE) + 2 else f"commit number {idx}"
            text = "".join(lines) + f"# {subject}\n"
            commits.append(repo.commit({"train.py": text}, message=subject))
        return HostileLab(repo, folder / "home", commits, 3)

    def run_of(self, job: ProbeJob) -> SimulatedRun:
        run = super().run_of(job)
        assert run.fingerprint is not None
        facts = tuple((text[:40], text) for text in HOSTILE)
        log = "\n".join(HOSTILE)
        is_bad = self.culprit in self.parts_of(job)
        ending = Ending(EndingKind.CRASHED, "boom", HOSTILE[0] + HOSTILE[1], 1) if is_bad else run.fingerprint.ending
        events = tuple(Event(text[:20], 0, {text: text}) for text in HOSTILE)
        ranks = tuple(replace(rank, events=events) for rank in run.fingerprint.ranks)
        fingerprint = replace(run.fingerprint, facts=facts, ending=ending, ranks=ranks)
        result = ProbeResult("", fingerprint, wall_s=1.0, node=HOSTILE[1], log_tail=log, stacks=((HOSTILE[0], log),))
        return SimulatedRun(fingerprint, run.duration_s, result=result)


def hostile_pages(folder: Path) -> tuple[PageLab, str]:
    """Return pages over a bisection of hostile commits, and its id."""
    lab = HostileLab.build_hostile(folder)
    made = PageLab.create(lab)
    made.nights = (made_up_nights(name=HOSTILE[1], subject=HOSTILE[0]),)
    made.repositories = (HOSTILE[1],)
    made.waiting = [Waiting("00000000", HOSTILE[0], HOSTILE[1], 1, HOSTILE[2])]
    name = made.store.create(lab.question().to_json(), title=f"what about {HOSTILE[0]} {HOSTILE[4]}?")
    made.users[name] = HOSTILE[1]
    made.drive(name)
    return made, name


NUM_LONG = 1000


def long_pages(folder: Path) -> tuple[PageLab, str]:
    """Return pages over a history of 1,000 commits with 1,000 finished probes, searched but not proved, and its id."""
    repo = UserRepo.create(folder / "repo")
    stream = ["reset refs/heads/main\n"]
    for idx in range(NUM_LONG + 1):
        subject, text = f"commit number {idx} of many", f"part {idx}\n"
        stream.append(f"commit refs/heads/main\ncommitter A U Thor <a@example.org> {1_700_000_000 + 60 * idx} +0000\n")
        stream.append(f"data {len(subject)}\n{subject}\nM 100644 inline train.py\ndata {len(text)}\n{text}\n")
    git(repo.path, "fast-import", "--quiet", stdin="".join(stream).encode())
    commits = repo.git("rev-list", "--reverse", "main").splitlines()
    lab = Lab(repo, folder / "home", commits, 700)
    pages = PageLab(lab, MemoryStore())  # a thousand transactions on a disk take long
    question = lab.question()
    name = pages.store.create(question.to_json(), title="what made a long history worse?")
    for idx, request in enumerate(_many_requests()):
        level = 2.0 if request.point.prefix >= lab.culprit else 1.0
        fingerprint = fingerprint_of(level, seed_idx=request.seed_idx, salt=request.point.to_text())
        variant = Variant(f"{idx:040x}", commits[request.point.prefix], ("python", "train.py"))
        spec = spec_of_request(request, variant, SIMULATED_FACTS, question)
        result = ProbeResult("", fingerprint, wall_s=2.0, log_tail="step 0\n")
        pages.store.save_result(name, f"{idx:016x}", result, spec=spec)
    return pages, name


def _many_requests() -> list[Request]:
    ends = [Request(Point(prefix), seed) for seed in range(8) for prefix in (0, NUM_LONG)]
    ends += [Request(Point(prefix), 0, repeat=1) for prefix in (0, NUM_LONG)]
    versions = [Request(Point(20 + idx % 960), idx // 960) for idx in range(NUM_LONG - len(ends))]
    return [*ends, *versions]
