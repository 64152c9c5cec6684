"""Scalers that are none of torch's: the loss is remembered as it was before they multiplied it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="losses are torch's tensors")
sys.path.append(str(Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"))

from _bisect_train_recorder import loss_watch  # noqa: E402


def test_loss_that_deepspeeds_scaler_multiplied_is_recorded_as_it_was() -> None:
    module = ModuleType("deepspeed.runtime.fp16.loss_scaler")

    class LossScalerBase:
        loss_scale = 1024.0

        def scale_loss(self, loss: Any) -> Any:
            return loss * self.loss_scale

    module.LossScalerBase = LossScalerBase  # type: ignore[attr-defined]
    loss_watch.watch_other_scaler(torch, module, lambda function: function)
    scaled = LossScalerBase().scale_loss(torch.tensor(0.5))
    assert scaled.item() == 512.0
    assert [root.item() for root in loss_watch.loss_roots(torch, scaled, None)] == [0.5]


def test_older_scaler_without_that_method_is_left_alone() -> None:
    module = ModuleType("deepspeed.runtime.fp16.loss_scaler")
    module.LossScalerBase = type("LossScalerBase", (), {})  # type: ignore[attr-defined]
    loss_watch.watch_other_scaler(torch, module, lambda function: function)
    assert not hasattr(module.LossScalerBase, "scale_loss")
