"""Two sets of pins -> one change per package that differs, and the requirements that any set of changes asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from bisect_train.changes.packages.pins import Pin, is_same_pin, order_by_needs
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.secrets import mask_logins

__all__ = ["PackageDiff", "diff_packages"]

_ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class PackageDiff:
    """How the packages of two ends differ.

    Attributes:
        changes: one per package that differs; what others depend upon comes first, where a lock file tells.
        good, bad: the pins of the differing packages, by canonical name; a package can be missing on one side.
    """

    changes: tuple[Change, ...]
    good: Mapping[str, Pin]
    bad: Mapping[str, Pin]

    def pins(self, chosen: Iterable[Change | str]) -> tuple[str, ...]:
        """Return the requirements to lay over the environment: the bad end's for chosen packages, else the good end's.

        A package that is absent on its side has none: nothing is laid for it (see `hidden`).

        Args:
            chosen: changes, or their ids, in any order.
        Returns:
            Requirement texts such as `toyopt==2.0`, by name.
        Raises:
            ValueError: one of them is no change of this diff.
        """
        return tuple(pin.requirement for _, pin in sorted(self._picked(chosen).items()) if pin)

    def hidden(self, chosen: Iterable[Change | str]) -> tuple[str, ...]:
        """Return the packages that this set says are not there, by name.

        An overlay can add a package but not take one away: where the inherited environment has one of these, the set
        is only approximated. Raises ValueError as `pins` does.
        """
        return tuple(name for name, pin in sorted(self._picked(chosen).items()) if pin is None)

    def unlayable(self) -> tuple[tuple[str, str], ...]:
        """Return (name, reason) of packages that pip cannot lay over an environment, whatever set is chosen."""
        found = []
        for change in self.changes:
            sides = [pin for pin in (self.good.get(change.id), self.bad.get(change.id)) if pin]
            if change.id == "python":
                found.append((change.id, "it is the interpreter: give each end its own, with --python and --bad-python"))
            elif any(pin.is_conda for pin in sides):
                found.append((change.id, "conda installs it: pip may know no such release, or name it otherwise"))
        return tuple(found)

    def _picked(self, chosen: Iterable[Change | str]) -> dict[str, Pin | None]:
        ids = {item if isinstance(item, str) else item.id for item in chosen}
        unknown = ids - {change.id for change in self.changes}
        if unknown:
            raise ValueError(f"no such package change: {', '.join(sorted(unknown))}")
        return {change.id: self.bad.get(change.id) if change.id in ids else self.good.get(change.id) for change in self.changes}


def diff_packages(good: Mapping[str, Pin], bad: Mapping[str, Pin], *, exclude: Collection[str] = ()) -> PackageDiff:
    """Return the changes between two sets of pins.

    Args:
        good, bad: pins of the two ends, by canonical name.
        exclude: names that are never changes, such as the project itself.
    """
    left_out = {canonicalize_name(name) for name in exclude}
    ordered = [name for name in _ordered_names(good, bad) if name not in left_out and _differs(good.get(name), bad.get(name))]
    return PackageDiff(
        changes=tuple(_change_of(name, good.get(name), bad.get(name)) for name in ordered),
        good={name: good[name] for name in ordered if name in good},
        bad={name: bad[name] for name in ordered if name in bad},
    )


def _ordered_names(good: Mapping[str, Pin], bad: Mapping[str, Pin]) -> list[str]:
    """Return all names, needed ones first; what the bad end's file says about needs comes before the good end's."""
    return order_by_needs({**good, **bad})


def _differs(good: Pin | None, bad: Pin | None) -> bool:
    return good is None or bad is None or not is_same_pin(good, bad)


def _change_of(name: str, good: Pin | None, bad: Pin | None) -> Change:
    left, right = (mask_logins(pin.shown) if pin else _ABSENT for pin in (good, bad))
    return Change(ChangeKind.PACKAGE, name, f"{name}: {left} -> {right}")
