"""The command line: one file a verb.

In: argv. Out: text or JSON on stdout, words and progress on stderr, an exit code. Touches: whatever the verb does.
"""

from hpcserve.cli.program import main, program

__all__ = ["main", "program"]
