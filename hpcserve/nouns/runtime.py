"""What runs on the nodes and moves KV between them: `Runtime`, `Transport`."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from hpcserve.nouns.base import EnvName, Noun, Text
from hpcserve.nouns.node_type import NicKind

__all__ = ["Runtime", "RuntimeKind", "Transport"]


class RuntimeKind(StrEnum):
    """How a shell enters an environment."""

    VENV = "venv"
    MODULES = "modules"
    APPTAINER = "apptainer"
    PYXIS = "pyxis"
    NONE = "none"


class Runtime(Noun):
    """One environment: `path` is the venv or image; `modules` are loaded first; `env` is set last."""

    kind: RuntimeKind
    """How it is entered; `none` for `hpcserve` is the Python that submits."""
    path: Text | None = None
    """The virtual environment or the image; `venv`, `apptainer` and `pyxis` need it."""
    modules: tuple[Text, ...] = ()
    """Modules that are loaded first; `modules` needs one at least."""
    mounts: tuple[Text, ...] = ()
    """Further directories that a container sees, `/scratch` or `/from:/to`."""
    env: dict[EnvName, str] = Field(default_factory=dict)
    """Variables that are set last."""


class Transport(Noun):
    """What NIXL moves KV with, and its settings by variable name.

    `UCX_NET_DEVICES` is not among them: it follows from placement.
    """

    backend: Literal["ucx", "libfabric"] = "ucx"
    """NIXL's backend; Slingshot and EFA sites have libfabric."""
    ucx: dict[EnvName, Text]
    """UCX variables for every worker, such as `UCX_TLS`. Not `UCX_NET_DEVICES`, which follows from the NICs that a
    worker was placed on."""
    kinds: dict[NicKind, dict[EnvName, Text]] = Field(default_factory=dict)
    """Variables for workers whose NICs are of one kind, over what `ucx` says."""
    libfabric: dict[EnvName, Text] = Field(default_factory=dict)
    """Variables of libfabric (`FI_*`), for every worker."""
