"""What is wrong, said once per change and not on every look."""

__all__ = ["Troubles"]

_QUIET_S = 60.0
"""A trouble that comes and goes is said at most this often, so that a flapping file cannot fill a log."""


class Troubles:
    """Between `begin` and `end`, `report` what is wrong now; `end` gives the lines that are news."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._open: dict[str, str] = {}
        self._said_s: dict[str, float] = {}
        self._seen: dict[str, str] = {}

    def begin(self, now_s: float) -> None:
        """Start a look at `now_s` on the reader's monotonic clock."""
        self._now_s = now_s
        self._seen = {}

    def report(self, about: str, line: str) -> None:
        """Something is wrong with `about`."""
        self._seen[about] = line

    def persist(self, about: str) -> None:
        """Nothing new was learned of `about`: what was wrong still counts as wrong."""
        if about in self._open:
            self._seen[about] = self._open[about]

    def end(self) -> tuple[str, ...]:
        """Lines about troubles that began with this look; what stays wrong is not news, nor are its newer figures."""
        news = []
        for about, line in self._seen.items():
            if about in self._open:
                continue
            said_s = self._said_s.get(about)
            if said_s is None or self._now_s - said_s >= _QUIET_S:
                news.append(line)
                self._said_s[about] = self._now_s
        self._open = self._seen
        return tuple(news)
