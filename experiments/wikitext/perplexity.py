"""From nats to perplexity."""

from __future__ import annotations

import math


def perplexity(nats: float) -> float:
    """exp(nats per token); infinite where that is beyond a float, as of a run that diverges."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
