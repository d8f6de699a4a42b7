"""What a cluster's tools print, read together -> a site file, new or refreshed.

In: texts that were read already, and the text of a site file. Out: its new text, and what was not taken over. Touches:
nothing.
"""

from hpcserve.site.learning.draft import Draft, draft_of
from hpcserve.site.learning.empty import still_empty
from hpcserve.site.learning.facts import Facts
from hpcserve.site.learning.gather import Reading, gather
from hpcserve.site.learning.merge import Conflict
from hpcserve.site.learning.refresh import Refreshed, refresh
from hpcserve.site.learning.skeleton import skeleton

__all__ = [
    "Conflict",
    "Draft",
    "Facts",
    "Reading",
    "Refreshed",
    "draft_of",
    "gather",
    "refresh",
    "skeleton",
    "still_empty",
]
