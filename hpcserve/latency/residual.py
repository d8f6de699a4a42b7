"""How far a model is from what it was made of."""

from collections.abc import Sequence
from statistics import median

from hpcserve.nouns import LatencyFile, Residual

__all__ = ["residual_of", "with_residuals"]

_DIGITS = 6


def residual_of(errors: Sequence[float]) -> Residual:
    """Median and worst of the relative errors' sizes; raises ValueError where there are none."""
    sizes = [abs(error) for error in errors]
    return Residual(n=len(sizes), median=round(median(sizes), _DIGITS), worst=round(max(sizes), _DIGITS))


def with_residuals(made: LatencyFile, *, prefill: Sequence[float], decode: Sequence[float]) -> LatencyFile:
    """The file with what these relative errors of its two phases come to."""
    return made.model_copy(
        update={
            "prefill": made.prefill.model_copy(update={"residual": residual_of(prefill)}),
            "decode": made.decode.model_copy(update={"residual": residual_of(decode)}),
        }
    )
