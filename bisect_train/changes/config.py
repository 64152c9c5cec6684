"""Two config files -> one change per key that differs, and the file that any set of them gives.

deepdiff finds where two configs differ; what counts as one change is decided here: a leaf key. A list is one change
unless both have the same length, then each item is. A section that is new or gone is one change per leaf key in it.
With an override template lists are never taken apart, since programs do not understand `betas[1]=0.95`.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deepdiff import DeepDiff

from bisect_train.changes.config_formats import (
    ConfigKind,
    Edit,
    ParsedConfig,
    apply_edits,
    config_kind_of,
    edited_text,
    parse_config,
    read_config,
    read_scalar,
)
from bisect_train.changes.config_paths import (
    ABSENT,
    Path,
    get_at,
    has_plain_path,
    is_same,
    leaves_of,
    path_text,
    paths_of,
    scalar_text,
)
from bisect_train.core.changes import Change, ChangeKind, FilePatch
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import ConfigEnd
from bisect_train.recipe.overrides import override_text

__all__ = ["ConfigDiff", "ConfigKind", "apply_settings", "config_kind_of", "diff_configs", "read_config"]

_MAX_TITLE = 60  # characters of one value in a title


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
        """
        picked = self._picked(chosen)
        name = self.good.patch.name
        if not picked:
            return FilePatch(name, self.good.patch.text)
        if len(picked) == len(self.changes) and self.same_format:
            return FilePatch(name, self.bad.patch.text)
        return FilePatch(name, edited_text(self.good, self.parsed, [self.edits[idx] for idx in picked]))

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
        good, bad: YAML, JSON or TOML; two formats can be compared, the files made from them have the good one's.
        override: template such as `--{key}={value}` if the keys are to be given on the command line, or "".
    Raises:
        RecipeError: a file is malformed; the good one's format cannot hold the bad one's values; a change cannot be
            given on the command line.
    """
    left, right = parse_config(good), parse_config(bad)
    edits = tuple(_edits(left.values, right.values, whole_lists=bool(override)))
    changes = tuple(_change_of(edit, left.values, right.values) for edit in edits)
    if not is_same(apply_edits(left.values, edits), right.values):
        raise AssertionError(f"the changes found between {good.path} and {bad.path} do not add up to the difference")
    diff = ConfigDiff(good, bad, changes, edits, left, left.kind is right.kind, override)
    if edits:
        edited_text(good, left, edits)  # says now, not in the middle of a search, what cannot be written
    if override:
        _check_overrides(diff)
    return diff


def _edits(good: dict[Any, Any], bad: dict[Any, Any], *, whole_lists: bool) -> Iterator[Edit]:
    places = {_cut(path, good, bad, whole_lists=whole_lists) for path in _differing(good, bad)}
    order: dict[Path, int] = {}
    for path in [*paths_of(good), *paths_of(bad)]:
        order.setdefault(path, len(order))
    for path in sorted(places, key=lambda place: order[place]):
        old, new = get_at(good, path), get_at(bad, path)
        if old is ABSENT:
            yield from (Edit(leaf, get_at(bad, leaf)) for leaf in leaves_of(new, path))
        elif new is ABSENT:
            yield from (Edit(leaf, ABSENT, gone=len(path)) for leaf in leaves_of(old, path))
        else:
            yield Edit(path, new)


def _differing(good: dict[Any, Any], bad: dict[Any, Any]) -> Iterator[Path]:
    """Yield where deepdiff sees a difference; it may go deeper than a change does."""
    tree = DeepDiff(
        _with_text_dates(good),
        _with_text_dates(bad),
        view="tree",
        ignore_nan_inequality=True,
        ignore_private_variables=False,  # by default keys that start with `__` are passed over
        zip_ordered_iterables=True,  # by default [1, 2, 3] -> [2, 3, 4] is one removed and one added
        threshold_to_diff_deeper=0,  # by default mappings with few keys in common are reported as a whole
    )
    for levels in tree.values():
        for level in levels:
            yield tuple(level.path(output_format="list"))


def _with_text_dates(value: Any) -> Any:
    """Return values with dates as marked text: deepdiff takes a time without a zone for one in UTC."""
    if isinstance(value, dict):
        return {key: _with_text_dates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text_dates(item) for item in value]
    return f"\0{value!r}" if isinstance(value, (datetime.date, datetime.time)) else value


def _cut(path: Path, good: Any, bad: Any, *, whole_lists: bool) -> Path:
    """Return the part of a path down to the key that counts as one change."""
    for depth, step in enumerate(path):
        left, right = get_at(good, path[:depth]), get_at(bad, path[:depth])
        both_maps = isinstance(left, dict) and isinstance(right, dict)
        both_lists = isinstance(left, list) and isinstance(right, list)
        if both_maps:
            if (step in left) != (step in right):
                return path[: depth + 1]
        elif not both_lists or whole_lists or len(left) != len(right):
            return path[:depth]
    return path


def _change_of(edit: Edit, good: dict[Any, Any], bad: dict[Any, Any]) -> Change:
    old = get_at(good, edit.path)
    text = path_text(edit.path, bad if old is ABSENT else good)
    is_retyped = ABSENT not in (old, edit.value) and type(old) is not type(edit.value)
    left, right = (_title_text(value, is_typed=is_retyped) for value in (old, edit.value))
    return Change(ChangeKind.CONFIG, text, f"{text}: {left} -> {right}")


def _title_text(value: Any, *, is_typed: bool) -> str:
    text = repr(value) if value is ABSENT else " ".join(scalar_text(value).split())
    if len(text) > _MAX_TITLE:
        text = text[: _MAX_TITLE - 3] + "..."
    names = {"str": "text", "dict": "mapping", "NoneType": "null"}
    kind = names.get(type(value).__name__, type(value).__name__)
    return f"{text} ({kind})" if is_typed and value is not None else text


def _check_overrides(diff: ConfigDiff) -> None:
    for change, edit in zip(diff.changes, diff.edits, strict=True):
        if edit.value is ABSENT:
            raise RecipeError(
                f"{diff.bad.path} lacks the key {change.id}: an override on the command line cannot remove a key",
                hint="give the key a value in both files, or take `config.override` out of the recipe",
            )
        if not has_plain_path(edit.path):
            raise RecipeError(
                f"the key {change.id} cannot be given on the command line as {diff.override!r}",
                hint="take `config.override` out of the recipe; the probes then get a config file",
            )
    diff.overrides(diff.changes[:1])


def apply_settings(good: ConfigEnd, settings: Sequence[str]) -> ConfigEnd:
    """Return the config file with `KEY=VALUE` settings applied; values are read as the file's format reads them.

    Raises:
        RecipeError: not KEY=VALUE, no such key (names the nearest ones), a key given twice, or a value that the key
            has already.
    """
    if not settings:
        raise RecipeError("no setting was given", hint="--set KEY=VALUE")
    parsed = parse_config(good)
    known = {path_text(path, parsed.values): path for path in paths_of(parsed.values)}
    edits: dict[Path, Edit] = {}
    for setting in settings:
        edit = _edit_of_setting(setting, good, parsed, known)
        if edit.path in edits:
            raise RecipeError(f"--set {setting}: this key was given before", hint="give each key once")
        edits[edit.path] = edit
    text = edited_text(good, parsed, list(edits.values()))
    return ConfigEnd(f"{good.path} with {', '.join(settings)}", FilePatch(good.patch.name, text))


def _edit_of_setting(setting: str, good: ConfigEnd, parsed: ParsedConfig, known: dict[str, Path]) -> Edit:
    key, equals, text = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise RecipeError(f"--set {setting}: this is not KEY=VALUE", hint="for example --set optimizer.lr=0.001")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=3, cutoff=0.4) or list(known)[:3]
        raise RecipeError(f"--set {setting}: {good.path} has no key {key!r}", hint=f"nearest keys: {', '.join(near)}")
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
    mantissa, _, exponent = f"{number:e}".partition("e")
    written = f"{float(mantissa)!r}e{int(exponent):+d}"
    raise RecipeError(
        f"--set {setting}: {kind.value} reads {value} as text, the file has the number {old!r} there",
        hint=f"write {written}",
    )
