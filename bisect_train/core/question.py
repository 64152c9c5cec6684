"""A question: everything that a bisection was asked, resolved and frozen, so that it can be stored and resumed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from bisect_train.core.changes import DataLink, FilePatch
from bisect_train.core.errors import MISSHAPEN, damaged
from bisect_train.core.golden import Golden
from bisect_train.core.probe import (
    EnvironmentSettings,
    MetricPattern,
    RestartSettings,
    Rung,
    RunSettings,
    local_ranks,
    num_nodes,
)
from bisect_train.core.verdict import Criterion
from bisect_train.core.when import When


@dataclass(frozen=True, slots=True)
class Metric:
    """The primary metric, the one that decides.

    Attributes:
        name: `loss`, `grad_norm`, ... of the recorder, or a metric of the recipe.
        reduce: first, last, min, max, mean, median, or tail (mean of the last quarter) over the values of one probe.
        better: lower or higher.
        unit: for reports.
        is_paired: whether each probe runs beside the good end on the same worker, and what counts is by how many percent the
            two differ: what a step costs depends on what else the machine does.
    """

    name: str = "loss"
    reduce: str = "tail"
    better: str = "lower"
    unit: str = ""
    is_paired: bool = False


@dataclass(frozen=True, slots=True)
class ConfigEnd:
    """One end's config file that lies outside the repository's history: its path for a person, its content."""

    path: str
    patch: FilePatch


@dataclass(frozen=True, slots=True)
class DataEnd:
    """One end's data at a place in the checkout: where they lie on the machine, and the digest of their content."""

    link: DataLink
    digest: str


@dataclass(frozen=True, slots=True)
class EndState:
    """What one end has beside its commit and its config.

    Attributes:
        env: environment variables that it sets, by name.
        packages: its requirements, one a package (`toyopt==2.0`), by name.
        data: its data, by target.
        command: its training command, where the ends differ in it; () takes the question's.
        ranks: its processes per probe, where the ends differ in it; None takes the rung's.
        python: its interpreter (absolute path), where the ends differ in it; "" takes the settings'.
        interpreter: what `python` is: version, then a digest of what is installed; "" without it.
        image: container image that `{image}` in the launcher stands for, or "".
        hydra: name of the primary Hydra config, then overrides; () where no composition is compared.
    """

    env: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()
    data: tuple[DataEnd, ...] = ()
    command: tuple[str, ...] = ()
    ranks: int | None = None
    python: str = ""
    interpreter: str = ""
    image: str = ""
    hydra: tuple[str, ...] = ()

    @staticmethod
    def of_json(data: dict[str, Any]) -> EndState:
        """Return the state that `asdict` wrote."""
        return EndState(
            env=tuple((pair[0], pair[1]) for pair in data["env"]),
            packages=tuple(data["packages"]),
            data=tuple(DataEnd(DataLink(**item["link"]), item["digest"]) for item in data["data"]),
            command=tuple(data["command"]),
            ranks=data["ranks"],
            python=data.get("python", ""),
            interpreter=data.get("interpreter", ""),
            image=data.get("image", ""),
            hydra=tuple(data.get("hydra", ())),
        )


class ConfigHold(str, Enum):
    """How the config file of the repository is held over a range of commits."""

    TRAVEL = "travel"  # each commit has its own
    GOOD = "good"  # that of the good end everywhere
    BAD = "bad"  # that of the bad end everywhere
    SPLIT = "split"  # its keys are changes of their own, the commits are searched with that of the good end


