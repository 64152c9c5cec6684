"""What requests may say: strict, bounded, nothing unknown. Paths, revisions and names are checked here and again where used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
BISECTION_ID = r"^[0-9a-f]{8}$"
PROBE_KEY = r"^[0-9a-f]{4,64}$"
REVISION = r"^[A-Za-z0-9_.@][A-Za-z0-9_./@^~{}+-]{0,199}$"
METRIC = r"^[A-Za-z_][A-Za-z0-9_./ -]{0,99}$"
ASSIGNMENT = r"^[A-Za-z_][A-Za-z0-9_.\[\]-]{0,199}=[^\x00-\x1f]{0,500}$"
GLOB = r"^[^\x00-\x1f:]{1,300}$"
WORD = r"^[^\x00]{0,4000}$"

Name = Annotated[str, StringConstraints(pattern=NAME)]
Revision = Annotated[str, StringConstraints(pattern=REVISION)]
TreePath = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\\:/][^\x00-\x1f\\:]{0,299}$")]
Assignment = Annotated[str, StringConstraints(pattern=ASSIGNMENT)]
Glob = Annotated[str, StringConstraints(pattern=GLOB)]
Word = Annotated[str, StringConstraints(pattern=WORD)]
Steps = Annotated[int, Field(ge=1, le=10_000_000)] | Literal["end"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Options(_Strict):
    """How probes run, are judged, and what may be spent; what is left out is as on the command line."""

    steps: Steps | None = Field(default=None, description="Optimizer steps of a probe, or `end`.")
    ranks: int | None = Field(default=None, ge=1, le=4096, description="Processes per probe.")
    gpus: float | None = Field(default=None, ge=0, le=4096, description="GPUs per probe.")
    seeds: int | None = Field(default=None, ge=5, le=64, description="Seeds per end, at most.")
    metric: Annotated[str, StringConstraints(pattern=METRIC)] | None = None
    min_effect: float | None = Field(default=None, gt=0, le=1e12)
    criterion: Literal["auto", "exact", "statistical", "symptom"] = "auto"
    any_change: bool = False
    parallel: int | None = Field(
        default=None, ge=1, le=4096, description="Probes at a time, at most; the service may give fewer."
    )
    confidence: float = Field(default=0.99, ge=0.5, le=0.9999)
    max_probes: int | None = Field(default=None, ge=1, le=100_000)
    budget_gpu_hours: float | None = Field(default=None, gt=0, le=1e6)
    timeout_s: float | None = Field(default=None, gt=0, le=7 * 86_400)
    deterministic: bool = False
    first_parent: bool = True
    paths: list[Glob] = Field(default=[], max_length=32)
    skip: list[Revision] = Field(default=[], max_length=200)


_DIFFERS = "another config file (other_config) and keys to change (settings)"


class Submission(_Strict):
    """A question: which change made it worse (`run`), or is this change safe (`check`)?

    `run` compares revisions. `check` compares config files of one revision (`config` and `other_config`, or `config` and
    `settings`), or without them two revisions, of which the good one is known to be good.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"kind": "run", "repository": "demo", "good": ["v1"], "bad": "main"}]},
    )

    kind: Literal["run", "check"] = "run"
    repository: Name
    good: list[Revision] = Field(default=[], max_length=8)
    bad: Revision = "HEAD"
    recipe: Name | None = Field(default=None, description="A recipe of the service; else the repository's bisect-train.yaml.")
    config: TreePath | None = Field(default=None, description="Config file in the repository.")
    other_config: TreePath | None = Field(default=None, description="check: the config file to compare it with.")
    settings: list[Assignment] = Field(default=[], max_length=64, description="check: keys to change, KEY=VALUE.")
    command: list[Word] = Field(default=[], max_length=200, description="A training command; administrators only.")
    options: Options = Options()

    @model_validator(mode="after")
    def _fits(self) -> Submission:
        if self.kind == "run" and not self.good:
            raise ValueError("a run needs a good revision")
        if self.kind == "run" and (self.other_config or self.settings):
            raise ValueError(f"{_DIFFERS} are for a check")
        if self.kind == "check" and (self.other_config or self.settings) and not self.config:
            raise ValueError(f"{_DIFFERS} change a config, and none was named")
        if self.kind == "check" and not self.config and len(self.good) != 1:
            raise ValueError("a check of the code needs one good revision; of a config, the config and what differs")
        if self.kind == "check" and self.config and not (self.other_config or self.settings):
            raise ValueError("a check of a config needs another config file (other_config) or keys to change (settings)")
        return self


class Mark(_Strict):
    """What a person says of a version."""

    revision: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{1,200}$")]
    verdict: Literal["good", "bad", "untestable", "clear"]


class Undo(_Strict):
    """How many observations or marks are taken back, the newest first."""

    last: int = Field(default=1, ge=1, le=1000)


class Resume(_Strict):
    """New limits of a bisection that goes on; what is left out stays."""

    max_probes: int | None = Field(default=None, ge=1, le=100_000)
    budget_gpu_hours: float | None = Field(default=None, gt=0, le=1e6)


class Login(_Strict):
    """A token, for a session of the page."""

    token: Annotated[str, StringConstraints(min_length=8, max_length=200)]
