"""Packages as changes: what two requirement or lock files pin, how they differ, and the releases and commits between."""

from bisect_train.changes.packages.diff import PackageDiff, diff_packages
from bisect_train.changes.packages.pins import Pin
from bisect_train.changes.packages.reading import read_packages, read_packages_text

__all__ = ["PackageDiff", "Pin", "diff_packages", "read_packages", "read_packages_text"]
