"""What a user can mend, and how it is said: one message, without a traceback."""

from __future__ import annotations

import re

from hydra.errors import HydraException, InstantiationException
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from experiments.results import ResultError
from experiments.runs import ConfigChangedError, RunInUseError
from tensormem.audit import CausalityError

# A ConfigError, a ResultError, data of the wrong size are ValueErrors, a data set that is not there is an OSError.
USER_ERRORS = (
    CausalityError,
    ConfigChangedError,
    FloatingPointError,
    HydraException,
    MisconfigurationException,
    OSError,
    ResultError,
    RunInUseError,
    ValueError,
)


def explain(error: BaseException) -> str:
    """The message of a user's error; of a call that Hydra made, what was wrong with it and the section it stands in."""
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        section = re.search(r"full_key: (\S+)", str(error))
        return f"{error.__cause__}" + (f" (in {section[1]})" if section else "")
    return str(error)