@dataclass(frozen=True, slots=True)
class Inside:
    """What a question about the inside of a change is about.

    Attributes:
        commit: the commit that is split into its files, hunks and config keys, or "".
        package: the package whose releases between the ends' are the changes, or "".
        releases: its versions from the good end's to the bad end's; of a submodule its two commits.
        package_repo: folder of the package's (or submodule's) repository where its commits are the changes, or "".
        submodule: path in the checkout of the submodule whose commits, or the pieces of whose `commit`, are the changes, or "".
    """

    commit: str = ""
    package: str = ""
    releases: tuple[str, ...] = ()
    package_repo: str = ""
    submodule: str = ""


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
        wall_s: time until the answer, of all its coordinators together, seconds; None without a limit.
        parallel: probes at the same time; None takes what the machine has.
        confidence: posterior at which a change is named and put to the proof.
        reuse: whether results of earlier bisections count.
        second_look: whether a culprit that hangs or gives NaN is run once more with torch's own checks on.
        prune: whether changes that the program was seen not to read need no run.
        early: whether a run of the search is stopped once it has shown which end it is like.
    """

    max_seeds: int = 8
    max_probes: int | None = None
    parallel: int | None = None
    confidence: float = 0.99
    reuse: bool = True
    gpu_hours: float | None = None
    second_look: bool = True
    prune: bool = True
    early: bool = False
    wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One bisection's question.

    Attributes:
        kind: run, check or nightly.
        repo: absolute path of the user's repository.
        range: commits.
        command: training command with placeholders.
        settings: how probes run.
        rung: steps and ranks of the rung that is worked on.
        ladder: all rungs, from the cheapest up; () where there is only the one.
        golden: what a stored baseline says of the good end, by platform and rung.
        expected: (commit, reason) of intended changes: one that is named is labelled, and the search goes on behind it.
        num_earlier_attempts: attempts at a proof on the rungs before this one; they spent their error.
        cpus_follow_ranks: whether a probe has a CPU for each of its ranks, so that another rung takes others.
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
        part_of: id of the bisection that named the change which this one looks into, or "".
        good_state, bad_state: what the ends have beside commits and configs; what differs in them are changes.
        hold: how the repository's config file is held over the commits; where it does not travel, `good_config` and
            `bad_config` are what is written in its place.
        only: kinds of changes that are searched; the others are as the bad end has them. () searches all.
        exclude: ids or keys of changes that are not searched: everything has them as the bad end does.
        left_out: keys of changes that are not searched either: everything has them as the good end does.
        inside: what is split, in a question about the inside of a change.
        package_repos: (name, folder) of clones of packages' repositories.
        launcher: arguments that stand before the whole command; `{image}` in them is the end's container image.
        repeats: whether runs are known to repeat bitwise, from the bisection that this one is a part of.
        hydra_dir: directory of Hydra configs in the tree, where the ends' compositions are compared; else "".
        whens: what the recipe says for some states only, in its order.
        symptom: name of the symptom (`verdict.triage.SYMPTOMS`) whose presence makes a run bad; "" asks for none.
        ends_only: whether the ends are told apart and nothing is searched.
        first_seed: where only the ends are told apart, the seed index with which they begin; larger ones are runs of their own.
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
    good_state: EndState = EndState()
    bad_state: EndState = EndState()
    hold: ConfigHold = ConfigHold.TRAVEL
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    inside: Inside = Inside()
    package_repos: tuple[tuple[str, str], ...] = ()
    launcher: tuple[str, ...] = ()
    hydra_dir: str = ""
    repeats: bool = False
    symptom: str = ""
    ladder: tuple[Rung, ...] = ()
    num_earlier_attempts: int = 0
    cpus_follow_ranks: bool = False
    whens: tuple[When, ...] = ()
    golden: tuple[Golden, ...] = ()
    expected: tuple[tuple[str, str], ...] = ()
    ends_only: bool = False
    first_seed: int = 0

    @property
    def rung_idx(self) -> int:
        """Place of the rung on the ladder, from 0."""
        return self.ladder.index(self.rung) if self.rung in self.ladder else 0

    @property
    def is_last_rung(self) -> bool:
        """Whether no rung comes after this one."""
        return self.rung_idx + 1 >= len(self.ladder)

    @property
    def gpus_of_probe(self) -> float:
        """GPUs that one probe takes on all its nodes, on the largest rung: what a limit counts is never too little."""
        ranks = max([self.bad_state.ranks or 1, self.rung.ranks, *(rung.ranks for rung in self.ladder)])
        return self.settings.gpus * num_nodes(ranks, self.settings.ranks_per_node)

    def at_rung(self, idx: int) -> Question:
        """Return the question on another rung of its ladder: its steps, ranks and overrides, and CPUs for these ranks."""
        rung = self.ladder[idx]
        command = _with_overrides(self.command, self.rung.overrides, rung.overrides)
        settings = self.settings
        if self.cpus_follow_ranks:
            more = local_ranks(rung.ranks, settings.ranks_per_node) - local_ranks(self.rung.ranks, settings.ranks_per_node)
            settings = replace(settings, cpus=max(1.0, settings.cpus + more))
        ranks = max(rung.ranks, self.bad_state.ranks or 1)
        settings = replace(settings, nodes=num_nodes(ranks, settings.ranks_per_node))
        return replace(self, rung=rung, command=command, settings=settings)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return asdict(self)

    @staticmethod
    def of_json(data: dict[str, Any]) -> Question:
        """Return the question that `to_json` wrote. Raises MachineError: it did not write this."""
        try:
            return Question._of_json(data)
        except MISSHAPEN as error:
            raise damaged("a stored question", error) from error

    @staticmethod
    def _of_json(data: dict[str, Any]) -> Question:
        kept = dict(data)
        for name in ("good_config", "bad_config"):
            end = data.get(name)
            kept[name] = ConfigEnd(end["path"], FilePatch(**end["patch"])) if end else None
        kept["range"] = Range(**_tuples(data["range"]))
        kept["command"] = tuple(data["command"])
        kept["priors"] = tuple(data.get("priors", ()))
        kept["whens"] = tuple(When.of_json(item) for item in data.get("whens", ()))
        kept["fixups"] = tuple(_fixup_of_json(item) for item in data.get("fixups", ()))
        kept["settings"] = _settings_of_json(data["settings"])
        kept["rung"] = Rung(**_tuples(data["rung"]))
        kept["golden"] = tuple(Golden.of_json(item) for item in data.get("golden", ()))
        kept["expected"] = tuple((pair[0], pair[1]) for pair in data.get("expected", ()))
        kept["ladder"] = tuple(Rung(**_tuples(item)) for item in data.get("ladder", ()))
        kept["metric"] = Metric(**data["metric"])
        kept["criterion"] = Criterion(data["criterion"])
        kept["env"] = tuple((pair[0], pair[1]) for pair in data["env"])
        kept["limits"] = Limits(**data["limits"])
        for name in ("good_state", "bad_state"):
            kept[name] = EndState.of_json(data[name]) if name in data else EndState()
        kept["hold"] = ConfigHold(data.get("hold", "travel"))
        kept["inside"] = Inside(**_tuples(data.get("inside", {})))
        kept |= {name: tuple(data.get(name, ())) for name in ("only", "exclude", "left_out", "launcher")}
        kept["package_repos"] = tuple((pair[0], pair[1]) for pair in data.get("package_repos", ()))
        return Question(**kept)


def _fixup_of_json(data: dict[str, Any]) -> Fixup:
    return Fixup(data["path"], data["text"], tuple((path, mode, text) for path, mode, text in data["base"]))


def _with_overrides(command: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command with the overrides of one rung, which stand right before `{overrides}`, replaced by another's."""
    if old == new or "{overrides}" not in command:
        return command
    at = command.index("{overrides}")
    return (*command[: at - len(old)], *new, *command[at:])


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, (list, tuple)) else value for key, value in data.items()}


def _settings_of_json(data: dict[str, Any]) -> RunSettings:
    kept = _tuples(data)
    kept["links"] = tuple(DataLink(**item) for item in data["links"])
    kept["patterns"] = tuple(MetricPattern(**_tuples(item)) for item in data["patterns"])
    kept["setup"] = tuple(tuple(item) for item in data["setup"])
    kept["environment"] = EnvironmentSettings(**_tuples(data.get("environment", {})))
    kept["debug_env"] = tuple((pair[0], pair[1]) for pair in data.get("debug_env", ()))
    kept["custom"] = tuple((pair[0], pair[1]) for pair in data.get("custom", ()))
    kept["restart"] = RestartSettings(**_tuples(data["restart"])) if data.get("restart") else None
    return RunSettings(**kept)
