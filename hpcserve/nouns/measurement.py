"""`Measurement`: what one day's run between the nodes of a site really moved."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Figure, IsoDate, Name, Noun, PositiveInt, Text

__all__ = ["ClassMeasured", "End", "LinkMeasured", "Measurement", "Outlier", "PairMeasured"]


class End(Noun):
    """One end of a measured pair: a node and a GPU (or slot) of it, by index."""

    node: Name
    gpu: Annotated[int, Field(ge=0)]


class PairMeasured(Noun):
    """What was read from `a` into `b`, alone on the fabric: the median of `n` transfers."""

    a: End
    b: End
    gb_per_s: Figure
    """One way, 1e9 bytes/s."""
    latency_us: Figure | None
    """Of a small read; None where it was not measured."""
    transport: Text | None
    """What UCX really chose, `rc_mlx5` or `tcp`; None where it did not say."""
    device: Text | None
    """The NIC that carried it, `mlx5_0:1`; None where nothing proved it."""
    n: PositiveInt
    spread: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """(largest - smallest) / median of the n transfers."""


class ClassMeasured(Noun):
    """Pairs whose paths are alike: `class` is what `Fabric.path_class` calls them."""

    class_: Annotated[Text, Field(alias="class")]
    links: tuple[Text, ...]
    """The links of one path of the class, by the names that the fabric gives them."""
    median: Figure
    """GB/s one way, over the pairs; so are `min` and `max`."""
    min: Figure
    max: Figure
    n: PositiveInt
    """Pairs."""


class LinkMeasured(Noun):
    """What one direction of one link carried, all flows together; named as the fabric names it."""

    name: Text
    gb_per_s: Figure
    static_gb_per_s: Figure | None = None
    """What the same flows would get by the site file; None where it leaves a rate unknown."""


class Outlier(Noun):
    """A node or link that is slower than its like, with the pairs that say so in words."""

    kind: Literal["node", "link"]
    name: Text
    gb_per_s: Figure
    expected_gb_per_s: Figure
    """What its like reach: the upper quartile of its class, of few the largest; where the class is slow as a whole and
    another is not, what the site file says."""
    why: Text


class Measurement(Noun):
    """One dated measurement of one site; what it does not name keeps the site's own figure."""

    schema_: Annotated[Literal["hpcserve.measurement/1"], Field(alias="schema")]
    site: Name
    day: IsoDate
    tool: Text
    """What measured, with its versions, in words that a plan can print."""
    pairs: tuple[PairMeasured, ...] = ()
    classes: tuple[ClassMeasured, ...] = ()
    links: tuple[LinkMeasured, ...] = ()
    """Links that slowed the flows over them: what they carried is what they can."""
    not_filled: tuple[LinkMeasured, ...] = ()
    """Links over which nothing was seen to slow the flows: they can carry at least this."""
    outliers: tuple[Outlier, ...] = ()
    missing: tuple[Text, ...] = ()
    """What was not measured and why, one line each: a rank that died, pairs that were left out."""
