"""Two config files -> one change per key that differs, and the file that any set of them gives.

One change is a leaf key. A list is one change unless both have the same length, then each item is; so are the documents
of a YAML file of several. A section that is new or gone is one change per leaf key in it. With an override template
lists are never taken apart, since programs do not understand `betas[1]=0.95`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.changes.config_bounds import problem_of_references, problem_of_value
from bisect_train.changes.config_edits import Edit, apply_edits, change_of, find_edits
from bisect_train.changes.config_formats import (
    ConfigKind,
    ParsedConfig,
    config_kind_of,
    edited_text,
    parse_config,
    parse_pair,
    read_config,
    read_scalar,
)
from bisect_train.changes.config_paths import (
    ABSENT,
    Opaque,
    Path,
    get_at,
    has_plain_path,
    is_same,
    path_text,
    paths_of,
    scalar_text,
)
from bisect_train.core.changes import Change, FilePatch
from bisect_train.core.errors import RecipeError, UnbuildableError
from bisect_train.core.question import ConfigEnd
from bisect_train.core.secrets import mask_assignment
from bisect_train.recipe.overrides import override_text

__all__ = ["ConfigDiff", "ConfigKind", "apply_settings", "config_kind_of", "diff_configs", "read_config"]


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """How two config files differ, and what any set of the changes gives.

    Attributes:
        good, bad: the two files.
        changes: one per leaf key that differs, in the good file's order, new keys last.
        edits: what each change does to the good file, in the order of `changes`.
        parsed: the good file's values.
        same_format: whether the bad file has the good file's format.
        override: template for keys given on the command line, or "".
    """

    good: ConfigEnd
    bad: ConfigEnd
    changes: tuple[Change, ...]
    edits: tuple[Edit, ...]
    parsed: ParsedConfig
    same_format: bool
    override: str = ""

    def render(self, chosen: Iterable[Change | str]) -> FilePatch:
        """Return the good file with the chosen changes applied, under the good file's name.

        The empty set gives the good file's exact text, the full set the bad file's (written in the good file's
        format if theirs differ). Everything else reads back, through the same loader, to exactly the values meant.

        Args:
            chosen: changes, or their ids, in any order.
        Raises:
            ValueError: one of them is no change of this diff.
            UnbuildableError: the format cannot hold this set of values, though it holds the bad file's.
        """
        picked = self._picked(chosen)
        name = self.good.patch.name
        if not picked:
            return FilePatch(name, self.good.patch.text)
        if len(picked) == len(self.changes) and self.same_format:
            return FilePatch(name, self.bad.patch.text)
        try:
            return FilePatch(name, edited_text(self.good, self.parsed, [self.edits[idx] for idx in picked]))
        except RecipeError as error:
            raise UnbuildableError(error.message, hint=error.hint) from None

    def overrides(self, chosen: Iterable[Change | str]) -> tuple[str, ...]:
        """Return the chosen changes as command-line arguments, in the order of `changes`; () without a template."""
        if not self.override:
            return ()
        return tuple(
            override_text(self.override, self.changes[idx].id, scalar_text(self.edits[idx].value))
            for idx in self._picked(chosen)
        )

    def _picked(self, chosen: Iterable[Change | str]) -> list[int]:
        ids = {item if isinstance(item, str) else item.id for item in chosen}
        unknown = ids - {change.id for change in self.changes}
        if unknown:
            raise ValueError(f"no such config change: {', '.join(sorted(unknown))}")
        return [idx for idx, change in enumerate(self.changes) if change.id in ids]


def diff_configs(good: ConfigEnd, bad: ConfigEnd, *, override: str = "") -> ConfigDiff:
    """Return the changes between two config files.

    Args:
        good, bad: files of any `ConfigKind`; two formats can be compared, the files made from them have the good one's.
        override: template such as `--{key}={value}` if the keys are to be given on the command line, or "".
    Raises:
        RecipeError: a file is malformed; the good one's format cannot hold the bad one's values; a change cannot be
            given on the command line.
    """
    left, right = parse_pair(good, bad)
    edits = find_edits(left.values, right.values, whole_lists=bool(override))
    changes = tuple(change_of(edit, left.values, right.values) for edit in edits)
    if not is_same(apply_edits(left.values, edits), right.values):
        raise AssertionError(f"the changes found between {good.path} and {bad.path} do not add up to the difference")
    diff = ConfigDiff(good, bad, changes, edits, left, _reads_same(left.kind, right.kind), override)
    if edits:
        edited_text(good, left, edits)  # says now, not in the middle of a search, what cannot be written
    if override:
        _check_overrides(diff)
    return diff


def _reads_same(good: ConfigKind, bad: ConfigKind) -> bool:
    """Return whether what reads the good file's format reads the bad one's text."""
    return good is bad or (good is ConfigKind.JSON5 and bad is ConfigKind.JSON)


def _check_overrides(diff: ConfigDiff) -> None:
    for change, edit in zip(diff.changes, diff.edits, strict=True):
        if edit.value is ABSENT:
            raise RecipeError(
                f"{diff.bad.path} lacks the key {change.id}: an override on the command line cannot remove a key",
                hint="give the key a value in both files, or take `config.override` out of the recipe",
            )
        if not has_plain_path(edit.path) or isinstance(edit.value, Opaque):
            raise RecipeError(
                f"the key {change.id} cannot be given on the command line as {diff.override!r}",
                hint="take `config.override` out of the recipe; the probes then get a config file",
            )
    diff.overrides(diff.changes[:1])


def apply_settings(good: ConfigEnd, settings: Sequence[str]) -> ConfigEnd:
    """Return the config file with `KEY=VALUE` settings applied; values are read as the file's format reads them.

    Raises:
        RecipeError: not KEY=VALUE, no such key (names the nearest ones), a key given twice, a value that the key
            has already, or one that may stand for too much (see `config_bounds`).
    """
    if not settings:
        raise RecipeError("no setting was given", hint="--set KEY=VALUE")
    if problem := problem_of_references(settings):
        raise RecipeError(f"--set: {problem}", hint="write some of the values out, or give a second config file")
    parsed = parse_config(good)
    known = {path_text(path, parsed.values): path for path in paths_of(parsed.values)}
    edits: dict[Path, Edit] = {}
    for setting in settings:
        edit = _edit_of_setting(setting, good, parsed, known)
        if edit.path in edits:
            raise RecipeError(f"--set {setting}: this key was given before", hint="give each key once")
        edits[edit.path] = edit
    for path in edits:
        if outer := next((edits[path[:depth]] for depth in range(1, len(path)) if path[:depth] in edits), None):
            inner, whole = (path_text(place, parsed.values) for place in (path, outer.path))
            raise RecipeError(f"--set: {inner} lies in {whole}, which is set as well", hint="give one of the two")
    text = edited_text(good, parsed, list(edits.values()))
    return ConfigEnd(f"{good.path} with {', '.join(map(mask_assignment, settings))}", FilePatch(good.patch.name, text))


def _edit_of_setting(setting: str, good: ConfigEnd, parsed: ParsedConfig, known: dict[str, Path]) -> Edit:
    key, equals, text = setting.partition("=")
    setting = mask_assignment(setting)  # from here on it is only shown
    key = key.strip()
    if not equals or not key:
        raise RecipeError(f"--set {setting}: this is not KEY=VALUE", hint="for example --set optimizer.lr=0.001")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=3, cutoff=0.4) or list(known)[:3]
        raise RecipeError(f"--set {setting}: {good.path} has no key {key!r}", hint=f"nearest keys: {', '.join(near)}")
    if problem := problem_of_value(parsed.kind, text):
        raise RecipeError(f"--set {setting[:80]}: {problem}", hint="give a second config file, or put text in quotation marks")
    try:
        value = read_scalar(parsed.kind, text)
    except ValueError as error:
        raise RecipeError(f"--set {setting}: {error}", hint="put quotation marks around text") from None
    old = get_at(parsed.values, known[key])
    if is_same(value, old):
        raise RecipeError(f"--set {setting}: {good.path} has this value already", hint=f"give another value for {key}")
    _check_number(setting, parsed.kind, old, value)
    return Edit(known[key], value)


def _check_number(setting: str, kind: ConfigKind, old: Any, value: Any) -> None:
    """Raise if a number becomes text only because YAML reads `1e-4` as text."""
    if isinstance(old, bool) or not isinstance(old, (int, float)) or not isinstance(value, str):
        return
    try:
        number = float(value)
    except ValueError:
        return
    raise RecipeError(
        f"--set {setting}: {kind.value} reads {value} as text, the file has the number {old!r} there",
        hint=f"write {_number_text(kind, number)}",
    )


def _number_text(kind: ConfigKind, number: float) -> str:
    """Return a number as a format reads it back: `1.0e-4`, `.nan`."""
    if not math.isfinite(number):
        words = ("NaN", "Infinity") if kind in (ConfigKind.JSON, ConfigKind.JSON5) else (".nan", ".inf")
        return words[0] if math.isnan(number) else f"{'-' * (number < 0)}{words[1]}"
    mantissa, _, exponent = f"{number:e}".partition("e")
    return f"{float(mantissa)!r}e{int(exponent):+d}"
