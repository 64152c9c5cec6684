"""An environment variable among six that differ is the culprit; nothing in the repository says so."""

from __future__ import annotations

from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

READS_VARIABLES = (
    TRAIN_PY.replace("import argparse\n", "import argparse\nimport os\n", 1)
    .replace(
        "        total += loss.item()\n    optimizer.step()\n",
        "        total += loss.item()\n"
        '    limit = os.environ.get("CHARMODEL_CLIP")\n'
        "    if limit:\n"
        "        torch.nn.utils.clip_grad_norm_(model.parameters(), float(limit))\n"
        "    optimizer.step()\n",
    )
    .replace(
        '            print(f"step {step} loss {loss:.4f}")\n',
        "            print(f\"{os.environ.get('CHARMODEL_NAME', 'run')} step {step} loss {loss:.4f}\")\n",
    )
)
GOOD_ENV = "CHARMODEL_NAME=spring\nLOG_LEVEL=info\nWANDB_MODE=offline\nTOKENIZERS_PARALLELISM=false\nCHARMODEL_CLIP=1.0\n"
BAD_ENV = (
    "CHARMODEL_NAME=autumn\nLOG_LEVEL=warning\nWANDB_MODE=disabled\nTOKENIZERS_PARALLELISM=true\nCHARMODEL_CLIP=0.05\n"
    "HF_HUB_OFFLINE=1\n"
)

VARIABLE = Scenario(
    "env_variable",
    weave({}, num=10),
    Truth("isolated", 0, (("CHARMODEL_CLIP",),), kind_of_change="worse"),
    base={"train.py": READS_VARIABLES},
    options=("--good-env", "{files}/good.env", "--bad-env", "{files}/bad.env"),
    files={"good.env": GOOD_ENV, "bad.env": BAD_ENV},
)
