"""A question: everything that a bisection was asked, resolved and frozen, so that it can be stored and resumed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from bisect_train.core.changes import FilePatch
from bisect_train.core.probe import DataLink, MetricPattern, Rung, RunSettings
from bisect_train.core.verdict import Criterion


@dataclass(frozen=True, slots=True)
class Metric:
    """The primary metric, the one that decides.

    Attributes:
        name: `loss`, `grad_norm`, ... of the recorder, or a metric of the recipe.
        reduce: first, last, min, max, mean, or tail (mean of the last quarter) over the values of one probe.
        better: lower or higher.
        unit: for reports.
    """

    name: str = "loss"
    reduce: str = "tail"
    better: str = "lower"
    unit: str = ""


@dataclass(frozen=True, slots=True)
class ConfigEnd:
    """One end's config file that lies outside the repository's history: its path for a person, its content."""

    path: str
    patch: FilePatch


@dataclass(frozen=True, slots=True)
class Range:
    """The commits that were asked about.

    Attributes:
        goods: 40 hex digits each; one unless `--good` was repeated.
        bad: 40 hex digits; equal to the good for a question about configs only.
        first_parent: whether only the main line is followed.
        paths: only commits that touch these globs are candidates.
        skips: 40 hex digits of commits that are never run.
        descend: whether a bisection of its own looks inside a merge that a first-parent search has named.
    """

    goods: tuple[str, ...]
    bad: str
    first_parent: bool = True
    paths: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    descend: bool = True


@dataclass(frozen=True, slots=True)
class Fixup:
    """A patch that is laid over every state that it applies to.

    Attributes:
        path: the file as it was named, for a person.
        text: its content; bytes that are not UTF-8 are lone surrogates.
        base: path, mode and content of each file that it was made from; () if they are not known.
    """

    path: str
    text: str
    base: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent.

    Attributes:
        max_seeds: seed indices per end, at most.
        max_probes: probes, at most; None without a limit.
        gpu_hours: hours of all probes together times the GPUs of a probe, at most; None without a limit.
        parallel: probes at the same time; None takes what the machine has.
        confidence: posterior at which a change is named and put to the proof.
        reuse: whether results of earlier bisections count.
    """

    max_seeds: int = 8
    max_probes: int | None = None
    parallel: int | None = None
    confidence: float = 0.99
    reuse: bool = True
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One bisection's question.

    Attributes:
        kind: run or check.
        repo: absolute path of the user's repository.
        range: commits.
        command: training command with placeholders.
        settings: how probes run.
        rung: steps and ranks.
        metric: the primary metric.
        criterion: how a probe is judged.
        any_change: whether any difference, better or worse, is what is looked for.
        min_effect: smallest worsening that counts, in the metric's unit; None means one seed standard deviation.
        config_path: config file in the repository that `{config}` stands for, or "".
        good_config, bad_config: config files of the two ends when they are changes of their own.
        override: template such as `--{key}={value}` when config keys are given on the command line, or "".
        env: environment variables for the program.
        data: digest of linked data.
        limits: what may be spent.
        executor: address of a Ray cluster, or "" for a local one.
        priors: rules for prior weights of changes, as given (`changes.priors`).
        fixups: patches that are laid over every state that they apply to, in this order.
        part_of: id of the bisection that named the merge which this one looks into, or "".
    """

    kind: str
    repo: str
    range: Range
    command: tuple[str, ...]
    settings: RunSettings
    rung: Rung
    metric: Metric = field(default_factory=Metric)
    criterion: Criterion = Criterion.AUTO
    any_change: bool = False
    min_effect: float | None = None
    config_path: str = ""
    good_config: ConfigEnd | None = None
    bad_config: ConfigEnd | None = None
    override: str = ""
    env: tuple[tuple[str, str], ...] = ()
    data: str = ""
    limits: Limits = field(default_factory=Limits)
    executor: str = ""
    part_of: str = ""
    fixups: tuple[Fixup, ...] = ()
    priors: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return asdict(self)

    @staticmethod
    def of_json(data: dict[str, Any]) -> Question:
        """Return the question that `to_json` wrote."""
        kept = dict(data)
        for name in ("good_config", "bad_config"):
            end = data.get(name)
            kept[name] = ConfigEnd(end["path"], FilePatch(**end["patch"])) if end else None
        kept["range"] = Range(**_tuples(data["range"]))
        kept["command"] = tuple(data["command"])
        kept["priors"] = tuple(data.get("priors", ()))
        kept["fixups"] = tuple(_fixup_of_json(item) for item in data.get("fixups", ()))
        kept["settings"] = _settings_of_json(data["settings"])
        kept["rung"] = Rung(**data["rung"])
        kept["metric"] = Metric(**data["metric"])
        kept["criterion"] = Criterion(data["criterion"])
        kept["env"] = tuple((pair[0], pair[1]) for pair in data["env"])
        kept["limits"] = Limits(**data["limits"])
        return Question(**kept)


def _fixup_of_json(data: dict[str, Any]) -> Fixup:
    return Fixup(data["path"], data["text"], tuple((path, mode, text) for path, mode, text in data["base"]))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, (list, tuple)) else value for key, value in data.items()}


def _settings_of_json(data: dict[str, Any]) -> RunSettings:
    kept = _tuples(data)
    kept["links"] = tuple(DataLink(**item) for item in data["links"])
    kept["patterns"] = tuple(MetricPattern(**item) for item in data["patterns"])
    kept["setup"] = tuple(tuple(item) for item in data["setup"])
    return RunSettings(**kept)
