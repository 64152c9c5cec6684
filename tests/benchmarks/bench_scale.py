"""How bisections scale: memory, store and planning at 10,000 probes; workers 1 to 64 on a virtual clock, 1 and 2 for real.

Run: python -m tests.benchmarks.bench_scale [--probes 10000] [--real] [--json FILE]
- 10,000 probes: a bisection of 1,024 commits whose store holds so many results, each as large as a real one of 20 steps, is
  taken up by a new process, as `resume` does: its memory (resident, before and after), the store's size, loading, a plan.
- workers: the real coordinator with the simulated executor on the history of 256 commits; each probe takes one of the durations
  that were recorded in a real run (DURATIONS_S), seeded. The virtual clock gives the wall time; planning costs none of it.
- --real: `bisect-train run` on that history with one worker and with two.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator import Coordinator
from bisect_train.coordinator.observing import load_state, rules_for, spec_of_request
from bisect_train.core.changes import make_point
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeJob, ProbeResult, ProbeSpec, Rung, probe_key
from bisect_train.core.question import Question
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Request
from bisect_train.store.home import open_store
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SIMULATED_FACTS, SimulatedExecutor, SimulatedRun
from tests.benchmarks.accounting import describe_machine
from tests.benchmarks.bench_history import write_stream
from tests.benchmarks.contenders import Bench
from tests.benchmarks.lifetimes import timed
from tests.benchmarks.long_history import build_long_history
from tests.benchmarks.scenarios_to_bisect import make_long
from tests.support.git_repos import git, question_of

NUM_COMMITS, CULPRIT = 1024, 700
NUM_STEPS = 20
WORKERS = (1, 2, 4, 8, 16, 32, 64)
# Wall times of the 26 probes of a real run on the history of 256 commits, seconds, on a busy machine (load average 14)
DURATIONS_S = (
    *(19.5, 17.9, 2.2, 2.4, 18.3, 24.2, 20.3, 22.6, 1.8, 1.9, 1.8, 2.3, 2.3),
    *(2.2, 2.5, 3.0, 23.5, 3.3, 29.3, 3.8, 3.6, 3.3, 3.5, 3.5, 3.8, 4.0),
)


def fingerprint_of(level: float, *, seed: int) -> Fingerprint:
    """Return a run of 20 steps with what the recorder writes of each."""
    rng = np.random.default_rng(seed)
    steps = []
    for idx in range(NUM_STEPS):
        loss, norm, took_s = float(level + 1.0 / (1 + idx) + 0.02 * rng.normal()), *map(float, rng.random(2))
        batch = f"{rng.integers(2**63):016x}"
        sampled = {"param_norm": norm, "param_hash": batch, "rng_hash": batch} if idx % 10 == 0 else {}
        steps.append(
            StepRecord(
                idx,
                loss=loss,
                micro=(loss,),
                grad_norm=norm,
                clip_norm=norm,
                lr=(3e-4,),
                missing_grads=0,
                batch_hash=batch,
                step_s=took_s,
                step_cpu_s=took_s,
                dtypes=("param:float32", "grad:float32"),
                rss_mib=320.0 + norm,
                **sampled,
            )
        )
    return Fingerprint(Ending(EndingKind.STOPPED), (RankRecord(0, tuple(steps)),))


# ---- 10,000 probes ----------------------------------------------------------------------------------------------------------


def fill_store(folder: Path, num_probes: int) -> dict[str, float]:
    """Write a repository and a store with so many results; return what the last commits to the store took."""
    repo = folder / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    git(repo, "fast-import", "--quiet", stdin="".join(write_stream(NUM_COMMITS + 1)).encode())
    question, space = _asked(folder)
    store, rng = open_store(folder / "home"), random.Random(3)
    name = store.create(question.to_json(), title="ten thousand")
    times = []
    for idx in range(num_probes):
        version = rng.choice((0, NUM_COMMITS, rng.randrange(1, NUM_COMMITS)))
        request = Request(make_point(version), seed_idx=idx)
        variant = space.variant(request.point)
        key = probe_key(ProbeSpec(variant, question.rung, idx), settings=question.settings, facts=SIMULATED_FACTS)
        result = ProbeResult(key, fingerprint_of(1.0 + (version > CULPRIT), seed=idx), log_tail="step 10 loss 1.7\n" * 100)
        with timed() as taken:
            store.save_result(name, key, result, spec=spec_of_request(request, variant, SIMULATED_FACTS, question))
        times.append(taken[0])
    store.close()
    files = [path.stat().st_size for path in (folder / "home").glob("bisect-train.db*")]
    return {"store, MiB": sum(files) / 2**20, "one commit to the store, ms": statistics.median(times[-500:]) * 1e3}


def _asked(folder: Path) -> tuple[Question, ChangeSpace]:
    repository = Repository.open(folder / "repo", home=folder / "home")
    good = git(folder / "repo", "rev-list", "--max-parents=0", "main")
    question = dataclasses.replace(question_of(good, repository.resolve("main")), rung=Rung(NUM_STEPS))
    return question, build_space(repository, question)


def take_up(folder: Path) -> None:
    """Print, as JSON, what a process takes that goes on with the stored bisection."""
    question, space = _asked(folder)
    before_mib = _resident_mib()
    store = open_store(folder / "home")
    with timed() as loading:
        state = load_state(store, store.load("last").id, question, facts=SIMULATED_FACTS)
    known = Known(state.observations, slots=2)
    times = []
    for _ in range(3):
        with timed() as planning:
            plan = make_plan(rules_for(question, space), known)
        times.append(planning[0])
    after_mib = _resident_mib()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = {
        "memory before, MiB": before_mib,
        "memory after, MiB": after_mib,
        "memory at its most, MiB": peak_mib,
        "loading, s": loading[0],
        "one plan, s": statistics.median(times),
    }
    print(json.dumps({"figures": told, "phase": plan.phase.value, "observations": len(state.observations)}))


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def at_many_probes(num_probes: int) -> dict[str, float]:
    """Return the figures of a bisection with so many probes."""
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        figures = fill_store(Path(name), num_probes)
        command = [sys.executable, "-m", "tests.benchmarks.bench_scale", "--take-up", name]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["observations"] == num_probes, told
    return {**figures, **told["figures"]}


# ---- workers ----------------------------------------------------------------------------------------------------------------


def simulate_workers(folder: Path) -> list[dict[str, float]]:
    """Return probes and virtual wall time of the same bisection with 1 to 64 workers."""
    history = build_long_history(folder / "long")
    repository = Repository.open(history.path, home=folder / "home")
    question = dataclasses.replace(question_of(history.commits[0], history.commits[-1]), rung=Rung(NUM_STEPS))
    rows = []
    for slots in WORKERS:
        executor = SimulatedExecutor(_script_on(repository), slots=slots)
        store, space = MemoryStore(clock=lambda: 0.0), build_space(repository, question)
        name = store.create(question.to_json(), title="simulated")
        with store.lock(name), timed() as taken:
            ended = Coordinator(
                question, bisection_id=name, space=space, store=store, executor=executor, clock=lambda: 0.0
            ).run()
        named = [space.changes[idx].id for culprit in ended.answer.culprits for idx in culprit.changes]
        row = {"workers": slots, "probes": ended.num_probes, "wall_s": executor.now_s, "own_s": taken[0]}
        rows.append({**row, "right": named == [history.culprit]})
    return rows


def _script_on(repository: Repository) -> Callable[[ProbeJob], SimulatedRun]:
    def run(job: ProbeJob) -> SimulatedRun:
        text = repository.git.text("cat-file", "blob", f"{job.spec.variant.tree}:optim.py")
        fingerprint = fingerprint_of(2.0 if "percent / 100" in text else 1.0, seed=job.spec.seed_idx)
        return SimulatedRun(fingerprint, duration_s=random.Random(job.id).choice(DURATIONS_S))

    return run


def real_workers(folder: Path) -> dict[int, tuple[float, int]]:
    """Return wall seconds after Ray and probes of a real bisection with one worker and with two."""
    scenario = make_long(folder)
    found = {}
    for workers in (1, 2):
        asked = dataclasses.replace(scenario, asked=("--parallel", str(workers), *scenario.asked))
        cost = Bench(asked, folder / f"bench-{workers}").bisect_train(folder / "home")
        assert cost.is_right, cost
        found[workers] = (cost.wall_s - (cost.ray_s or 0.0), cost.probes)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=10_000)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--take-up", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.take_up:
        take_up(asked.take_up)
        return
    machine = describe_machine()
    figures = at_many_probes(asked.probes)
    print(f"{asked.probes:,} probes of {NUM_STEPS} steps, {NUM_COMMITS} commits; {machine}\n\n| what | figure |\n| --- | --- |")
    for what, value in figures.items():
        print(f"| {what} | {value:.1f} |" if value >= 10 else f"| {what} | {value:.2f} |", flush=True)
    told: dict[str, object] = {"machine": machine, "many_probes": figures}
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        rows = simulate_workers(Path(name))
    print("\n| workers (virtual clock) | probes | wall s | times as fast | right |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        speed = rows[0]["wall_s"] / row["wall_s"]
        print(f"| {row['workers']} | {row['probes']} | {row['wall_s']:.0f} | {speed:.1f} | {'yes' if row['right'] else 'no'} |")
    told["simulated"] = rows
    if asked.real:
        with tempfile.TemporaryDirectory(prefix="bt-") as name:
            found = real_workers(Path(name))
        print("\n| workers (real) | probes | wall s after Ray | times as fast |\n| --- | --- | --- | --- |")
        for workers, (wall_s, probes) in found.items():
            print(f"| {workers} | {probes} | {wall_s:.1f} | {found[1][0] / wall_s:.2f} |")
        told["real"] = {str(workers): {"wall_s": wall_s, "probes": probes} for workers, (wall_s, probes) in found.items()}
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
