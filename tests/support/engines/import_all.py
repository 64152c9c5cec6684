"""Imports what the engines need; no operation of torch may run here, the process is forked."""

import torch
import torch._dynamo
import torch.distributed
import torch.distributed.fsdp
import torch.distributed.optim
import torch.distributed.pipelining
import torch.distributed.tensor
import torch.distributed.tensor.parallel
import torch.utils.checkpoint

__all__ = ["torch"]
