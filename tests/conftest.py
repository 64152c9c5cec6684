"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

from tests.support.properties import IS_EXPLORING, examples

# the same examples each time, so that an unchanged tree cannot turn red; `make explore` draws others, and more of them
settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=examples(100), deadline=None)
settings.load_profile("explore" if IS_EXPLORING else "repeat")
