"""What the metrics show of KV knowledge."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpcserve.router.exposition import Series, series_of
from hpcserve.router.kv_knowledge import KvKnowledge

if TYPE_CHECKING:  # pyzmq is an extra
    from hpcserve.router.event_feeds import EventFeeds

__all__ = ["feed_series", "knowledge_series"]

_WORKER = ("worker",)


def knowledge_series(knowledge: KvKnowledge, *, doubts: int) -> Iterator[Series]:
    """Of what is known and how."""
    yield series_of("gauge", "kv_exact", "1: KV events are used.", (), {(): float(knowledge.exact and not doubts)})
    yield series_of("gauge", "kv_doubted", "1: this worker's KV events are not believed.", _WORKER, {
        (worker,): 1.0 for worker in knowledge.doubted
    })  # fmt: skip
    yield series_of("gauge", "kv_remembered_prefixes", "Blocks of text whose routes are remembered.", (), {
        (): float(len(knowledge.memory))
    })  # fmt: skip
    yield series_of("counter", "kv_prompts", "Prompts by what was known of them at once.", ("known",), {
        (known,): float(count) for known, count in knowledge.prompts.items()
    })  # fmt: skip
    yield series_of("counter", "kv_prompts_unlike_engine", "Prompts that are not tokenized here.", ("reason",), {
        (reason,): float(count) for reason, count in knowledge.unlike.items()
    })  # fmt: skip
    yield series_of("counter", "kv_predicted_tokens", "Prompt tokens predicted to be cached.", _WORKER, {
        (worker,): float(count) for worker, count in knowledge.predicted_tokens.items()
    })  # fmt: skip
    index = knowledge.index
    if index is not None:
        yield series_of("gauge", "kv_index_blocks", "Blocks in the index.", (), {(): float(index.blocks)})
        yield series_of("counter", "kv_index_refused_blocks", "Blocks that the full index did not take.", (), {
            (): float(index.refused_blocks)
        })  # fmt: skip


def feed_series(feeds: "EventFeeds", *, now_s: float) -> Iterator[Series]:
    """Of the workers' events."""
    each = feeds.feeds.items()
    for name, help_text, values in (
        ("kv_event_batches", "Batches of KV events.", {w: feed.counts.batches for w, feed in each}),
        ("kv_event_batches_lost", "Batches not to be had.", {w: feed.counts.lost_batches for w, feed in each}),
        ("kv_event_unreadable", "Batches not read.", {w: feed.counts.unreadable for w, feed in each}),
        ("kv_event_orphans", "Blocks without a known parent.", {w: feed.blocks.orphans for w, feed in each}),
        ("kv_event_unknown", "Events of unknown type.", {w: feed.blocks.unknown_events for w, feed in each}),
    ):
        yield series_of("counter", name, help_text, _WORKER, {(w,): float(count) for w, count in values.items()})
    yield series_of("gauge", "kv_event_lag_seconds", "Age of the last batch when it came.", _WORKER, {
        (worker,): feed.counts.lag_s for worker, feed in each
    })  # fmt: skip
    yield series_of("gauge", "kv_event_age_seconds", "Since the last batch of KV events.", _WORKER, {
        (worker,): now_s - feed.counts.last_s for worker, feed in each if feed.counts.last_s is not None
    })  # fmt: skip
