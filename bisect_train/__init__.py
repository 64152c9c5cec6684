"""Find the change that made a training run worse: regression bisection for training configs and commits."""

__version__ = "0.1.0"
