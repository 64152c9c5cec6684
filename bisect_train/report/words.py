"""Wording that all renderers share: points, numbers, stages and endings in plain words. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from bisect_train.core.changes import GOOD_END, Change, ChangeKind, Point
from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.question import Metric
from bisect_train.core.secrets import mask_text
from bisect_train.verdict.divergence import Divergence, Stage

KIND_NAMES = {
    ChangeKind.COMMIT: "commit",
    ChangeKind.CONFIG: "config key",
    ChangeKind.PACKAGE: "package",
    ChangeKind.ENV: "environment variable",
    ChangeKind.LAUNCH: "launch setting",
    ChangeKind.DATA: "data",
    ChangeKind.HUNK: "hunk",
}
REDUCE_WORDS = {
    "tail": "mean of the last quarter of the values",
    "median": "median",
    "mean": "mean of all values",
    "first": "first value",
    "last": "last value",
    "min": "smallest value",
    "max": "largest value",
}
STAGE_WORDS = {
    Stage.ENVIRONMENT: "the environment",
    Stage.DATA: "the data (another batch)",
    Stage.INITIAL_PARAMETERS: "the initial parameters",
    Stage.FORWARD: "the forward pass (model or loss)",
    Stage.GRADIENT: "the gradient (backward pass)",
    Stage.CLIPPING: "gradient clipping",
    Stage.REDUCTION: "the reduction of gradients across ranks",
    Stage.LEARNING_RATE: "the learning rate (schedule)",
    Stage.UPDATED_PARAMETERS: "the optimizer's update of the parameters",
    Stage.ENDING: "how the program ended",
    Stage.METRIC: "a metric of the log",
    Stage.TIME_AND_MEMORY: "time or memory (all numbers of the training are equal)",
}
SIGNAL_WORDS = {
    "batch_hash": "hash of the input batch",
    "dtypes": "number formats",
    "micro": "loss",
    "loss": "loss",
    "missing_grads": "number of parameters without a gradient",
    "clip_norm": "gradient norm before clipping",
    "grad_norm": "gradient norm",
    "skipped": "step skipped by the gradient scaler",
    "lr": "learning rate",
    "param_hash": "hash of the parameters",
    "param_norm": "norm of the parameters",
    "num_params": "number of parameters",
    "inputs": "shapes of the first batch",
    "ending": "ending",
    "num_steps": "number of steps",
    "step_s": "median time of a step",
    "rss_mib": "largest memory of the process",
    "cuda_mib": "largest memory on the GPU",
    "ranks": "number of ranks",
}
ENDING_WORDS = {
    EndingKind.STOPPED: "ran",
    EndingKind.FINISHED: "finished",
    EndingKind.CRASHED: "crashed",
    EndingKind.OUT_OF_MEMORY: "out of memory",
    EndingKind.TIMEOUT: "time limit",
    EndingKind.KILLED: "killed",
    EndingKind.CANNOT_START: "could not start",
    EndingKind.NO_RECORDER: "not recorded",
}


class EarlyCost(Protocol):
    """What the wording needs of a `Cost`."""

    @property
    def early(self) -> int:
        """Probes that were stopped early."""

    @property
    def saved_steps(self) -> int:
        """Steps that they did not make."""


class Changes(Protocol):
    """What the wording needs of a `ChangeSpace`."""

    changes: tuple[Change, ...]
    good_is_base: bool


def shorten(text: str, width: int = 72) -> str:
    """Return one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."


def with_stop(text: str) -> str:
    """Return a text that ends like a sentence."""
    return text if text.endswith((".", "!", "?")) else text + "."


def short_id(change: Change) -> str:
    """Return 8 digits of a commit, and other ids whole."""
    return change.id[:8] if change.kind is ChangeKind.COMMIT else change.id


