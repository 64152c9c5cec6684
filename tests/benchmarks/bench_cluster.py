"""Large clusters, long ranges and wide probes, simulated: rounds, cost and the coordinator's own time.

Run: python -m tests.benchmarks.bench_cluster [--commits 256 10000 100000] [--nodes 1 10 100 1000] [--json FILE]
The real coordinator, search and store (SQLite) over a real git repository; probes run on a virtual clock and take one of the
durations that were recorded in a real run (bench_scale.DURATIONS_S), seeded; one in a hundred is lost. A node has 8 GPUs and a
probe takes one, or 200 for a probe of 200 ranks. Three kinds of answer: exact (seeds change nothing), plain (a gap of 50 seed
standard deviations) and noisy (a gap of 2). Own time is the processor time of this process and its gits: all of it is in the
way of the next probe.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.coordinator import Coordinator
from bisect_train.coordinator.events import CoordinatorEvent, PlanMade, ProbeStarted
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeJob, Rung
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.benchmarks.accounting import describe_machine
from tests.benchmarks.bench_scale import DURATIONS_S, NUM_STEPS, fingerprint_of
from tests.support.git_repos import git, question_of

GPUS_PER_NODE = 8
LOST_SHARE = 0.01
SEED_SD = 0.02  # of the runs of `fingerprint_of`
GAPS = {"exact": 50.0, "plain": 50.0, "noisy": 2.0}
WIDE = 200
COLUMNS = {
    "probes": "probes",
    "rounds": "rounds",
    "plans": "plans",
    "wall s": "wall_s",
    "GPU h": "busy_h",
    "own s": "own_s",
    "own ms a probe": "own_ms_per_probe",
    "store MiB": "store_mib",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is simulated: kind of answer, commits in the range, nodes of the cluster, ranks of a probe."""

    kind: str
    commits: int
    nodes: int
    ranks: int = 1

    @property
    def slots(self) -> int:
        """Probes that run at the same time."""
        return self.nodes * GPUS_PER_NODE // self.ranks


def write_history(num_commits: int, culprit: int) -> Iterator[str]:
    """Yield the input of `git fast-import`: commits of one small file each, of which one, the culprit, writes `rate.py`."""
    for idx in range(num_commits + 1):
        path, text = (f"f{idx % 100}.py", f"value = {idx}\n") if idx != culprit else ("rate.py", "rate = 1\n")
        yield f"commit refs/heads/main\ncommitter A U Thor <a@example.org> {1500000000 + 60 * idx} +0000\n"
        yield f"data {len(str(idx)) + 7}\ncommit {idx}\n"
        yield f"M 100644 inline {path}\ndata {len(text)}\n{text}\n"


@dataclass
class Load:
    """What the coordinator did: plans, and rounds, those after which at least one probe was started."""

    plans: int = 0
    rounds: int = 0
    most_running: int = 0
    _is_new: bool = False

    def take(self, event: CoordinatorEvent) -> None:
        """Count an event."""
        if isinstance(event, PlanMade):
            self.plans += 1
            self._is_new = True
        elif isinstance(event, ProbeStarted) and self._is_new:
            self.rounds += 1
            self._is_new = False


