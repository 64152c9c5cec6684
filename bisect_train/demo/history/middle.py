"""The middle third: one decoy, then the culprit, which looks like a move."""

from __future__ import annotations

from bisect_train.demo.history.steps import Add, Append, Merge, Replace, Role, Step

SAMPLING = Merge(
    "Merge branch 'sampling'",
    branch=(
        Step(
            "data: from text to codes and back",
            (
                Replace(
                    "data.py",
                    "    def steps_per_epoch(self, batch_size):\n",
                    """    def encode(self, text):
        return torch.tensor([self.index[symbol] for symbol in text])

    def decode(self, codes):
        return "".join(self.alphabet[code] for code in codes.tolist())

    def steps_per_epoch(self, batch_size):\n""",
                ),
                Replace(
                    "data.py",
                    "        alphabet = sorted(set(text))\n        index = {symbol: i for i, symbol in enumerate(alphabet)}\n"
                    "        codes = torch.tensor([index[symbol] for symbol in text])\n",
                    "        self.alphabet = sorted(set(text))\n"
                    "        self.index = {symbol: i for i, symbol in enumerate(self.alphabet)}\n"
                    "        codes = self.encode(text)\n",
                ),
                Replace("data.py", "len(alphabet)\n", "len(self.alphabet)\n"),
            ),
        ),
        Step("sample: write text with a trained model", (Add("sample.py", "sample.py.txt"),)),
        Step(
            "readme: how to write text",
            (
                Replace(
                    "README.md",
                    "\n## Files\n",
                    '\n## Write\n\n    python sample.py --checkpoint model.pt --prompt "The "\n\n## Files\n',
                ),
                Replace(
                    "README.md",
                    "| `config.yaml` | all settings |\n",
                    "| `sample.py` | text from a checkpoint |\n| `config.yaml` | all settings |\n",
                ),
            ),
        ),
    ),
)

SCHEDULE = Step(
    "optim: move the schedule into its own module",
    (
        Replace(
            "train.py", "from model import CharModel\n", "from model import CharModel\nfrom schedule import WarmupCosine\n"
        ),
        Replace(
            "train.py",
            '''def plan_schedule(config, epochs, steps_per_epoch):
    """Return the first step after warm-up and the last step of the run.

    warmup_epochs is a fraction: 0.02 warms up over 2 % of the first epoch.
    """
    warmup = max(1, round(config["warmup_epochs"] * steps_per_epoch))
    total = epochs * steps_per_epoch
    return warmup, total


def learning_rate_at(step, config, warmup, total):
    """Climb in a straight line, then half a cosine down to the floor."""
    peak = config["learning_rate"]
    floor = peak * config["floor"]
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (peak - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rate(optimizer, value):
    for group in optimizer.param_groups:
        group["lr"] = value


''',
            "",
        ),
        Replace(
            "train.py",
            """    steps_per_epoch = corpus.steps_per_epoch(training["batch_size"])
    warmup, total = plan_schedule(config["optimizer"], training["epochs"], steps_per_epoch)
    last_step = min(total, training["max_steps"] or total)
""",
            """    schedule = WarmupCosine(
        optimizer,
        config["optimizer"],
        epochs=training["epochs"],
        steps_per_epoch=corpus.steps_per_epoch(training["batch_size"]),
    )
    last_step = min(schedule.num_steps, training["max_steps"] or schedule.num_steps)
""",
        ),
        Replace(
            "train.py",
            """        rate = learning_rate_at(step, config["optimizer"], warmup, total)
        set_learning_rate(optimizer, rate)
""",
            "        rate = schedule.set(step)\n",
        ),
        Add("schedule.py", "schedule.py.txt"),
        Add("tests/test_schedule.py", "test_schedule.py.txt"),
    ),
    body="The loop is easier to read, and the schedule gets tests. Same formula as before.",
    role=Role.CULPRIT,
)