def name_change(change: Change, *, width: int = 60) -> str:
    """Return what a change is and its title: `commit 1a2b3c4d "use the fast path"`."""
    kind = KIND_NAMES[change.kind]
    if change.kind is ChangeKind.ENV and not change.id.isidentifier():  # the interpreter, the container image
        return f"the {change.id}: {shorten(untitle(change), width)}"
    if change.kind is ChangeKind.COMMIT:
        return f'{kind} {short_id(change)} "{shorten(change.title, width)}"'
    if not change.title or change.title == change.id:
        return f"{kind} {change.id}"
    return f"{kind} {change.id} ({shorten(untitle(change), width)})"


def label_change(change: Change, *, width: int) -> str:
    """Return the short id and the title; the title alone where it begins with the id, the id alone if `width` is 0."""
    if not width:
        return short_id(change)
    starts_with_id = change.title.startswith(change.id)
    title = shorten(change.title, width)
    return title if starts_with_id else f"{short_id(change)} {title}".rstrip()


def untitle(change: Change) -> str:
    """Return the title of a change without the id that it may begin with."""
    return change.title.removeprefix(f"{change.id}:").strip()


def name_changes(changes: Sequence[Change], *, width: int = 60) -> str:
    """Return the names of changes that act together, joined by `and`."""
    return " and ".join(name_change(change, width=width) for change in changes)


def say_point(point: Point, space: Changes, *, width: int = 44) -> str:
    """Return a set of changes in words: `good end`, `version 12 of 60: 1a2b3c4d subject`, `bad end without 1a2b3c4d`.

    Args:
        width: characters of the subject of the version's last change, at most; 0 leaves it out.
    """
    changes = space.changes
    if point == GOOD_END:
        return "good end"
    if point.is_prefix and point.prefix == 0:
        return "good end" if space.good_is_base else "merge base"
    if point.is_prefix and point.prefix == len(changes):
        return "bad end"
    text = _say_prefix(point.prefix, space, width=width if point.is_prefix else 0)
    if not point.is_prefix and 0 < point.prefix < len(changes):
        text = f"version {point.prefix} of {len(changes)}"
    if point.plus:
        text += " with " + " and ".join(short_id(changes[idx]) for idx in point.plus)
    if point.minus:
        text += " without " + " and ".join(short_id(changes[idx]) for idx in point.minus)
    return text


def _say_prefix(prefix: int, space: Changes, *, width: int) -> str:
    changes = space.changes
    if prefix == 0:
        return "good end" if space.good_is_base else "merge base"
    if prefix == len(changes):
        return "bad end"
    last = changes[prefix - 1]
    return f"version {prefix} of {len(changes)}: {label_change(last, width=width)}"


