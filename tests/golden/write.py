"""Write the golden files anew; look at `git diff tests/golden` before committing them.

python -m tests.golden.write
"""

import shutil
import sys

from tests.golden.cases import CASES, HERE, SITES, case, shown_site


def write() -> None:
    for name in CASES:
        folder = HERE / "jobs" / name
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in case(name).scripts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8", newline="")
        sys.stdout.write(f"{folder}\n")
    shutil.rmtree(HERE / "sites", ignore_errors=True)
    (HERE / "sites").mkdir()
    for name in SITES:
        (HERE / "sites" / f"{name}.txt").write_text(shown_site(name), encoding="utf-8", newline="")


if __name__ == "__main__":
    write()
