"""`hpcserve` and `python -m hpcserve`: the command line, which Ctrl-C ends quietly at any moment of its life."""

import os
import signal
import sys

__all__ = ["main"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main() -> None:
    """Run the command line of this process and end it with the exit code.

    While it loads and while it leaves, there is nothing to clean up: Ctrl-C ends it at once then. As an exception it
    would come up anywhere, in a callback of the import system too, which prints a traceback and goes on.
    """
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not with nohup, or `&` in a script
    if heeds:
        signal.signal(signal.SIGINT, _leave)
    from hpcserve.cli import main as run  # noqa: PLC0415 - loading it takes long enough to be interrupted

    try:
        if heeds:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        if heeds:
            signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
