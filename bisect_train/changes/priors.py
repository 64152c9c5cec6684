"""Prior weights of changes from a person's rules: which paths, messages, authors and config keys are suspects.

A rule is `KIND:PATTERN=WEIGHT`. The weights of all rules that match a change multiply; a change that no rule matches weighs 1.
The product is kept within MIN_WEIGHT..MAX_WEIGHT, each of which two runs outweigh: a rule says where to look first, never what
the answer is.

    path:GLOB        the commit touches a file that matches, as `--path` does      path:docs/**=0.01
    message:REGEX    the commit's message matches somewhere                        message:(?i)optim|lr=5
    author:REGEX     the author's `name <mail>` matches somewhere                  author:@bot\\.example=0.1
    key:GLOB         the config key's dotted path matches                          key:optimizer.*=10
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from bisect_train.changes.history import touching_commits
from bisect_train.changes.plumbing import fields_of
from bisect_train.changes.repository import Repository
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.errors import InputError
from bisect_train.core.question import Range

MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0
OUTSIDE_PATHS_WEIGHT = 0.001  # of a commit that touches none of the paths of `--path`
KINDS = ("path", "message", "author", "key")
HINT = "--prior 'path:docs/**=0.01', 'message:(?i)optim|lr=5', 'author:REGEX=WEIGHT' or 'key:GLOB=WEIGHT'"


@dataclass(frozen=True, slots=True)
class PriorRule:
    """One rule: what it looks at (see KINDS), the glob or regular expression, the weight in (0, 1000], the text as given."""

    kind: str
    pattern: str
    weight: float
    text: str


@dataclass(frozen=True, slots=True)
class Priors:
    """What the rules make of a question's changes.

    Attributes:
        weights: prior weight by index, where it is not 1; within MIN_WEIGHT..MAX_WEIGHT.
        num_matched: for each rule as given, how many changes it matches.
    """

    weights: tuple[tuple[int, float], ...] = ()
    num_matched: tuple[tuple[str, int], ...] = ()

    @property
    def nats(self) -> dict[int, float]:
        """Natural logarithms of the weights, by index."""
        return {idx: math.log(weight) for idx, weight in self.weights}

    @property
    def idle(self) -> tuple[str, ...]:
        """The rules that match nothing."""
        return tuple(text for text, num in self.num_matched if num == 0)


def read_rule(text: str) -> PriorRule:
    """Return a rule.

    Raises:
        InputError: another form, a regular expression that cannot be read, a weight outside (0, 1000].
    """
    head, equals, weight_text = text.rpartition("=")
    kind, colon, pattern = head.partition(":")
    if not equals or not colon or not pattern:
        raise InputError(f"--prior {text!r} is not KIND:PATTERN=WEIGHT", hint=HINT)
    if kind not in KINDS:
        raise InputError(f"--prior {text!r}: unknown kind {kind!r}, known are {', '.join(KINDS)}", hint=HINT)
    if kind in ("message", "author"):
        _check_regex(pattern, text)
    return PriorRule(kind, pattern, _read_weight(weight_text, text), text)


def _check_regex(pattern: str, text: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"--prior {text!r}: the regular expression cannot be read: {error}", hint=HINT) from None


def _read_weight(weight_text: str, text: str) -> float:
    try:
        weight = float(weight_text)
    except ValueError:
        weight = math.nan
    if not 0.0 < weight <= MAX_WEIGHT:
        rule = "a weight is a number above 0 and at most 1000; 1 changes nothing"
        raise InputError(f"--prior {text!r}: {weight_text!r} is no weight", hint=rule)
    return weight


def weigh_changes(
    repository: Repository,
    asked: Range,
    changes: Sequence[Change],
    *,
    texts: Sequence[str] = (),
    unlikely: Collection[int] = (),
) -> Priors:
    """Return the prior weights of a question's changes.

    Args:
        asked: its commits.
        changes: commits, config keys ...
        texts: rules as given.
        unlikely: indices of the commits that `--path` leaves out.
    Raises:
        InputError: a rule that cannot be read.
    """
    rules = [read_rule(text) for text in texts]
    factors: dict[int, float] = dict.fromkeys(unlikely, OUTSIDE_PATHS_WEIGHT)
    matched = _match_rules(repository, asked, changes, rules)
    for rule, found in zip(rules, matched, strict=True):
        for idx in found:
            factors[idx] = factors.get(idx, 1.0) * rule.weight
    kept = {idx: min(MAX_WEIGHT, max(MIN_WEIGHT, factor)) for idx, factor in sorted(factors.items())}
    weights = tuple((idx, weight) for idx, weight in kept.items() if weight != 1.0)
    return Priors(weights, tuple((rule.text, len(found)) for rule, found in zip(rules, matched, strict=True)))


def _match_rules(
    repository: Repository, asked: Range, changes: Sequence[Change], rules: Sequence[PriorRule]
) -> list[frozenset[int]]:
    """Return for each rule the indices of the changes that it matches."""
    commits = {change.id: idx for idx, change in enumerate(changes) if change.kind is ChangeKind.COMMIT}
    has_texts = any(rule.kind in ("message", "author") for rule in rules)
    texts = _texts_of(repository, list(commits)) if commits and has_texts else {}
    found: list[frozenset[int]] = []
    for rule in rules:
        if rule.kind == "path":
            paths = replace(asked, paths=(rule.pattern,))
            touching = touching_commits(repository, paths, option="--prior path:") if commits else frozenset()
            found.append(frozenset(idx for commit, idx in commits.items() if commit in touching))
        elif rule.kind == "key":
            keys = (idx for idx, change in enumerate(changes) if change.kind is ChangeKind.CONFIG)
            found.append(frozenset(idx for idx in keys if fnmatchcase(changes[idx].id, rule.pattern)))
        else:
            which = 0 if rule.kind == "author" else 1
            found.append(frozenset(commits[item] for item, pair in texts.items() if re.search(rule.pattern, pair[which])))
    return found


def _texts_of(repository: Repository, commits: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return `name <mail>` of the author and the whole message by commit."""
    output = repository.git.run(
        "log", "-z", "--no-walk=unsorted", "--format=tformat:%H%x00%an <%ae>%x00%B", "--encoding=UTF-8", "--no-color",
        "--no-decorate", "--no-show-signature", "--stdin", stdin="".join(f"{commit}\n" for commit in commits).encode(),
    )  # fmt: skip
    fields = fields_of(output)
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    return {commit: (author, message) for commit, author, message in rows}
