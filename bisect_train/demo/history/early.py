"""The first third: three ordinary weeks, two decoys and a rename that breaks the program for three commits."""

from __future__ import annotations

from bisect_train.demo.history.steps import Add, Append, Merge, Move, Replace, Role, Step

CHECKPOINTS = Merge(
    "Merge branch 'checkpoints'",
    branch=(
        Step(
            "train: save the weights at the end of a run",
            (
                Replace(
                    "train.py",
                    """    print(f"done in {write_time(time.time() - started)}")\n""",
                    """    if run["checkpoint"]:
        torch.save({"config": config, "weights": model.state_dict()}, run["checkpoint"])
    print(f"done in {write_time(time.time() - started)}")\n""",
                ),
                Replace("config.yaml", "  threads: 1\n", "  threads: 1\n  checkpoint: null\n"),
            ),
            body="Off by default: most runs are looked at once and thrown away.",
        ),
        Step(
            "readme: how to keep the weights",
            (
                Append(
                    "README.md",
                    "\n## Weights\n\nTo keep the weights, name a file in `run.checkpoint`. It holds the config as well.\n",
                ),
            ),
        ),
    ),
)

EARLY: tuple[Step | Merge, ...] = (
    Step(
        "readme: newer Pythons carry more help",
        (
            Replace(
                "README.md",
                "nothing to download.\n",
                "nothing to download. Its length differs a little between Python versions; `data.max_chars` cuts it.\n",
            ),
        ),
    ),
    Step(
        "utils: name the file when there is no config",
        (
            Replace(
                "utils.py",
                "def load_config(path):\n",
                """def load_config(path):
    if not os.path.exists(path):
        raise SystemExit(f"no config at {path}; pass one with --config")\n""",
            ),
            Replace("utils.py", "import random\nimport time\n", "import os\nimport random\nimport time\n"),
        ),
    ),
    Step(
        "data: say what the alphabet is",
        (
            Replace(
                "data.py",
                "class Corpus:\n",
                '''class Corpus:
    """The text as codes, split in two.

    The alphabet is every character that occurs, sorted; a code is a place in it. The held-out part is the end of the
    text, so no batch for training overlaps it.
    """

''',
            ),
        ),
    ),
    Step(
        "train: print the size of the model",
        (
            Replace(
                "train.py",
                """{corpus.num_symbols} symbols")\n""",
                """{corpus.num_symbols} symbols")
    print(f"{sum(p.numel() for p in model.parameters())} parameters")\n""",
            ),
        ),
    ),
    Step(
        "tests: shapes of the logits, loss before training",
        (Add("tests/test_model.py", "test_model.py.txt"),),
    ),
    Step(
        "layers: scale the queries, not the scores",
        (
            Replace(
                "layers.py",
                "        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n",
                "        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)\n",
            ),
        ),
        body="There are fewer of them: heads x width numbers in place of heads x context a position.",
        role=Role.DECOY,
    ),
    Step(
        "readme: how long a run takes",
        (
            Replace(
                "README.md",
                "    python train.py --config config.yaml\n",
                """    python train.py --config config.yaml

The config as it stands takes about 700 steps. For a quick look set `training.max_steps`; the schedule keeps its
length, so a short run is the beginning of the long one.\n""",
            ),
        ),
    ),
    CHECKPOINTS,
    Step(
        "config: comment what is not obvious",
        (
            Replace("config.yaml", "  max_chars: 200000\n", "  max_chars: 200000  # the whole text has more than 600000\n"),
            Replace("config.yaml", "  max_steps: null\n", "  max_steps: null  # stop early, with the schedule as it is\n"),
            Replace("config.yaml", "  floor: 0.1\n", "  floor: 0.1  # share of the peak\n"),
        ),
    ),
    Step(
        "utils: write minutes and seconds",
        (
            Replace(
                "utils.py",
                """    return f"{seconds:.1f} s"\n""",
                """    minutes, seconds = divmod(seconds, 60)
    return f"{minutes:.0f} min {seconds:.1f} s" if minutes else f"{seconds:.1f} s"\n""",
            ),
        ),
    ),
    Step(
        "layers: letters for the shapes",
        (
            Replace(
                "layers.py",
                '''"""The parts of a transformer block."""\n''',
                '''"""The parts of a transformer block.

Shapes: B batch, H heads, T context, D width of a head.
"""\n''',
            ),
            Replace(
                "layers.py",
                "    def split(self, x):\n",
                "    def split(self, x):  # -> B, H, T, D\n",
            ),
        ),
    ),
    Step(
        "data: read the text in a function of its own",
        (
            Replace(
                "data.py",
                "class Corpus:\n",
                '''def read_text(max_chars):
    """Return the beginning of all help topics, in alphabetical order."""
    text = "\\n".join(topics[name] for name in sorted(topics))
    return text[:max_chars]


class Corpus:\n''',
            ),
            Replace(
                "data.py",
                """        text = "\\n".join(topics[name] for name in sorted(topics))
        text = text[: config["max_chars"]]\n""",
                """        text = read_text(config["max_chars"])\n""",
            ),
        ),
    ),
    Step(
        "data: draw the batches from a generator of their own",
        (
            Replace(
                "data.py",
                "    def __init__(self, config, context):\n",
                "    def __init__(self, config, context, seed=0):\n",
            ),
            Replace(
                "data.py",
                "        self.context = context\n",
                "        self.context = context\n        self.generator = torch.Generator().manual_seed(seed)\n",
            ),
            Replace(
                "data.py",
                "        starts = torch.randint(len(codes) - self.context, (batch_size,), generator=generator)\n",
                """        generator = generator or self.generator
        starts = torch.randint(len(codes) - self.context, (batch_size,), generator=generator)\n""",
            ),
            Replace(
                "train.py",
                """    corpus = Corpus(config["data"], context=config["model"]["context"])\n""",
                """    corpus = Corpus(config["data"], context=config["model"]["context"], seed=run["seed"])\n""",
            ),
        ),
        body="Dropout no longer decides which text comes next, so two models can be compared on the same batches.",
        role=Role.DECOY,
    ),
    Step(
        "tests: a seed gives the same batches again",
        (
            Append(
                "tests/test_data.py",
                """

def test_same_seed_gives_the_same_batches():
    one, two = (Corpus(SETTINGS, context=8, seed=5) for _ in range(2))
    assert torch.equal(one.batch("train", 4)[0], two.batch("train", 4)[0])
""",
            ),
        ),
    ),
    Step("make: targets for training and for the tests", (Add("Makefile", "Makefile.txt"),)),
    Step(
        "train: show the length of the gradient",
        (
            Replace(
                "train.py",
                "        torch.nn.utils.clip_grad_norm_(model.parameters()",
                "        length = torch.nn.utils.clip_grad_norm_(model.parameters()",
            ),
            Replace(
                "train.py",
                """            print(f"step {step} | loss {loss.item():.{logging['digits']}f} | lr {rate:.6f}")\n""",
                """            shown = f"{loss.item():.{logging['digits']}f}"
            print(f"step {step} | loss {shown} | lr {rate:.6f} | grad {length.item():.2f}")\n""",
            ),
        ),
    ),
    Step(
        "layers: call the module blocks",
        (
            Move("layers.py", "blocks.py"),
            Replace("blocks.py", "The parts of a transformer block.", "Transformer blocks and their parts."),
        ),
        body="`layers` is also the number of them in the config.",
        role=Role.BROKEN,
    ),
    Step(
        "blocks: a docstring for each class",
        (
            Replace(
                "blocks.py",
                "class Attention(nn.Module):\n",
                'class Attention(nn.Module):\n    """Causal attention with several heads."""\n\n',
            ),
            Replace(
                "blocks.py",
                "class FeedForward(nn.Module):\n",
                'class FeedForward(nn.Module):\n    """Two layers, the inner one four times as wide."""\n\n',
            ),
            Replace(
                "blocks.py",
                "class Block(nn.Module):\n",
                'class Block(nn.Module):\n    """Attention, then feed-forward; each normed before and added after."""\n\n',
            ),
        ),
        role=Role.BROKEN,
    ),
    Step(
        "changelog: checkpoints, batches, log",
        (
            Append(
                "CHANGELOG.md",
                """- `run.checkpoint` keeps the weights.
- Batches come from a generator of their own; runs differ from earlier ones with the same seed.
- The log shows the length of the gradient.
""",
            ),
        ),
        role=Role.BROKEN,
    ),
    Step(
        "model: import the blocks from where they are now",
        (
            Replace("model.py", "from layers import Block\n", "from blocks import Block\n"),
            Replace(
                "README.md",
                "| `layers.py` | attention, feed-forward, block |",
                "| `blocks.py` | attention, feed-forward, block |",
            ),
        ),
        body="Left behind by the rename.",
    ),
)
