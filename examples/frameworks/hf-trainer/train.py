"""A small GPT-2 on a made-up language: `python train.py --output_dir=out --learning_rate=1e-2`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    """Size of model and data."""

    num_layers: int = 2
    width: int = 32
    dropout: float = 0.1
    num_texts: int = 512


@dataclass
class RunArguments(TrainingArguments):
    """What this program sets otherwise than the library."""

    max_steps: int = 40
    learning_rate: float = 1e-2
    warmup_steps: int = 4
    weight_decay: float = 0.01
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    lr_scheduler_type: str = field(default="cosine")


class MadeUpTexts(Dataset):
    """Texts of 32 words out of 24; each word has three that may follow it."""

    def __init__(self, num_texts: int) -> None:
        generator = torch.Generator().manual_seed(7)
        followers = torch.randint(24, (24, 3), generator=generator)
        words = [torch.randint(24, (num_texts,), generator=generator)]
        for _ in range(31):
            words.append(followers[words[-1], torch.randint(3, (num_texts,), generator=generator)])
        self.texts = torch.stack(words, dim=1)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, idx: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.texts[idx], "labels": self.texts[idx]}


def build_model(args: ModelArguments) -> GPT2LMHeadModel:
    """Return the network."""
    config = GPT2Config(
        vocab_size=24,
        n_positions=32,
        n_embd=args.width,
        n_layer=args.num_layers,
        n_head=2,
        embd_pdrop=args.dropout,
        attn_pdrop=args.dropout,
        resid_pdrop=args.dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def build_optimizer(model: GPT2LMHeadModel, args: TrainingArguments) -> torch.optim.Optimizer:
    """Return AdamW with one group.

    The embeddings are those of the head, too.
    """
    groups = [{"params": list(model.parameters()), "weight_decay": args.weight_decay}]

    betas = (0.9, 0.99)
    return torch.optim.AdamW(groups, lr=args.learning_rate, betas=betas)


def digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def main() -> None:
    """Train."""
    model_args, run_args = HfArgumentParser((ModelArguments, RunArguments)).parse_args_into_dataclasses()
    torch.manual_seed(run_args.seed)
    texts = MadeUpTexts(model_args.num_texts)
    model = build_model(model_args)
    optimizer = build_optimizer(model, run_args)
    trainer = Trainer(model=model, args=run_args, train_dataset=texts, optimizers=(optimizer, None))
    trainer.train()
    trainer.save_state()
    print("parameters", digest(model), flush=True)


if __name__ == "__main__":
    main()