def say_number(value: float | None, *, unit: str = "", signed: bool = False) -> str:
    """Return a number with five significant digits and its unit; `-` without one."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    text = f"{value:+.5g}" if signed else f"{value:.5g}"
    return f"{text} {unit}" if unit else text


def say_spread(mean: float | None, sd: float | None, num: int, *, unit: str = "", source: str = "") -> str:
    """Return `3.4121 (sd 0.0042, 5 runs)`; `source` says whose sd it is when it is not that of these runs."""
    if mean is None or num == 0:
        return "no value"
    spread = "no spread known" if sd is None else f"sd {sd:.2g}{source}"
    return f"{say_number(mean, unit=unit)} ({spread}, {say_count(num, 'run')})"


def say_count(num: int, noun: str) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"


def say_pruned(num_changes: int) -> str:
    """Return that so many changes needed no run."""
    what = "them" if num_changes > 1 else "it"
    return f"{say_count(num_changes, 'change')} needed no run: the program reads nothing of {what}"


def say_early_cost(cost: EarlyCost) -> str:
    """Return `3 probes stopped early, 27 steps saved`."""
    return f"{say_count(cost.early, 'probe')} stopped early, {say_count(cost.saved_steps, 'step')} saved"


def say_counts(num_by_kind: Mapping[str, int]) -> str:
    """Return `12 commits, 1 config key` for numbers of changes by kind; kinds without any are left out."""
    nouns = {kind.value: "data set" if kind is ChangeKind.DATA else KIND_NAMES[kind] for kind in ChangeKind}
    return ", ".join(say_count(num, nouns[kind]) for kind, num in num_by_kind.items() if num) or "no changes"


def stands_out(shares: Sequence[float]) -> bool:
    """Return whether the largest of some probabilities is at least twice the next one."""
    ranked = sorted(shares, reverse=True)
    return len(ranked) == 1 or (len(ranked) > 1 and ranked[0] >= 2.0 * ranked[1])


def tidy_counts(reason: str) -> str:
    """Return a reason without counts that read oddly: one run is alike to nothing, and it is `1 run`."""
    return reason.replace(", 1 of them alike", "").replace(" 1 of 1 runs", " 1 of 1 run")


def say_share(share: float) -> str:
    """Return a probability or share in percent, never rounded up to certainty."""
    if 0.9995 <= share < 1.0:
        return "over 99.9 %"
    if 0.0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:.1f} %" if 0.0 < share < 1.0 else f"{100 * share:.0f} %"


def say_seconds(time_s: float) -> str:
    """Return a time span: `4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if time_s < 60:
        return f"{time_s:.1f} s"
    minutes, seconds = divmod(round(time_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def say_ending(ending: Ending) -> str:
    """Return how a run ended, with the beginning of its message when it failed."""
    word = ENDING_WORDS[ending.kind]
    return word if ending.is_healthy or not ending.message else f"{word}: {shorten(mask_text(ending.message), 90)}"


def say_metric(metric: Metric) -> str:
    """Return `loss (mean of the last quarter of the values of a run, lower is better)`."""
    reduced = REDUCE_WORDS.get(metric.reduce, metric.reduce)
    if metric.is_paired:
        return f"{metric.name} ({reduced} of a run against the good end's run beside it, {metric.better} is better)"
    return f"{metric.name} ({reduced} of a run, {metric.better} is better)"


def say_divergence(
    divergence: Divergence | None, *, left: str, right: str, unequal: Sequence[tuple[str, int, int]] = ()
) -> str:
    """Return the first difference of two runs in a sentence or two.

    Args:
        divergence: the first difference, or None.
        left, right: names of the runs.
        unequal: metrics that one run shows more often, as `unequal_counts` gives them.
    """
    if divergence is None and unequal:
        return f"{left} and {right} are equal in everything that both recorded, but {_say_unequal(unequal, left, right)}."
    if divergence is None:
        return f"{left} and {right} are equal in everything that was recorded."
    where = "" if divergence.step is None else f" at step {divergence.step}"
    rank = f" on rank {divergence.rank}" if divergence.rank else ""
    signal = SIGNAL_WORDS.get(divergence.signal, divergence.signal)
    values = f"{signal}: {_plain_value(divergence.left)} against {_plain_value(divergence.right)}"
    text = f"On the same seed, {left} and {right} first differ{where}{rank} in {STAGE_WORDS[divergence.stage]} - {values}."
    if divergence.stage is Stage.FORWARD and divergence.step == 0:
        text += " As far as recorded the batch is the same: look at the model, the loss, or how parameters start."
    if divergence.stage is Stage.TIME_AND_MEMORY and unequal:
        text += f" Not compared: {_say_unequal(unequal, left, right)}."
    return text


def _say_unequal(unequal: Sequence[tuple[str, int, int]], left: str, right: str) -> str:
    parts = [f"{say_count(one, 'value')} of {name} in {left}, {other or 'none'} in {right}" for name, one, other in unequal]
    return "the logs do not show the same: " + "; ".join(parts)


def _plain_value(text: str) -> str:
    """Return a recorded value without python's brackets and quotes."""
    return shorten(text.removeprefix("(").removesuffix(")").removesuffix(",").strip("'"), 60)


def say_bound(bound: float | None, *, unit: str) -> str:
    """Return the upper bound of a worsening in words; one at or below zero leaves no worsening at all."""
    if bound is not None and bound <= 0.0:
        return f"not worse at all (its upper bound is {say_number(bound, unit=unit, signed=True)})"
    return f"worse by at most {say_number(bound, unit=unit)}"