MIDDLE: tuple[Step | Merge, ...] = (
    Step(
        "model: sketch the layers in the docstring",
        (
            Replace(
                "model.py",
                '''"""A small transformer over characters."""\n''',
                '''"""A small transformer over characters.

    codes -> symbols + positions -> blocks -> norm -> head -> logits
"""\n''',
            ),
        ),
    ),
    Step(
        "model: put the ends together, then the blocks",
        (
            Replace(
                "model.py",
                """        self.drop = nn.Dropout(config["dropout"])
        self.blocks = nn.ModuleList([Block(config) for _ in range(config["layers"])])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_symbols)
""",
                """        self.head = nn.Linear(width, num_symbols)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(config["dropout"])
        self.blocks = nn.ModuleList([Block(config) for _ in range(config["layers"])])
""",
            ),
        ),
        body="Embeddings and head depend on the alphabet, the blocks do not.",
        role=Role.DECOY,
    ),
    Step(
        "utils: drop the timer, nobody uses it",
        (
            Replace(
                "utils.py",
                '''class Timer:
    """Measure how long a with-block takes."""

    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.start


''',
                "",
            ),
            Replace("utils.py", "import random\nimport time\n", "import random\n"),
        ),
    ),
    Step(
        "data: refuse a text that is shorter than the context",
        (
            Replace(
                "data.py",
                "        self.context = context\n",
                """        if len(codes) - split <= context:
            raise ValueError(f"{len(codes) - split} held-out characters are too few for a context of {context}")
        self.context = context\n""",
            ),
        ),
    ),
    Step(
        "tests: a short text is refused",
        (
            Replace("tests/test_data.py", "import torch\n", "import pytest\nimport torch\n"),
            Append(
                "tests/test_data.py",
                """

def test_short_text_is_refused():
    with pytest.raises(ValueError, match="too few"):
        Corpus({"max_chars": 50, "held_out": 0.1}, context=8)
""",
            ),
        ),
    ),
    SAMPLING,
    Step(
        "git: leave caches and weights out",
        (Add(".gitignore", "gitignore.txt"),),
    ),
    Step(
        "train: held-out loss in bits per character too",
        (
            Replace(
                "train.py",
                "perplexity {math.exp(held_out):.2f}",
                "{held_out / math.log(2):.3f} bits | perplexity {math.exp(held_out):.2f}",
            ),
        ),
    ),
    Step(
        "blocks: name the part of the mask that applies",
        (
            Replace(
                "blocks.py",
                """        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))\n""",
                """        hidden = self.mask[:length, :length] == 0
        scores = scores.masked_fill(hidden, float("-inf"))\n""",
            ),
        ),
    ),
    Step("docs: a glossary", (Add("docs/glossary.md", "glossary.md.txt"),)),
    Step(
        "requirements: oldest versions that were tried",
        (Replace("requirements.txt", "torch\npyyaml\npytest\n", "torch>=2.1\npyyaml>=6.0\npytest>=7.0\n"),),
    ),
    Step(
        "tests: only matrices decay",
        (Add("tests/test_optimizer.py", "test_optimizer.py.txt"),),
    ),
    Step(
        "sample: a temperature",
        (
            Replace(
                "sample.py",
                """    parser.add_argument("--seed", type=int, default=0)\n""",
                """    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 the text gets safer")
    parser.add_argument("--seed", type=int, default=0)\n""",
            ),
            Replace(
                "sample.py",
                "def continue_text(model, codes, length, context):\n",
                "def continue_text(model, codes, length, context, temperature):\n",
            ),
            Replace("sample.py", "torch.softmax(logits, dim=-1)", "torch.softmax(logits / temperature, dim=-1)"),
            Replace(
                "sample.py",
                "    codes = continue_text(model, corpus.encode(args.prompt), args.length, corpus.context)\n",
                """    codes = corpus.encode(args.prompt)
    codes = continue_text(model, codes, args.length, corpus.context, args.temperature)\n""",
            ),
        ),
    ),
    Step(
        "data: cut a batch with one index",
        (
            Replace(
                "data.py",
                """        inputs = torch.stack([codes[s : s + self.context] for s in starts])
        targets = torch.stack([codes[s + 1 : s + 1 + self.context] for s in starts])
        return inputs, targets
""",
                """        places = starts[:, None] + torch.arange(self.context)
        return codes[places], codes[places + 1]
""",
            ),
        ),
    ),
    Step(
        "blocks: refuse a width that the heads do not divide",
        (
            Replace(
                "blocks.py",
                """        self.heads = config["heads"]\n""",
                """        self.heads = config["heads"]
        if width % self.heads:
            raise ValueError(f"width {width} is not a multiple of {self.heads} heads")\n""",
            ),
        ),
    ),
    Step(
        "config: betas on lines of their own",
        (Replace("config.yaml", "  betas: [0.9, 0.99]\n", "  betas:\n    - 0.9\n    - 0.99\n"),),
        body="A diff of two configs then shows which of them changed.",
    ),
    SCHEDULE,
)
