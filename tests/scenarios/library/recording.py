"""What is recorded of a scenario: runs by kind, in one small file.

Variants that show the same bits on seed 0 are of one kind, and the runs of one stand for all of them (when they are recorded, a
sample is run to check that). So the search may ask for other versions and seeds than it did when the runs were recorded. What
is of no recorded kind, or on a seed that its kind lacks, is not known: nothing is made up.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bisect_train.core.changes import digest_of
from bisect_train.core.fingerprint import Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeSpec

FOLDER = Path(__file__).parents[2] / "data" / "scenarios"

NUM_FIRST_STEPS, KEPT_ONE_IN = 12, 60
"""All of the first steps are kept, then one in so many, and the last one."""

_WHEEL_OF_COMMIT = re.compile(r"file://\S*/([0-9a-f]{40})/\S*")

RunKey = tuple[str, int, int]
"""Kind or variant, seed index, repeat."""


class UnequalRunsError(AssertionError):
    """Two variants of one kind, or the same run twice, showed something else."""


@dataclass
class Recording:
    """What was recorded of a scenario.

    Attributes:
        name: of the scenario.
        facts: hardware class and interpreter of the runs; runs of two machines are never mixed.
        kinds: kind by variant.
        runs: fingerprints by kind, seed index and repeat.
        strays: runs of variants whose kind is not known yet, by variant, seed index and repeat.
    """

    name: str
    facts: tuple[str, str] = ("", "")
    kinds: dict[str, str] = field(default_factory=dict)
    runs: dict[RunKey, Fingerprint] = field(default_factory=dict)
    strays: dict[RunKey, Fingerprint] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Its file."""
        return FOLDER / f"{self.name}.json.gz"

    @staticmethod
    def read(name: str) -> Recording:
        """Return what is recorded of a scenario; an empty recording if nothing is."""
        recording = Recording(name)
        if recording.path.exists():
            data = json.loads(gzip.decompress(recording.path.read_bytes()))
            recording.facts = tuple(data["facts"])
            recording.kinds = data["kinds"]
            recording.runs = {(run[0], run[1], run[2]): Fingerprint.of_json(run[3]) for run in data["runs"]}
        return recording

    def write(self) -> int:
        """Write the file; return its size in bytes."""
        used = set(self.kinds.values())
        runs = [[*key, _to_json(value)] for key, value in sorted(self.runs.items()) if key[0] in used]
        data = {"facts": self.facts, "kinds": dict(sorted(self.kinds.items())), "runs": runs}
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0))
        return self.path.stat().st_size

    def find(self, spec: ProbeSpec) -> Fingerprint | None:
        """Return what a probe showed, None if that is not known."""
        variant, seed = name_of(spec), (spec.seed_idx, spec.repeat)
        kind = self.kinds.get(variant)
        return self.runs.get((kind, *seed)) if kind else self.strays.get((variant, *seed))

    def add(self, spec: ProbeSpec, fingerprint: Fingerprint) -> None:
        """Take a finished run; one on seed 0 tells the kind of its variant.

        Raises:
            UnequalRunsError: a run of its kind showed something else on this seed.
        """
        variant, seed, seen = name_of(spec), (spec.seed_idx, spec.repeat), thin(fingerprint)
        if seed == (0, 0) and variant not in self.kinds:
            self.kinds[variant] = digest_of(_to_json(seen))
            earlier = {key: self.strays.pop(key) for key in list(self.strays) if key[0] == variant}
            for (_, *stray_seed), stray in earlier.items():
                self._add_to_kind(variant, (stray_seed[0], stray_seed[1]), stray)
        if variant in self.kinds:
            self._add_to_kind(variant, seed, seen)
        else:
            self.strays[(variant, *seed)] = seen

    def _add_to_kind(self, variant: str, seed: tuple[int, int], seen: Fingerprint) -> None:
        key = (self.kinds[variant], *seed)
        if self.runs.setdefault(key, seen) != seen:
            raise UnequalRunsError(f"{self.name}: {variant} shows something else than its kind on seed {seed[0]}")


def name_of(spec: ProbeSpec) -> str:
    """Return the name of a variant: its tree, with all else that it is made of; where that lies is no part of it."""
    variant = spec.variant
    name = f"{variant.tree}+{digest_of(variant.config.text)}" if variant.config else variant.tree
    packages = [_WHEEL_OF_COMMIT.sub(r"\1", text) for text in variant.packages]
    more = {"packages": packages, "env": variant.env, "data": variant.data}
    return f"{name}+{digest_of(more)}" if any(more.values()) else name


def thin(fingerprint: Fingerprint) -> Fingerprint:
    """Return a fingerprint with what a search needs: ending, loss, gradient norms, rates, first batch, last parameters.

    Of a run whose log was read for a metric few steps are kept: that metric decides.
    """

    def thin_step(step: StepRecord, *, is_last: bool) -> StepRecord:
        batch_hash = step.batch_hash if step.step == 0 else None
        param_hash = step.param_hash if is_last else None
        return StepRecord(
            step.step,
            loss=step.loss,
            grad_norm=step.grad_norm,
            clip_norm=step.clip_norm,
            lr=step.lr,
            missing_grads=step.missing_grads,
            param_hash=param_hash,
            batch_hash=batch_hash,
        )

    is_all = not fingerprint.metrics
    ranks = tuple(
        RankRecord(
            rank.rank,
            tuple(
                thin_step(step, is_last=step is rank.steps[-1])
                for step in rank.steps
                if is_all or step.step < NUM_FIRST_STEPS or step.step % KEPT_ONE_IN == 0 or step is rank.steps[-1]
            ),
        )
        for rank in fingerprint.ranks
    )
    # a message may hold the path of a checkout, which is another one in each run
    ending = replace(fingerprint.ending, message=fingerprint.ending.signature)
    return replace(fingerprint, ending=ending, ranks=ranks, facts=())


def _to_json(fingerprint: Fingerprint) -> dict[str, Any]:
    """Return a JSON-able dict without what says nothing."""
    data = fingerprint.to_json()
    empty: tuple[object, ...] = (None, 0, False, "", (), [])
    for rank in data["ranks"]:
        rank["steps"] = [
            {key: value for key, value in step.items() if key == "step" or value not in empty} for step in rank["steps"]
        ]
    data["ending"] = {key: value for key, value in data["ending"].items() if value is not None and value != ""}
    return data
