"""Case 10: requirements that change inside the range, so that each commit needs an environment of its own.

A commit that runs with the packages of another one gives a plausible number. The reports: vllm-project/vllm-ascend#16776,
pytorch/benchmark#258.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.five_packages import OTHERS, USES_PACKAGES
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import CONFIG_YAML, TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth
from tests.support.wheels import make_wheel

RECIPE = "environment: {files: [requirements.txt]}\n"
OPTIONS = ("--recipe", "{files}/recipe.yaml", "--find-links", "{files}/wheels", "--index-url", "none")
PINNED_BEFORE = "pin what is needed"

ADAM_PY = (
    '"""Adam with betas as ({first}, {second})."""\n\nimport torch\n\n\n'
    "def make(params, lr, betas):\n    {first}, {second} = betas\n"
    "    return torch.optim.Adam(params, lr=lr, betas=(of_gradients, of_squares))\n"
)
ADAMS = {
    "1.0": ADAM_PY.format(first="of_squares", second="of_gradients"),
    "2.0": ADAM_PY.format(first="of_gradients", second="of_squares"),
}
USES_ADAM: dict[str, str] = {
    "requirements.txt": "pyyaml\ntorch\ntoyopt==1.0\n",
    "config.yaml": CONFIG_YAML.replace("  lr: 4.0\n  momentum: 0.8\n", "  lr: 0.3\n  beta1: 0.5\n  beta2: 0.99\n"),
    "train.py": TRAIN_PY.replace("import torch\n", "import torch\nimport toyopt\n", 1).replace(
        """    return torch.optim.SGD(
        model.parameters(),
        lr=settings["lr"],
        momentum=settings["momentum"],
    )
""",
        """    return toyopt.make(
        model.parameters(),
        settings["lr"],
        (settings["beta2"], settings["beta1"]),
    )
""",
    ),
}

TO_TWO = Step(
    "toyopt 2.0: betas come in the usual order",
    (
        Replace("requirements.txt", "toyopt==1.0", "toyopt==2.0"),
        Replace("train.py", '(settings["beta2"], settings["beta1"])', '(settings["beta1"], settings["beta2"])'),
    ),
    role=Role.DECOY,
)
SWAP = Step(
    "train: a name for the two rates",
    (
        Replace(
            "train.py",
            "    return toyopt.make(\n",
            '    rates = settings["beta2"], settings["beta1"]\n    return toyopt.make(\n',
        ),
        Replace("train.py", '        (settings["beta1"], settings["beta2"]),\n', "        rates,\n"),
    ),
    role=Role.CULPRIT,
)


def prepare_adam(files: Path) -> None:
    """Write both releases of toyopt."""
    for version, text in ADAMS.items():
        make_wheel(files / "wheels", "toyopt", version, {"toyopt/__init__.py": text})


REQUIREMENTS_TRAVEL = Scenario(
    "case10_requirements_travel",
    weave({6: TO_TWO, 11: SWAP}, num=16, without=(PINNED_BEFORE,)),
    Truth("isolated", 0, ((SWAP,),), kind_of_change="worse"),
    base=USES_ADAM,
    options=OPTIONS,
    files={"recipe.yaml": RECIPE},
    prepare=prepare_adam,
)

SGD_PY = "import torch\n\n\ndef make(params, lr, momentum):\n    return torch.optim.SGD(params, lr={lr}, momentum={momentum})\n"
STEPPERS: Mapping[str, str] = {
    "1.0": SGD_PY.format(lr="lr", momentum="momentum"),
    "1.1": '"""Plain SGD."""\n\n' + SGD_PY.format(lr="lr", momentum="momentum"),
    "1.2": '"""Plain SGD, with the momentum that is damped."""\n\n'
    + SGD_PY.format(lr="lr * (1 - momentum)", momentum="momentum"),
}
LISTED = (
    "# how weights are moved\ntoyopt=={toyopt}\n# how text becomes numbers\ntinytok=={tinytok}\n"
    "# what is printed\nminilog=={minilog}\n# how settings are read\nconfette=={confette}\npyyaml\ntorch\n"
)


def _listed(toyopt: str, tinytok: str, minilog: str, confette: str) -> str:
    return LISTED.format(toyopt=toyopt, tinytok=tinytok, minilog=minilog, confette=confette)


FIRST_LIST = _listed("1.0", "0.9", "2.0", "0.3")
SECOND_LIST = _listed("1.1", "0.9", "2.3", "0.3")
THIRD_LIST = _listed("1.2", "1.0", "2.0", "0.4")

FIRST_BUMP = Step("newer toyopt and minilog", (Replace("requirements.txt", FIRST_LIST, SECOND_LIST),), role=Role.DECOY)
SECOND_BUMP = Step("dependencies of the autumn", (Replace("requirements.txt", SECOND_LIST, THIRD_LIST),), role=Role.CULPRIT)

USES_SGD: dict[str, str] = {
    "requirements.txt": FIRST_LIST,
    "corpus.py": USES_PACKAGES["corpus.py"],
    "settings.py": USES_PACKAGES["settings.py"],
    "train.py": USES_PACKAGES["train.py"]
    .replace("import torch\n", "import torch\nimport toyopt\n", 1)
    .replace("torch.optim.SGD(\n", "toyopt.make(\n"),
}


def prepare_sgd(files: Path) -> None:
    """Write the releases of toyopt and of the packages beside it."""
    for version, text in STEPPERS.items():
        make_wheel(files / "wheels", "toyopt", version, {"toyopt/__init__.py": text})
    for (name, version), text in OTHERS.items():
        make_wheel(files / "wheels", name, version, {f"{name}/__init__.py": text})


REQUIREMENTS_TWICE = Scenario(
    "requirements_twice",
    weave({5: FIRST_BUMP, 12: SECOND_BUMP}, num=16, without=(PINNED_BEFORE,)),
    Truth("isolated", 0, ((SECOND_BUMP,),), kind_of_change="worse", levels=(("hunk", "requirements.txt:2,1"),)),
    base=USES_SGD,
    options=OPTIONS,
    files={"recipe.yaml": RECIPE},
    prepare=prepare_sgd,
)
