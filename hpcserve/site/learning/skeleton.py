"""The site file that an import starts from where there is none yet."""

import re

from hpcserve.site.learning.written import NOT_LEARNT

__all__ = ["skeleton"]

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")

_TEXT = """\
# Begun by `hpcserve site import`. What it could not learn is left empty with a comment that says what belongs there;
# `hpcserve site check` names each such place. Comments and edits stay when you import again.
schema: hpcserve.site/1
name: NAME
description: # GAP one line about this cluster

node_types: # GAP scontrol show node, nvidia-smi

nodes: # GAP scontrol show node

partitions: {} # GAP scontrol show partition

switches: # GAP ibnetdiscover, or topology.conf or scontrol show topology with switches; one leaf where all reach all

networks:
  control:
    interface: # GAP the interface that HTTP and agents use, or `subnet:` instead: `ip address` on a compute node
  data:
    interface: # GAP the interface or subnet of the KV handshake; IPoIB's will do

slurm: {} # GAP scontrol show config; write null where there is no Slurm

transport:
  ucx: # GAP UCX's variables for every worker, as {UCX_TLS: "rc,cuda_copy,cuda_ipc"}; without tcp nothing crawls unseen

runtimes: # GAP how `hpcserve` and each engine (`vllm`) are entered; docs/site.md shows all kinds

paths:
  jobs: # GAP a directory that all nodes see
  models: # GAP where models lie, seen by all nodes
  cache: # GAP where engines keep what they compile
"""


def skeleton(name: str) -> str:
    """A site in which nothing is known but its name; letters that a name cannot have become dashes."""
    kept = _NOT_IN_NAMES.sub("-", name).lstrip("-._") or "cluster"
    return _TEXT.replace("NAME", kept).replace("GAP ", NOT_LEARNT)
