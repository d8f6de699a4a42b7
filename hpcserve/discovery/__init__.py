"""Discovery: the records of a job directory, written so that any shared filesystem carries them.

In: nouns and a job directory; a clock of the reader's own. Out: records on disk, `Snapshot`s of live endpoints.
May touch: files of the job directory, `/proc`, who has which home; trusts no other node's clock, no inotify, no lock.
"""

from hpcserve.discovery.clearing import remove_tree
from hpcserve.discovery.files import DISK, FileSystem, Found
from hpcserve.discovery.home import home_directory, typed_path
from hpcserve.discovery.leader import Leader, claim_leadership
from hpcserve.discovery.logs import log_tail, printable
from hpcserve.discovery.presence import HEARTBEAT_PERIOD_S, Heart, announce, withdraw
from hpcserve.discovery.process import ProcessStat, is_running, process_stats, start_ticks, stat_of
from hpcserve.discovery.records import Listing, read_dir_record, read_records, write_record
from hpcserve.discovery.waiting import VISIBILITY_S, await_records
from hpcserve.discovery.watch import HEARTBEAT_TIMEOUT_S, Snapshot, Watch

__all__ = [
    "DISK",
    "HEARTBEAT_PERIOD_S",
    "HEARTBEAT_TIMEOUT_S",
    "VISIBILITY_S",
    "FileSystem",
    "Found",
    "Heart",
    "Leader",
    "Listing",
    "ProcessStat",
    "Snapshot",
    "Watch",
    "announce",
    "await_records",
    "claim_leadership",
    "home_directory",
    "is_running",
    "log_tail",
    "printable",
    "process_stats",
    "read_dir_record",
    "read_records",
    "remove_tree",
    "start_ticks",
    "stat_of",
    "typed_path",
    "withdraw",
    "write_record",
]
