"""Tests of what Ctrl-C and a closed terminal do hold wherever they are started."""

import signal

for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    # What runs in the background or under nohup(1) ignores these, and so would every program that a test starts.
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)
