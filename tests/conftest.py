"""Settings of every test run."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

from tests.postgres import postgres, store_url  # noqa: F401  (fixtures)
from tests.support.properties import IS_EXPLORING, examples

signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests in the background may have it ignored
os.environ.pop("BISECT_TRAIN_STORE", None)  # no test writes into somebody's server

# the same examples each time, so that an unchanged tree cannot turn red; `make explore` draws others, and more of them
settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=examples(100), deadline=None)
settings.load_profile("explore" if IS_EXPLORING else "repeat")
