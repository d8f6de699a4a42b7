"""Who may ask: API keys, each of a tenant; and the cache salt that keeps one tenant's prompts from another's clock.

vLLM puts a request's `cache_salt` into the hash of its first KV block. With a salt of its own a tenant never meets
KV that another tenant's prompt left, so that a fast answer says nothing of what others asked.
"""

import hashlib
import hmac
import re
import string
from collections.abc import Iterable
from typing import NamedTuple

from hpcserve.errors import ServiceError

__all__ = ["KeyRing", "Tenant", "read_tenants"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHORTEST_KEY = 16
_KEY_LETTERS = frozenset(string.ascii_letters + string.digits + "-._~+/=")
"""What may stand in `Authorization: Bearer` (RFC 6750, 2.1)."""
_LONGEST_BYTES = 1 << 20


class Tenant(NamedTuple):
    """Whose key it was. `salt` is empty for the job's own key, whose bodies pass unchanged."""

    name: str
    salt: str

    def salt_with(self, own: bytes) -> str:
        """The salt for a request that brings one itself: another one for each, and still of this tenant only."""
        return hmac.new(self.salt.encode(), own, hashlib.sha256).hexdigest()[:32]


class KeyRing:
    """The keys of now. Immutable: another file makes another ring."""

    __slots__ = ("_keys", "tenants")

    def __init__(self, job_key: bytes, *, tenants: Iterable[tuple[str, str]] = (), secret: bytes = b"") -> None:
        """`tenants`: (name, key), several keys of one name are of one tenant. `secret`: what salts are made from."""
        self._keys = [(hashlib.sha256(job_key).digest(), Tenant("", ""))]
        for name, key in tenants:
            salt = hmac.new(secret, b"cache salt of " + name.encode(), hashlib.sha256).hexdigest()[:32]
            self._keys.append((hashlib.sha256(key.encode()).digest(), Tenant(name, salt)))
        self.tenants = len(self._keys) > 1
        """Whether there are others than the job's own key."""

    def tenant_of(self, authorization: bytes) -> Tenant | None:
        """Who sent this `Authorization`; None: nobody known. Takes as long whichever key it is, or none."""
        scheme, _, token = authorization.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        found = None
        for known, tenant in self._keys:
            if hmac.compare_digest(digest, known):
                found = tenant
        return found if scheme.lower() == b"bearer" else None


def read_tenants(text: str, *, source: str) -> list[tuple[str, str]]:
    """(tenant, key) of each line `NAME KEY`; empty lines and what follows `#` at a line's beginning are passed over.

    Raises ServiceError with all mistakes, never with a key in its words.
    """
    if len(text) > _LONGEST_BYTES:
        raise ServiceError(f"{source}: {len(text)} characters", remedy="at most a million are read")
    found: list[tuple[str, str]] = []
    mistakes = []
    owners: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        mistake = _mistake(words)
        if not mistake and words[1] in owners:
            mistake = f"the key stands in line {owners[words[1]]} already"
        if mistake:
            mistakes.append(f"{source}:{number}: {mistake}")
            continue
        owners[words[1]] = number
        found.append((words[0], words[1]))
    if mistakes:
        raise ServiceError("\n".join(mistakes), remedy="a line is `NAME KEY`; a key is made by `openssl rand -hex 24`")
    return found


def _mistake(words: list[str]) -> str:
    if len(words) != 2:  # noqa: PLR2004 - a name and a key
        return f"{len(words)} words, two were wanted: a tenant's name and a key"
    name, key = words
    if not _NAME.fullmatch(name):
        return f"{name[:64]!r} is no name: letters, digits, `.`, `_` and `-`, at most 64"
    if len(key) < _SHORTEST_KEY or not _KEY_LETTERS.issuperset(key):
        return f"the key of {name} has {len(key)} characters: at least 16 were wanted, of letters, digits and -._~+/="
    return ""
