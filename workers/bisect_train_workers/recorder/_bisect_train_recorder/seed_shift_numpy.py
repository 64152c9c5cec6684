"""Shifts the seeds given to numpy: global functions, `RandomState`, generators, bit generators.

`RandomState` and the bit generators are immutable C types, so the names in numpy's modules are
replaced. Where only construction takes a seed, the replacement returns an instance of the real
class; `isinstance` works with both.
"""

from __future__ import annotations

from typing import Any

_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64", "SeedSequence")


def install(shifter: Any, numpy_random: Any) -> None:
    """Patch the module `numpy.random` and the modules that its names come from."""
    modules = [numpy_random, getattr(numpy_random, "mtrand", None)]
    _replace(modules, "seed", shifter.wrap(numpy_random.seed, "numpy.random.seed"))
    _replace(modules, "default_rng", shifter.wrap(numpy_random.default_rng, "numpy.random.default_rng"))
    _replace(modules, "RandomState", random_state_class(shifter, numpy_random.RandomState))
    for name in _BIT_GENERATORS:
        if hasattr(numpy_random, name):
            real = getattr(numpy_random, name)
            _replace([numpy_random], name, constructed_class(shifter, real, f"numpy.random.{name}"))


def _replace(modules: Any, name: str, value: Any) -> None:
    """Set a name in each module that has it."""
    for module in modules:
        if hasattr(module, name):
            setattr(module, name, value)


class InstancesOfReal(type):
    """Metaclass: instances of the real class are instances of its stand-in."""

    def __instancecheck__(cls, instance: Any) -> bool:
        """Ask the real class, the stand-in's first base; user subclasses ask as usual."""
        if cls.__dict__.get("_is_stand_in"):
            return isinstance(instance, cls.__bases__[0])
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        """Count subclasses of the real class."""
        if cls.__dict__.get("_is_stand_in"):
            return issubclass(subclass, cls.__bases__[0])
        return type.__subclasscheck__(cls, subclass)


def stand_in_metaclass(real: Any) -> Any:
    """Return the metaclass of a stand-in; it must derive from the real class's own."""
    if type(real) is type:
        return InstancesOfReal
    if issubclass(type(real), InstancesOfReal):  # a stand-in itself
        return type(real)
    return type("InstancesOfReal", (InstancesOfReal, type(real)), {})


def stand_in_namespace(real: Any, module_name: str) -> Any:
    """Return the attributes that make a stand-in look like the real class in the module it is put in."""
    return {"_is_stand_in": True, "__doc__": real.__doc__, "__module__": module_name, "__qualname__": real.__qualname__}


def constructed_class(shifter: Any, real: Any, name: str) -> Any:
    """Return a stand-in whose call shifts the seed and builds an instance of the real class."""

    class Constructing(InstancesOfReal):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if not cls.__dict__.get("_is_stand_in"):
                return super().__call__(*args, **kwargs)
            if "entropy" in kwargs:
                kwargs["entropy"] = shifter.shifted(kwargs["entropy"], name)
            args, kwargs = shifter.shifted_arguments(args, kwargs, name)
            return shifter.calling(real, *args, **kwargs)

    return Constructing(real.__name__, (real,), stand_in_namespace(real, "numpy.random"))


def random_state_class(shifter: Any, real: Any) -> Any:
    """Return a subclass of `RandomState` that shifts the seed of `__init__` and `seed`.

    It pickles as the real class does: numpy's own reducer rebuilds a plain `RandomState`.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = shifter.shifted_arguments(args, kwargs, "numpy.random.RandomState")
        shifter.calling(real.__init__, self, *args, **kwargs)

    def seed(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = shifter.shifted_arguments(args, kwargs, "numpy.random.RandomState.seed")
        return shifter.calling(real.seed, self, *args, **kwargs)

    namespace = stand_in_namespace(real, "numpy.random")
    namespace.update(__init__=__init__, seed=seed)
    return stand_in_metaclass(real)(real.__name__, (real,), namespace)
