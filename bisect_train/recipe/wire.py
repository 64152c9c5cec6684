"""The recipe file's shape (pydantic): which keys there are, their types, and the rules that concern one key.

Nothing is coerced: `steps: "10"` is an error, since a recipe that means something else than it says costs hours of
probes.
"""

from __future__ import annotations

import difflib
import re
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bisect_train.core.amounts import parse_size
from bisect_train.core.errors import RecipeError
from bisect_train.core.probe import METRIC_SOURCES
from bisect_train.recipe.overrides import check_override

RAY_RESOURCES = {"CPU": "cpus", "GPU": "gpus", "memory": "memory"}
"""Keys of `resources:` by Ray's names of what they stand for."""


class WireModel(BaseModel):
    """Base of all parts of a recipe: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _argument_list(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("a command is a list of arguments, no shell sees it: [python, train.py]")
    if isinstance(value, list) and not value:
        raise ValueError("the command is empty; write it as a list: [python, train.py]")
    return value


def _program(value: list[str]) -> list[str]:
    if not value[0].strip():
        raise ValueError("the command names no program; write it as a list: [python, train.py]")
    if any("\0" in item for item in value):
        raise ValueError("an argument holds a NUL character")
    return value


def _one_or_many(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def inside_checkout(text: str) -> str:
    """Return a path in the checkout in its shortest form.

    Raises:
        ValueError: it is absolute, leads out of the checkout, or is the checkout or its git folder.
    """
    path = PurePosixPath(text)
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and not parts:
            raise ValueError(f"{text!r} leads out of the checkout")
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    if path.is_absolute() or text.startswith("~"):
        raise ValueError(f"{text!r} must be relative to the checkout")
    if not parts or parts[0] == ".git" or "\0" in text:
        raise ValueError(f"{text!r} is no place for files in the checkout")
    return "/".join(parts)


def _pattern(text: str) -> str:
    try:
        num_groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if not num_groups:
        raise ValueError("the pattern needs a group around the number: 'loss ([0-9.]+)'")
    return text


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if not text:
        raise ValueError("an empty expression is found everywhere")
    return text


def _module(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"{text!r} is no top-level module, such as wandb")
    return text


def _step_function(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text):
        raise ValueError(f"{text!r} names no function: write package.module:Class.method, or package.module:function")
    if text.startswith("__main__:") and "." not in text:
        raise ValueError("of a script that python runs only a method can be named: __main__:Class.method")
    return text


def _memory(value: Any) -> Any:
    """Return bytes; a size may be given as text."""
    return parse_size(value) if isinstance(value, str) else value


def _whole_above_one(amount: float) -> float:
    if amount > 1 and amount != int(amount):
        raise ValueError(f"Ray shares out parts of one, and above that whole numbers only: {int(amount)} or {int(amount) + 1}")
    return amount


def _own_resource(text: str) -> str:
    if text in RAY_RESOURCES or ":" in text:
        raise ValueError(f"{text!r} is Ray's own: give `{RAY_RESOURCES.get(text, 'accelerator')}` beside `custom`")
    return text


def _override(text: str) -> str:
    try:
        check_override(text)
    except RecipeError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"{text!r} is no name of an environment variable")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("the value holds a NUL character")
    return text


Command = Annotated[list[str], BeforeValidator(_argument_list), AfterValidator(_program)]
CheckoutPath = Annotated[str, AfterValidator(inside_checkout)]
Variable = Annotated[str, AfterValidator(_variable)]
Positive = Annotated[int, Field(gt=0)]


class ConfigWire(WireModel):
    """`config:`."""

    file: CheckoutPath | None = None
    override: Annotated[str, AfterValidator(_override)] | None = None
    hydra: CheckoutPath | None = None


Steps = Annotated[list[Positive | Literal["end"]], BeforeValidator(_one_or_many), Field(min_length=1)]
Ranks = Annotated[list[Positive], BeforeValidator(_one_or_many), Field(min_length=1)]


class AccumulationWire(WireModel):
    """`shrink.accumulation:`: the config key of gradient accumulation, and its value on the most ranks of the ladder."""

    key: Annotated[str, Field(min_length=1)]
    value: Positive


class ShrinkWire(WireModel):
    """`shrink:`."""

    steps: Steps | None = None
    ranks: Ranks | None = None
    set: dict[Annotated[str, Field(min_length=1)], str | bool | int | float | list[Any] | None] = {}
    accumulation: AccumulationWire | None = None

    @model_validator(mode="after")
    def _has_ranks(self) -> ShrinkWire:
        if self.accumulation is not None and not self.ranks:
            raise ValueError("accumulation needs ranks: its value is that on the most of them")
        return self

    @model_validator(mode="after")
    def _is_ordered(self) -> ShrinkWire:
        steps = [float("inf") if item == "end" else item for item in self.steps or []]
        ranks = list(self.ranks or [])
        for name, values in (("steps", steps), ("ranks", ranks)):
            if any(left >= right for left, right in pairwise(values)):
                raise ValueError(f"{name} go from small to large, `end` last")
        return self


class LinkWire(WireModel):
    """An item of `data.link:` in its long form."""

    source: Annotated[str, Field(alias="from", min_length=1)]
    target: Annotated[CheckoutPath, Field(alias="to")]


def _link(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        if "://" in value:
            raise ValueError("an address says nothing of its place in the checkout")
        inside_checkout(value)
    except ValueError as error:
        raise ValueError(f"{error}; write {{from: {value}, to: PATH_IN_THE_CHECKOUT}}") from None
    return {"from": value, "to": value}


class DataWire(WireModel):
    """`data:`."""

    link: list[Annotated[LinkWire, BeforeValidator(_link)]] = []
    env: dict[Variable, Annotated[str, AfterValidator(_no_nul)]] = {}

    @model_validator(mode="after")
    def _targets_are_apart(self) -> DataWire:
        targets = [item.target for item in self.link]
        for idx, target in enumerate(targets):
            for other in targets[idx + 1 :]:
                if f"{target}/".startswith(f"{other}/") or f"{other}/".startswith(f"{target}/"):
                    raise ValueError(f"two links share a place in the checkout: {target} and {other}")
        return self


class SetupWire(WireModel):
    """`setup:`."""

    run: list[Command] = []
    inputs: list[CheckoutPath] = []


def _source(text: Any) -> Any:
    if not isinstance(text, str) or text in METRIC_SOURCES:
        return text
    near = difflib.get_close_matches(text.lower(), METRIC_SOURCES, n=1, cutoff=0.5)
    known = ", ".join(METRIC_SOURCES)
    raise ValueError(f"no such source; {f'did you mean {near[0]}? ' if near else ''}known ones: {known}")


def _glob(text: str) -> str:
    """Return a glob of files in the checkout or, where it begins with `{out}/`, in the output folder."""
    inside_checkout(text.removeprefix("{out}/"))
    if any(part in (".", "..") for part in PurePosixPath(text).parts) or text.endswith("/"):
        raise ValueError("a glob names files, without `.` and `..`: runs/**/metrics.csv, {out}/metrics.csv")
    return text


class MetricWire(WireModel):
    """An item of `metrics:`."""

    source: Annotated[str, BeforeValidator(_source), Field(alias="from")] = "log"
    pattern: Annotated[list[Annotated[str, AfterValidator(_pattern)]], BeforeValidator(_one_or_many)]
    tag: Annotated[str, Field(min_length=1)] | None = None
    column: Annotated[str, Field(min_length=1)] | None = None
    key: Annotated[str, Field(min_length=1)] | None = None
    step: Annotated[str, Field(min_length=1)] | None = None
    file: Annotated[list[Annotated[str, AfterValidator(_glob)]], BeforeValidator(_one_or_many)] = []
    better: Literal["lower", "higher"] = "lower"
    reduce: Literal["first", "last", "min", "max", "mean", "median", "tail"] = "tail"
    unit: str = ""
    paired: bool = False

    @model_validator(mode="before")
    @classmethod
    def _needs_no_pattern(cls, data: Any) -> Any:
        """Only the log needs a pattern."""
        is_file = isinstance(data, dict) and data.get("from", "log") != "log"
        return {"pattern": [], **data} if is_file else data

    @model_validator(mode="after")
    def _has_what_its_source_takes(self) -> MetricWire:
        taken = _TAKEN[self.source]
        for name in ("pattern", "tag", "column", "key", "step", "file"):
            if getattr(self, name) and name not in taken:
                raise ValueError(f"`{name}` has no place under `from: {self.source}`, which takes {', '.join(taken)}")
        if self.source == "log" and not self.pattern:
            raise ValueError("`from: log` lacks `pattern`, a regular expression with a group around the number")
        return self


_TAKEN = {
    "log": ("pattern",),
    "tensorboard": ("tag", "file"),
    "csv": ("column", "step", "file"),
    "jsonl": ("key", "step", "file"),
    "json": ("key", "step", "file"),
    "wandb": ("key", "step", "file"),
    "mlflow": ("key", "file"),
}


class ResourcesWire(WireModel):
    """`resources:`."""

    cpus: Annotated[float, Field(gt=0), AfterValidator(_whole_above_one)] | None = None
    gpus: Annotated[float, Field(ge=0), AfterValidator(_whole_above_one)] | None = None
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    threads: Positive | None = None
    memory: Annotated[int, BeforeValidator(_memory), Field(gt=0)] | None = None
    custom: dict[
        Annotated[str, Field(min_length=1), AfterValidator(_own_resource)],
        Annotated[float, Field(gt=0), AfterValidator(_whole_above_one)],
    ] = {}
    accelerator: Annotated[str, Field(min_length=1)] | None = None
    ranks_per_node: Positive | None = None


class EnvironmentWire(WireModel):
    """`environment:`."""

    mode: Literal["inherit", "overlay", "uv"] | None = None
    files: list[CheckoutPath] = []
    find_links: list[Annotated[str, Field(min_length=1)]] = []
    index: str = ""
    package_repos: dict[Annotated[str, Field(min_length=1)], Annotated[str, Field(min_length=1)]] = {}


class SeedsWire(WireModel):
    """`seeds:`."""

    exempt: list[int] = []


class RestartWire(WireModel):
    """`restart:`."""

    save_at: Annotated[int, Field(ge=0)]
    kill: bool = True
    command: Command
    ranks: Positive | None = None

    @model_validator(mode="after")
    def _has_no_overrides(self) -> RestartWire:
        if any("{overrides}" in item for item in self.command):
            raise ValueError(
                '{overrides} has no place here; write "{command}" for all of the training command: ["{command}", --resume]'
            )
        return self


class WhenMetricWire(WireModel):
    """An item of `when: metrics:`: how a metric of the recipe is printed in these states."""

    pattern: Annotated[str, AfterValidator(_pattern)]


class WhenWire(WireModel):
    """An item of `when:`: conditions, all of which must hold, and what they change."""

    since: Annotated[str, Field(min_length=1)] | None = None
    until: Annotated[str, Field(min_length=1)] | None = None
    exists: CheckoutPath | None = None
    file: CheckoutPath | None = None
    contains: Annotated[str, AfterValidator(_expression)] | None = None
    lacks: Annotated[str, AfterValidator(_expression)] | None = None
    command: Command | None = None
    data: DataWire = DataWire()
    metrics: dict[str, WhenMetricWire] = {}

    @model_validator(mode="after")
    def _has_both_halves(self) -> WhenWire:
        if (self.contains or self.lacks) and not self.file:
            raise ValueError("contains and lacks are about a file: name it with `file: PATH`")
        if self.file and not (self.contains or self.lacks):
            raise ValueError("file says where to look: add `contains:` or `lacks:`, or write `exists: PATH`")
        if not (self.since or self.until or self.exists or self.file):
            raise ValueError("a block needs a condition: since, until, exists, or file with contains or lacks")
        if not (self.command or self.data.link or self.data.env or self.metrics):
            raise ValueError("a block changes something: command, data or metrics")
        return self


class RequiresWire(WireModel):
    """`requires:`: what a machine must have; `init` and `recipes` say so before anything runs."""

    modules: list[Annotated[str, AfterValidator(_module)]] = []
    gpus: Annotated[int, Field(ge=0)] = 0


class RecogniseWire(WireModel):
    """`recognise:`: by what `init` tells that a repository is of this preset, and what it looks for there."""

    order: int = 100
    files: list[Annotated[str, Field(min_length=1)]] = []
    source: Annotated[str, AfterValidator(_expression)] | None = None
    link: list[Annotated[str, Field(min_length=1)]] = []


class RecipeWire(WireModel):
    """A recipe file."""

    command: Command | None = None
    config: ConfigWire = ConfigWire()
    shrink: ShrinkWire = ShrinkWire()
    data: DataWire = DataWire()
    setup: SetupWire = SetupWire()
    metric: Annotated[str, Field(min_length=1)] | None = None
    metrics: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_./-]*$")], MetricWire] = {}
    stubs: list[Annotated[str, AfterValidator(_module)]] = []
    step_function: Annotated[str, AfterValidator(_step_function)] | None = None
    shims: list[Literal["cuda-as-cpu"]] = []
    when: list[WhenWire] = []
    resources: ResourcesWire = ResourcesWire()
    environment: EnvironmentWire = EnvironmentWire()
    private: list[Variable] = []
    seeds: SeedsWire = SeedsWire()
    judge: Command | None = None
    launcher: list[str] = []
    restart: RestartWire | None = None
    extends: Annotated[str, Field(min_length=1)] | None = None
    about: str = ""
    requires: RequiresWire = RequiresWire()
    cannot: list[str] = []
    recognise: RecogniseWire | None = None


MODELS: dict[tuple[str, ...], type[WireModel]] = {
    (): RecipeWire,
    ("config",): ConfigWire,
    ("shrink",): ShrinkWire,
    ("data",): DataWire,
    ("data", "link", "*"): LinkWire,
    ("setup",): SetupWire,
    ("metrics", "*"): MetricWire,
    ("resources",): ResourcesWire,
    ("environment",): EnvironmentWire,
    ("seeds",): SeedsWire,
    ("restart",): RestartWire,
    ("requires",): RequiresWire,
    ("recognise",): RecogniseWire,
    ("when", "*"): WhenWire,
    ("when", "*", "data"): DataWire,
    ("when", "*", "data", "link", "*"): LinkWire,
    ("when", "*", "metrics", "*"): WhenMetricWire,
}
"""Which model stands at which place; `*` is any name or index."""


def known_keys(place: tuple[str | int, ...]) -> list[str]:
    """Return the keys that a place in a recipe has, in the order of the models; [] where any name is allowed."""
    for pattern, model in MODELS.items():
        if len(pattern) == len(place) and all(want in ("*", got) for want, got in zip(pattern, place, strict=True)):
            return [info.alias or name for name, info in model.model_fields.items()]
    return []
