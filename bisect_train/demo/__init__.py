"""The tour: a ready-made repository in which one of sixty commits made training worse.

Importing this package is cheap; it needs git to build, and torch and PyYAML only to train.
"""

from bisect_train.demo.build import COMMAND, DemoRepo, build
from bisect_train.demo.configs import HARMFUL_KEY, CheckConfigs, write_check_configs

__all__ = ["COMMAND", "HARMFUL_KEY", "CheckConfigs", "DemoRepo", "build", "write_check_configs"]
