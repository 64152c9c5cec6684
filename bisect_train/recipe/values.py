"""A recipe as the rest of the program sees it: frozen, complete, with paths still relative to the repository."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bisect_train.core.changes import DataLink
from bisect_train.core.errors import RecipeError
from bisect_train.core.probe import MetricPattern, RestartSettings
from bisect_train.core.question import Metric
from bisect_train.recipe.overrides import override_text


@dataclass(frozen=True, slots=True)
class ConfigRecipe:
    """Where `{config}` comes from, and how a key is given on the command line.

    Attributes:
        file: config file in the repository, "" without one.
        override: template such as `{key}={value}`, "" if keys cannot be given on the command line.
        hydra: directory of Hydra configs in the repository, "" without one.
    """

    file: str = ""
    override: str = ""
    hydra: str = ""


@dataclass(frozen=True, slots=True)
class ShrinkRecipe:
    """How a probe is made smaller.

    Attributes:
        steps: optimizer steps of the rungs, from small to large; None lets the program finish; () takes the default.
        ranks: processes per probe of the rungs, from small to large; () takes the default.
        set: (key, value as text) of the config keys that scale the run and nothing else.
        accumulation: (key, value) of gradient accumulation on the most `ranks`; fewer ranks accumulate more, so that the
            batch stays as it is. None leaves it alone.
    """

    steps: tuple[int | None, ...] = ()
    ranks: tuple[int, ...] = ()
    set: tuple[tuple[str, str], ...] = ()
    accumulation: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class DataRecipe:
    """Untracked data.

    Attributes:
        links: (source as written, target in the checkout).
        env: environment variables for the program.
    """

    links: tuple[DataLink, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    def links_from(self, repo: Path) -> tuple[DataLink, ...]:
        """Return the links with absolute sources; relative ones start at the repository, `~` at home; addresses stay."""
        return tuple(link if link.is_remote else _absolute(link, repo) for link in self.links)


def _absolute(link: DataLink, repo: Path) -> DataLink:
    return DataLink(str((repo / Path(link.source).expanduser()).absolute()), link.target)


@dataclass(frozen=True, slots=True)
class SetupRecipe:
    """Commands run in the checkout before the program, and the files of the checkout that their outcome depends on."""

    run: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricRecipe:
    """A metric read from what the program prints or writes, see `core.probe.MetricPattern` and `core.question.Metric`."""

    reader: MetricPattern
    better: str = "lower"
    reduce: str = "tail"
    unit: str = ""
    is_paired: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.reader.name

    def to_pattern(self) -> MetricPattern:
        """Return what a worker needs to read the metric."""
        return self.reader

    def to_metric(self) -> Metric:
        """Return the metric as the primary metric of a question."""
        return Metric(self.name, self.reduce, self.better, "%" if self.is_paired else self.unit, self.is_paired)


@dataclass(frozen=True, slots=True)
class ResourcesRecipe:
    """Resources of one probe; None takes the default. `timeout_s` in seconds, `threads` per rank, `memory` in bytes.

    `custom`, (name, amount), and `accelerator` are a cluster's own words, see `core.probe.RunSettings`. With `ranks_per_node`
    all of them are those of one node.
    """

    cpus: float | None = None
    gpus: float | None = None
    timeout_s: float | None = None
    threads: int | None = None
    memory: int | None = None
    custom: tuple[tuple[str, float], ...] = ()
    accelerator: str = ""
    ranks_per_node: int = 0


@dataclass(frozen=True, slots=True)
class EnvironmentRecipe:
    """Packages that come and go.

    Attributes:
        mode: inherit, overlay or uv; "" takes the default.
        files: requirement files in the repository: each commit runs with what its own files name.
        find_links: folders with wheels, as written.
        index: address of the package index, "" for the installer's own.
        package_repos: (name, folder as written) of clones of packages' repositories.
    """

    mode: str = ""
    files: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    index: str = ""
    package_repos: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RestartRecipe:
    """How a run is interrupted and goes on, see `core.probe.RestartSettings`; for questions about restarts."""

    save_at: int
    command: tuple[str, ...]
    ranks: int | None = None
    kill: bool = True

    def to_settings(self, steps: int | None, *, path: str) -> RestartSettings:
        """Return the settings of probes of so many steps (None: to the end).

        Raises:
            RecipeError: the resumed run would have no step left.
        """
        if steps is not None and self.save_at >= steps - 1:
            most = f"at most {steps - 2}" if steps > 1 else "and one step cannot be interrupted"
            raise RecipeError(
                f"{path}: restart.save_at: {self.save_at} leaves no step for the resumed run: a probe has {steps} "
                f"step{'s' if steps != 1 else ''}, counted from 0, so {most}",
                hint="take a smaller save_at, or more steps (`shrink: {steps: N}`, --steps N)",
            )
        return RestartSettings(self.save_at, self.command, self.ranks, self.kill)


@dataclass(frozen=True, slots=True)
class WhenRecipe:
    """A block of `when:` as written; see `core.when.When`. `since` and `until` are revisions, links are not resolved yet."""

    where: str
    since: str = ""
    until: str = ""
    exists: str = ""
    file: str = ""
    contains: str = ""
    lacks: str = ""
    command: tuple[str, ...] = ()
    data: DataRecipe = field(default_factory=DataRecipe)
    patterns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RecogniseRecipe:
    """By what a repository is told to be of a preset.

    Attributes:
        order: presets with a smaller one are tried first.
        files: globs, each of which must match a tracked file.
        source: regular expression that must be found in a python file; "" asks for none.
        link: globs of untracked data that a checkout needs, where they are there.
    """

    order: int = 100
    files: tuple[str, ...] = ()
    source: str = ""
    link: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to run a probe.

    Attributes:
        path: of the recipe file, for messages.
        command: training command with placeholders; () if it has to be given on the command line.
        private: environment variables whose folders become private to each probe.
        exempt_seeds: seeds that are never shifted.
        judge: judging command, or ().
        launcher: arguments that stand before the whole command, such as those that start a container; or ().
        restart: how a run is interrupted and resumed, None for ordinary runs.
        about: one line about what the recipe is for, "" without one.
        cannot: what its probes cannot do or see, as notes for a person.
        needs_modules, needs_gpus: what a machine must have.
        recognise: by what `init` tells a repository of this preset, None for a recipe that is none.
        metric_name: the metric that decides unless an option names another; "" takes the first of `metrics`, else the loss.
        stubs: modules that an inert stand-in takes the place of where they are not installed.
        shims: what stands in for hardware, see `core.probe.SHIMS`.
        step_function: `package.module:Class.method` whose calls are the steps, "" where torch's hooks tell them.
        whens: what holds for some states only.
        notes: what its author should know, such as keys with another name now.
    """

    path: str = ""
    command: tuple[str, ...] = ()
    config: ConfigRecipe = field(default_factory=ConfigRecipe)
    shrink: ShrinkRecipe = field(default_factory=ShrinkRecipe)
    data: DataRecipe = field(default_factory=DataRecipe)
    setup: SetupRecipe = field(default_factory=SetupRecipe)
    metrics: tuple[MetricRecipe, ...] = ()
    resources: ResourcesRecipe = field(default_factory=ResourcesRecipe)
    environment: EnvironmentRecipe = field(default_factory=EnvironmentRecipe)
    private: tuple[str, ...] = ()
    exempt_seeds: tuple[int, ...] = ()
    judge: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    restart: RestartRecipe | None = None
    about: str = ""
    cannot: tuple[str, ...] = ()
    needs_modules: tuple[str, ...] = ()
    needs_gpus: int = 0
    recognise: RecogniseRecipe | None = None
    metric_name: str = ""
    stubs: tuple[str, ...] = ()
    step_function: str = ""
    shims: tuple[str, ...] = ()
    whens: tuple[WhenRecipe, ...] = ()
    notes: tuple[str, ...] = ()

    def restart_settings(self, steps: int | None) -> RestartSettings | None:
        """Return how probes of so many steps are interrupted. Raises RecipeError: no step is left to be resumed."""
        return self.restart.to_settings(steps, path=self.path or "the recipe") if self.restart else None

    def links_from(self, repo: Path) -> tuple[DataLink, ...]:
        """Return the data links with absolute sources; relative ones start at the repository, `~` at home."""
        return self.data.links_from(repo)

    def shrink_overrides(self) -> tuple[str, ...]:
        """Return the keys that scale the run as arguments for the command line, the same at both ends."""
        return tuple(override_text(self.config.override, key, value) for key, value in self.shrink.set)

    def accumulation_overrides(self, ranks: int) -> tuple[str, ...]:
        """Return the argument that keeps the batch on so many ranks, () where the recipe has none.

        Raises:
            RecipeError: the most ranks are no multiple of these.
        """
        if self.shrink.accumulation is None:
            return ()
        (key, value), most = self.shrink.accumulation, max(self.shrink.ranks)
        if most % ranks:
            raise RecipeError(
                f"{self.path}: shrink.accumulation: {value} on {most} ranks cannot be kept on {ranks}: {most} is no multiple",
                hint="take ranks that divide the largest number of shrink.ranks",
            )
        return (override_text(self.config.override, key, str(value * most // ranks)),)

    def metric(self, name: str) -> MetricRecipe:
        """Return a metric by name.

        Raises:
            RecipeError: the recipe has no such metric.
        """
        for metric in self.metrics:
            if metric.name == name:
                return metric
        known = ", ".join(metric.name for metric in self.metrics) or "none"
        raise RecipeError(f"{self.path or 'the recipe'} has no metric {name!r}", hint=f"metrics in the recipe: {known}")