def simulate(case: Case, folder: Path) -> dict[str, object]:
    """Return the row of one case."""
    repo = folder / "repo"
    repo.mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main")
    culprit = case.commits * 2 // 3
    git(repo, "fast-import", "--quiet", stdin="".join(write_history(case.commits, culprit)).encode())
    began_s = _own_time_s()
    repository = Repository.open(repo, home=folder / "home")
    good, bad = git(repo, "rev-list", "--max-parents=0", "main"), repository.resolve("main")
    question = dataclasses.replace(question_of(good, bad), rung=Rung(NUM_STEPS, case.ranks))
    if case.kind == "exact":  # nothing else says what counts where seeds change nothing
        question = dataclasses.replace(question, min_effect=0.1)
    space = build_space(repository, question)
    planned_s = _own_time_s() - began_s
    executor = SimulatedExecutor(_script_on(repository, case), slots=case.slots)
    store, load = open_store(folder / "home"), Load()
    name = store.create(question.to_json(), title="simulated")
    made_s: list[float] = []
    began_s = _own_time_s()
    with store.lock(name):
        ended = Coordinator(
            question, bisection_id=name, space=space, store=store, executor=_Timed(executor, made_s), listener=load.take,
            clock=lambda: executor.now_s,
        ).run()  # fmt: skip
    own_s = _own_time_s() - began_s - sum(made_s)
    named = [space.changes[idx].title for found in ended.answer.culprits for idx in found.changes]
    kinds = Counter(event.kind for event in store.events(name))
    store.close()
    size = sum(path.stat().st_size for path in (folder / "home").glob("bisect-train.db*"))
    return {
        **dataclasses.asdict(case),
        "slots": case.slots,
        "status": ended.answer.status,
        "right": named == [f"commit {culprit}"],
        "named": named,
        "probes": ended.num_probes,
        "cancelled": kinds["probe_cancelled"],
        "lost": kinds["probe_lost"],
        "rounds": load.rounds,
        "plans": load.plans,
        "wall_s": executor.now_s,
        "busy_h": executor.busy_s * case.ranks / 3600,
        "history_s": planned_s,
        "own_s": own_s,
        "own_ms_per_probe": 1e3 * own_s / max(1, ended.num_probes),
        "store_mib": size / 2**20,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class _Timed:
    """The executor, with the time of its scripts told apart: making up fingerprints is no work of the coordinator."""

    def __init__(self, executor: SimulatedExecutor, made_s: list[float]) -> None:
        self._executor = executor
        self._made_s = made_s

    def __getattr__(self, name: str) -> object:
        found = getattr(self._executor, name)
        if name not in ("submit", "wait", "cancel"):
            return found

        def call(*args: object, **kwargs: object) -> object:
            began_s = _own_time_s()
            try:
                return found(*args, **kwargs)
            finally:
                self._made_s.append(_own_time_s() - began_s)

        return call


def _script_on(repository: Repository, case: Case) -> Callable[[ProbeJob], SimulatedRun]:
    num_started: Counter[str] = Counter()

    def run(job: ProbeJob) -> SimulatedRun:
        num_started[job.id] += 1
        rng = random.Random(f"{job.id} {num_started[job.id]}")
        duration_s = rng.choice(DURATIONS_S)
        if rng.random() < LOST_SHARE:
            return SimulatedRun(None, duration_s / 2)
        is_bad = bool(repository.git.text("ls-tree", job.spec.variant.tree, "--", "rate.py"))
        seed = 0 if case.kind == "exact" else job.spec.seed_idx + (0 if not is_bad else 10_000)
        return SimulatedRun(_wide(1.0 + is_bad * GAPS[case.kind] * SEED_SD, seed=seed, ranks=case.ranks), duration_s)

    return run


def _wide(level: float, *, seed: int, ranks: int) -> Fingerprint:
    one = fingerprint_of(level, seed=seed)
    return dataclasses.replace(one, ranks=tuple(dataclasses.replace(one.ranks[0], rank=idx) for idx in range(ranks)))


def _own_time_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cases_of(commits: list[int], nodes: list[int]) -> list[Case]:
    """Return the cases: the answers' kinds on the shortest range, long ranges with the plain one, and wide probes."""
    found = [Case(kind, commits[0], count) for kind in GAPS for count in nodes]
    found += [Case(kind, long, count) for long in commits[1:] for kind in ("plain", "noisy") for count in nodes[1:]]
    return [*found, *(Case("plain", commits[0], count, WIDE) for count in nodes if Case("", 0, count, WIDE).slots)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, nargs="+", default=[256, 10_000, 100_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print(f"{describe_machine()}\n")
    names = ("answer", "commits", "nodes", "ranks", *COLUMNS, "right")
    print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    rows = []
    for case in cases_of(asked.commits, asked.nodes):
        with tempfile.TemporaryDirectory(prefix="bt-") as name:
            row = simulate(case, Path(name))
        rows.append(row)
        place = [case.kind, f"{case.commits:,}", f"{case.nodes:,}", str(case.ranks)]
        told = [f"{row[key]:.1f}" if isinstance(row[key], float) else str(row[key]) for key in COLUMNS.values()]
        print(f"| {' | '.join([*place, *told, 'yes' if row['right'] else str(row['status'])])} |", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
