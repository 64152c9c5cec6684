"""The last third: four decoys after the culprit, and nothing that needs or touches the schedule."""

from __future__ import annotations

from bisect_train.demo.history.steps import Add, Append, Merge, Replace, Role, Step

DESCRIBE = Merge(
    "Merge branch 'describe'",
    branch=(
        Step("describe: frequencies and entropy of the text", (Add("describe.py", "describe.py.txt"),)),
        Step("tests: entropy of small texts", (Add("tests/test_describe.py", "test_describe.py.txt"),)),
        Step(
            "readme: name describe.py",
            (
                Replace(
                    "README.md",
                    "| `sample.py` | text from a checkpoint |\n",
                    "| `sample.py` | text from a checkpoint |\n| `describe.py` | how often each symbol occurs |\n",
                ),
            ),
        ),
    ),
)

LATE: tuple[Step | Merge, ...] = (
    Step("docs: how to read the log", (Add("docs/log.md", "log.md.txt"),)),
    Step(
        "blocks: a name for the factor four",
        (
            Replace(
                "blocks.py",
                "class FeedForward(nn.Module):\n",
                "INNER_FACTOR = 4\n\n\nclass FeedForward(nn.Module):\n",
            ),
            Replace("blocks.py", "nn.Linear(width, 4 * width)", "nn.Linear(width, INNER_FACTOR * width)"),
            Replace("blocks.py", "nn.Linear(4 * width, width)", "nn.Linear(INNER_FACTOR * width, width)"),
        ),
    ),
    Step(
        "config: a little more eps for Adam",
        (Replace("config.yaml", "  eps: 1.0e-8\n", "  eps: 1.0e-7\n"),),
        body="As we use it for the larger models, where 1e-8 vanishes in half precision.",
        role=Role.DECOY,
    ),
    Step(
        "changelog: sampling, eps",
        (
            Append(
                "CHANGELOG.md",
                "- `sample.py` writes text, with a temperature.\n- Adam's eps is 1e-7.\n",
            ),
        ),
    ),
    Step(
        "utils: say what the functions do",
        (
            Replace(
                "utils.py",
                "def seed_everything(seed):\n",
                'def seed_everything(seed):\n    """Seed Python and torch; the batches have a generator of their own."""\n',
            ),
            Replace(
                "utils.py",
                "def write_time(seconds):\n",
                'def write_time(seconds):\n    """Return a time such as `2 min 5.0 s`."""\n',
            ),
        ),
    ),
    Step(
        "model: write the loss out",
        (
            Replace(
                "model.py",
                "        logits = self(inputs)\n        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())\n",
                """        logits = self(inputs)
        given = logits.gather(-1, targets[..., None]).squeeze(-1)
        return (logits.logsumexp(-1) - given).mean()
""",
            ),
            Replace("model.py", "from torch import nn\nfrom torch.nn import functional as F\n", "from torch import nn\n"),
        ),
        body="The same number up to rounding. Weights for single characters will be one factor here.",
        role=Role.DECOY,
    ),
    Step(
        "tests: the loss is torch's cross entropy",
        (
            Append(
                "tests/test_model.py",
                """

def test_loss_is_the_cross_entropy():
    model = CharModel(30, SETTINGS)
    codes = torch.randint(30, (4, 8))
    expected = torch.nn.functional.cross_entropy(model(codes).flatten(0, 1), codes.flatten())
    assert torch.allclose(model.loss(codes, codes), expected)
""",
            ),
        ),
    ),
    DESCRIBE,
    Step(
        "data: say how a batch is drawn",
        (
            Replace(
                "data.py",
                "    def batch(self, part, batch_size, generator=None):\n",
                '''    def batch(self, part, batch_size, generator=None):
        """Return inputs and targets from random places; the targets are one character further on."""
''',
            ),
        ),
    ),
    Step(
        "blocks: use torch's attention",
        (
            Replace(
                "blocks.py",
                """        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
        hidden = self.mask[:length, :length] == 0
        scores = scores.masked_fill(hidden, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
""",
                "        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
            ),
        ),
        role=Role.DECOY,
    ),
    Step(
        "blocks: drop the mask, nobody reads it",
        (
            Replace(
                "blocks.py",
                """        self.register_buffer("mask", torch.tril(torch.ones(context, context)), persistent=False)\n""",
                "",
            ),
            Replace(
                "blocks.py",
                """        width, context = config["width"], config["context"]\n""",
                """        width = config["width"]\n""",
            ),
            Replace("blocks.py", "import math\n\nimport torch\nfrom torch import nn\n", "from torch import nn\n"),
        ),
    ),
    Step(
        "tests: no character sees a later one",
        (
            Append(
                "tests/test_model.py",
                """

def test_logits_do_not_depend_on_later_characters():
    model = CharModel(30, SETTINGS)
    codes = torch.zeros(1, 8, dtype=torch.long)
    other = codes.clone()
    other[0, 5:] = 7
    assert torch.allclose(model(codes)[:, :5], model(other)[:, :5], atol=1e-6)
""",
            ),
        ),
    ),
    Step(
        "sample: name the characters that the model does not know",
        (
            Replace(
                "sample.py",
                "    codes = corpus.encode(args.prompt)\n",
                """    unknown = sorted(set(args.prompt) - set(corpus.alphabet))
    if unknown:
        raise SystemExit(f"the text has no {' '.join(unknown)}; choose another prompt")
    codes = corpus.encode(args.prompt)\n""",
            ),
        ),
    ),
    Step(
        "train: write each line of the log at once",
        (Replace("train.py", 'grad {length.item():.2f}")\n', 'grad {length.item():.2f}", flush=True)\n'),),
        body="`tee` showed nothing until the end.",
    ),
    Step(
        "blocks: one matrix for queries, keys and values",
        (
            Replace(
                "blocks.py",
                """        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
""",
                """        self.out = nn.Linear(width, width)
        self.inward = nn.Linear(width, 3 * width)
""",
            ),
            Replace(
                "blocks.py",
                "        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))\n",
                "        q, k, v = (self.split(part) for part in self.inward(x).chunk(3, dim=-1))\n",
            ),
        ),
        body="One product in place of three. Old checkpoints do not load any more.",
        role=Role.DECOY,
    ),
    Step(
        "changelog: attention",
        (Append("CHANGELOG.md", "- Attention is torch's, from one matrix; checkpoints must be made anew.\n"),),
    ),
    Step(
        "make: a target that writes text",
        (
            Replace("Makefile", ".PHONY: train test\n", ".PHONY: train write test\n"),
            Replace("Makefile", "\ntest:\n", "\nwrite:\n\tpython sample.py --checkpoint model.pt\n\ntest:\n"),
        ),
    ),
    Step(
        "config: name the run after its size",
        (Replace("config.yaml", "  name: help-topics\n", "  name: help-topics-64x2\n"),),
    ),
    Step("docs: before you send a change", (Add("CONTRIBUTING.md", "CONTRIBUTING.md.txt"),)),
    Step(
        "model: say why the weights start small",
        (
            Replace(
                "model.py",
                "def init_weights(module):\n",
                '''def init_weights(module):
    """Small weights, no biases: the first logits are then nearly equal, and the first loss is that of a guess."""
''',
            ),
        ),
    ),
    Step(
        "utils: say so when the config is empty",
        (
            Replace(
                "utils.py",
                "        return yaml.safe_load(file)\n",
                """        config = yaml.safe_load(file)
    if not config:
        raise SystemExit(f"{path} is empty")
    return config\n""",
            ),
        ),
    ),
    Step(
        "tests: a missing config is named",
        (Add("tests/test_utils.py", "test_utils.py.txt"),),
    ),
    Step(
        "readme: point to the docs",
        (
            Append(
                "README.md",
                "\nMore: [how to read the log](docs/log.md), [glossary](docs/glossary.md).\n",
            ),
        ),
    ),
)
