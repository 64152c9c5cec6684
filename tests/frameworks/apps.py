"""The apps by name, in the order in which they are run."""

from __future__ import annotations

from tests.frameworks.app import App
from tests.frameworks.app_accelerate import ACCELERATE
from tests.frameworks.app_deepspeed import DEEPSPEED
from tests.frameworks.app_hf_trainer import HF_TRAINER
from tests.frameworks.app_hydra import HYDRA
from tests.frameworks.app_lightning import LIGHTNING
from tests.frameworks.app_litgpt import LITGPT

APPS: dict[str, App] = {app.name: app for app in (HYDRA, HF_TRAINER, ACCELERATE, LIGHTNING, DEEPSPEED, LITGPT)}
