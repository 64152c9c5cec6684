"""One error tree; each class carries the exit status that the command line ends with.

BisectTrainError (1)
├── InputError (2)            the user's mistake: what, the value, the rule, the next command
│   ├── RevisionError         a revision or a range that cannot be bisected
│   ├── RecipeError           a recipe or a config file that cannot be used
│   └── JudgeError            the judging command could not be started
├── MachineError (1)          this machine cannot do it: read-only cache, full disk, Ray does not start
│   └── NotDelivered          a message that could not be told to somebody; it may be tried again
│       └── PlaceDown         the place itself cannot be reached, or asks to wait
├── UnbuildableError (1)      a variant that cannot be built (a conflict, a missing object)
└── InterruptedByUser (130)   Ctrl-C or cancel; `resume` goes on

A crash, an out-of-memory, a timeout or a NaN of the *user's program* is never an exception here: it is data
(`core.fingerprint.Ending`).
"""

from __future__ import annotations

MAX_MESSAGE_CHARS = 3000
"""Of a message, and of a hint: what is quoted in one may be a file of one line."""
MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What taking apart stored data raises where they are of another shape than was written."""


class BisectTrainError(Exception):
    """Base of all errors that the tool raises on purpose.

    Args:
        message: one line: what went wrong, with the value.
        hint: the next command or the rule, or "".
    """

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(_shortened(message))
        self.message = _shortened(message)
        self.hint = _shortened(hint)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]} ... ({len(text):,} characters)"


class InputError(BisectTrainError):
    """The user's input cannot be used; nothing was run."""

    exit_status = 2


class RevisionError(InputError):
    """A revision is unknown, or two revisions do not form a range that can be bisected."""


class RecipeError(InputError):
    """A recipe or a config file is missing, malformed or contradictory; names file and key."""


class JudgeError(InputError):
    """The judging command could not be started (exit status 126 or 127)."""


class MachineError(BisectTrainError):
    """The machine cannot do what is needed; says what to do about it."""


def damaged(what: str, error: BaseException | str, *, then: str = "") -> MachineError:
    """Return the error for stored data that cannot be read.

    Args:
        what: such as `the question of this bisection`.
        error: what came of reading it, or what is wrong in words.
        then: the next command, or "".
    """
    said = (error if isinstance(error, str) else f"{type(error).__name__}: {error}")[:200]
    hint = "the store is damaged, or a newer version wrote it"
    return MachineError(f"{what} cannot be read ({said})", hint=f"{hint}; {then}" if then else hint)


class NotDelivered(MachineError):
    """A message could not be told; says why, and holds no secret. The same may be tried again."""


class PlaceDown(NotDelivered):
    """The place could not be reached, failed, or asks to wait, though it was tried several times: not this message's fault."""


class UnbuildableError(BisectTrainError):
    """A variant cannot be built from its changes; evidence for UNTESTABLE, never for BAD."""


class InterruptedByUser(BisectTrainError):
    """The user stopped the bisection; everything observed so far is stored."""

    exit_status = 130
