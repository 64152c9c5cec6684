"""The command of a fuzzing run; see the package.

Each range of a target's inputs runs in a process of its own, forked from this one, so that what kills a process, or never comes
back from one call of C code, is an input that failed and no end of the run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz.engine import LIMIT_S, Target, case_of, run_case, shrink_case
from tests.fuzz.results import Failure, Tally, load_case, save_case, table_of
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import Child, Part

BATCH = 50_000
"""Inputs of one process, at most: memory that is never given back shows, and a dead process loses little."""
STUCK_S = 120.0
"""Time that one input may take on the clock before its process is killed, seconds."""
LOOK_S = 0.1


def main() -> int:
    """Run inputs and print the table; the status is 1 where a reader broke its promise."""
    asked = _parser().parse_args()
    if asked.replay:
        return _replay(asked.replay)
    chosen = [TARGETS[name] for name in asked.target] or list(TARGETS.values())
    began_t = time.monotonic()
    tallies = _run(list(_parts(chosen, asked.seed, asked.inputs)), num_jobs=asked.jobs)
    for tally in tallies:
        _tell_failures(tally, asked.seed, asked.out)
    print(f"\n{table_of(tallies)}\n\n{time.monotonic() - began_t:.0f} s, seed {asked.seed}")
    return 1 if any(tally.failures for tally in tallies) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Feed hostile input to every reader.")
    parser.add_argument("--seed", type=int, default=9, help="inputs depend on it, the target and their number only")
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together")
    parser.add_argument("--target", action="append", default=[], choices=sorted(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"), help="folder for failing inputs, made smaller")
    parser.add_argument("--replay", type=Path, help="run a failing input again")
    return parser


def _parts(targets: Sequence[Target], seed: int, num_inputs: int) -> Iterator[Part]:
    """Yield each process's inputs: each target has its share of all, in even batches."""
    whole = sum(target.share for target in targets)
    for target in targets:
        num = max(1, round(num_inputs * target.share / whole))
        num_parts = -(-num // BATCH)
        yield from (Part(target.name, seed, idx * num // num_parts, (idx + 1) * num // num_parts) for idx in range(num_parts))


def _run(parts: list[Part], *, num_jobs: int) -> list[Tally]:
    """Run all parts, some of them at a time; an input that kills its process is counted, and the rest runs anew."""
    tallies = {part.target: Tally(part.target) for part in parts}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        running: list[Child] = []
        while parts or running:
            while parts and len(running) < num_jobs:
                running.append(Child(parts.pop(0), Path(folder)))
            time.sleep(LOOK_S)
            for child in [child for child in running if not child.is_alive(stuck_s=STUCK_S)]:
                running.remove(child)
                tally, rest = _take(child)
                tallies[tally.target].join(tally)
                parts[:0] = rest
    return list(tallies.values())


def _take(child: Child) -> tuple[Tally, list[Part]]:
    """Return what a process that has ended has counted, and what is left of its part."""
    part, tally = child.part, child.tally()
    if tally is not None:
        num_failures = sum(failure.num for failure in tally.failures.values())
        print(f"{part.target:<16} {part.first:>6} to {part.end:>6}: {num_failures} failures", flush=True)
        return tally, []
    number = child.number
    kind, place = ("hang", "stuck") if child.is_stuck else ("crash", "process died")
    print(f"{part.target:<16} {number}: {place}", flush=True)
    failure = Failure(kind, place, child.said(), number)
    rest = [Part(part.target, part.seed, part.first, number), Part(part.target, part.seed, number + 1, part.end)]
    return Tally(part.target, num=1, failures={place: failure}), [item for item in rest if item.first < item.end]


def _tell_failures(tally: Tally, seed: int, out: Path) -> None:
    target = TARGETS[tally.target]
    for idx, failure in enumerate(tally.failures.values(), start=1):
        case = case_of(target, seed, failure.number)
        if failure.place not in ("stuck", "process died"):
            case = shrink_case(target, case, failure.place)
        path = out / f"{target.name}-{idx}.json"
        save_case(path, target.name, case, place=failure.place, said=failure.said)
        print(f"\n{failure.kind}, {failure.num} times: {failure.place}\n  {path}")
        print(f"  {case!r:.300}\n  {failure.said.strip()[-300:]}", flush=True)


def _replay(path: Path) -> int:
    name, case = load_case(path)
    ran = run_case(TARGETS[name], case)
    print(f"{name}: {ran.kind.value} {ran.place} in {ran.cpu_s:.2f} s of {LIMIT_S:g} s\n{ran.said}")
    return int(ran.is_failure)


if __name__ == "__main__":
    sys.exit(main())
