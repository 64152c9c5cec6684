"""A stretch of commits that do not start hides the culprit: a set is the honest answer, unless the stretch can be repaired."""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Step
from tests.scenarios.library.ordinary import SAME_INIT, weave
from tests.scenarios.library.scenario import Scenario, Truth
from tests.scenarios.library.slower import LOWER_RATE, LOWERED

RENAME = Step("corpus: read_corpus is the better name", (Replace("corpus.py", "def load_corpus(", "def read_corpus("),))
ADAPT = Step(
    "train: follow the new name of read_corpus",
    (
        Replace("train.py", "from corpus import load_corpus\n", "from corpus import read_corpus\n"),
        Replace("train.py", "corpus = load_corpus(", "corpus = read_corpus("),
    ),
)
FIRST, CULPRIT, LAST = 8, 10, 13  # commits FIRST to LAST - 1 raise ImportError
HISTORY = weave({4: SAME_INIT, FIRST: RENAME, CULPRIT: LOWER_RATE, LAST: ADAPT}, num=20)

BROKEN_STRETCH = Scenario(
    "broken_stretch",
    HISTORY,
    Truth("candidates", 3, stretch=HISTORY[FIRST - 1 : LAST], hidden=(LOWER_RATE,)),
)

OLD_NAME_TOO = """\
diff --git a/corpus.py b/corpus.py
--- a/corpus.py
+++ b/corpus.py
@@ -24,3 +24,7 @@
\x20
\x20
+def load_corpus(settings):
+    return read_corpus(settings)
+
+
 def read_corpus(settings):
"""
REPAIRED_STRETCH = Scenario(
    "repaired_stretch", HISTORY, LOWERED, options=("--fixup", "{files}/names.patch"), files={"names.patch": OLD_NAME_TOO}
)
"""The same range with a patch that gives the renamed function its old name too: exactly the culprit."""
