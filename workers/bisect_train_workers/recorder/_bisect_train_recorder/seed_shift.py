"""Adds a constant to every integer seed that the program sets, for replicates (seed index > 0).

Many programs seed themselves with a constant, so replicates would all be the same run. Functions
that call each other (`torch.manual_seed` seeds the accelerators too) shift once: a shift in
progress is remembered per thread.
"""

from __future__ import annotations

import functools
import operator
import threading
from typing import Any, Callable

from .settings import SEED_MODULUS

MAX_EVENTS = 50


class SeedShifter:
    """Shifts seeds and records which."""

    def __init__(self, session: Any) -> None:
        """Use the shift and the exemptions of the session's settings."""
        self._session = session
        self._shift = session.settings.seed_shift
        self._exempt = session.settings.exempt_seeds
        self._num_events = 0
        self._local = threading.local()
        self._record = session.guarded(session.event)

    def shifted(self, seed: Any, function_name: str) -> Any:
        """Return the seed to use: (seed + shift) mod 2**32 for integers, else the value as it is.

        Of a sequence of integers (numpy accepts those) the first is shifted. Negative seeds and
        exempted ones stay, and so does everything inside another seeding call.
        """
        if getattr(self._local, "depth", 0):
            return seed
        if isinstance(seed, (list, tuple)) and seed:
            return type(seed)([self.shifted(seed[0], function_name), *seed[1:]])
        value = _as_int(seed)
        if value is None or value < 0 or value in self._exempt:
            return seed
        self._note(function_name, value)
        return (value + self._shift) % SEED_MODULUS

    def calling(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a seeding function; seeds set while it runs are its own business."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            return function(*args, **kwargs)
        finally:
            self._local.depth -= 1

    def wrap(self, function: Callable[..., Any], function_name: str, *, seed_position: int = 0) -> Callable[..., Any]:
        """Return the function with its seed shifted, given by position or as `seed=`/`a=`."""

        @functools.wraps(function)
        def seeding(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self.shifted_arguments(args, kwargs, function_name, seed_position)
            return self.calling(function, *args, **kwargs)

        return seeding

    def shifted_arguments(self, args: Any, kwargs: Any, function_name: str, seed_position: int = 0) -> Any:
        """Return the arguments of a seeding call with the seed among them shifted."""
        if len(args) > seed_position:
            seed = self.shifted(args[seed_position], function_name)
            return (*args[:seed_position], seed, *args[seed_position + 1 :]), kwargs
        named = {key: self.shifted(kwargs[key], function_name) for key in ("seed", "a", "x") if key in kwargs}
        return args, {**kwargs, **named}

    def _note(self, function_name: str, seed: int) -> None:
        """Event seed_shifted, at most MAX_EVENTS of them."""
        self._num_events += 1
        if self._num_events <= MAX_EVENTS:
            self._record("seed_shifted", function=function_name, seed=seed)


def _as_int(seed: Any) -> Any:
    """Return the seed as an int (numpy's integers too), or None for any other kind of seed."""
    if isinstance(seed, (bool, float, str, bytes)) or seed is None or getattr(seed, "ndim", 0):
        return None
    try:
        return operator.index(seed)
    except TypeError:
        return None


def install(session: Any, hook: Any) -> None:
    """Patch the seeding functions of each library once the program imports it."""
    from . import seed_shift_numpy, seed_shift_torch

    shifter = SeedShifter(session)
    hook.after("random", lambda _, random: shift_random(shifter, random))
    hook.after("numpy.random", lambda _, numpy_random: seed_shift_numpy.install(shifter, numpy_random))
    hook.after("torch", lambda _, torch: seed_shift_torch.install(shifter, torch))


def shift_random(shifter: SeedShifter, random: Any) -> None:
    """Patch `random.seed` and `random.Random` (in place: pickles and subclasses stay as they are).

    `Random(x)` calls its method `seed`, as do subclasses that extend it.
    """
    random.Random.seed = shifter.wrap(random.Random.seed, "random.Random.seed", seed_position=1)
    random.seed = shifter.wrap(random.seed, "random.seed")
