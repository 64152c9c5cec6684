"""Stored baselines: a good version's runs as golden values, in a readable file that can be committed."""

from bisect_train.baseline.files import (
    BASELINES,
    list_baselines,
    path_of,
    read_baseline,
    write_baseline,
)
from bisect_train.baseline.values import Baseline, Intended, Saved, platform_of

__all__ = [
    "BASELINES",
    "Baseline",
    "Intended",
    "Saved",
    "list_baselines",
    "path_of",
    "platform_of",
    "read_baseline",
    "write_baseline",
]
