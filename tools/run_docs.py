"""Run the pages whose code takes too long for the tests, one after the other, and note when: `make test-docs`.

`python -m tools.run_docs docs/tutorial-sir.md` runs one of them. Each page is written as a script to
`build/docs-run/<page>/`, where its output (`output.txt`) and its figures are found afterwards. `docs/last-run.json` has
the date, the seconds, the version, and a checksum of the code: a test notices code that was changed and not run since.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nsmbayes

ROOT = Path(__file__).resolve().parents[1]
LAST_RUN = ROOT / "docs" / "last-run.json"
WORK = ROOT / "build" / "docs-run"
PAGES = (
    "docs/baselines.md",
    "docs/tutorial-cases.md",
    "docs/tutorial-newcomb.md",
    "docs/tutorial-radio.md",
    "docs/tutorial-sir.md",
    "docs/tutorial-stars.md",
)

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def code(page: str) -> str:
    """All Python blocks of a page as one script, each after a line that says where it stands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = ((text[: block.start()].count("\n") + 2, block[1]) for block in _BLOCK.finditer(text))
    return "\n".join(f'print("# line {line}", flush=True)\n{block}' for line, block in parts)


def checksum(page: str) -> str:
    """Of the blocks of a page, wherever they stand on it."""
    blocks = _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return hashlib.sha256("\n".join(blocks).encode()).hexdigest()[:16]


def run(page: str) -> bool:
    """Run a page, keep what it prints and draws, and note it if it ended well."""
    folder = WORK / Path(page).stem
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page.py").write_text(code(page), encoding="utf-8")
    print(f"{page} ...", end=" ", flush=True)
    start = time.perf_counter()
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    with (folder / "output.txt").open("w") as output, (folder / "errors.txt").open("w") as errors:
        done = subprocess.run(
            [sys.executable, "page.py"], cwd=folder, env=environment, stdout=output, stderr=errors, check=False
        )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        print(f"failed: see {(folder / 'errors.txt').relative_to(ROOT)}")
        return False
    _note(page, seconds)
    print(f"{seconds:.0f} s")
    return True


def _note(page: str, seconds: float) -> None:
    known = json.loads(LAST_RUN.read_text(encoding="utf-8")) if LAST_RUN.exists() else {}
    known[page] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds),
        "version": nsmbayes.__version__,
        "code": checksum(page),
    }
    LAST_RUN.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n", encoding="utf-8")


def main(pages: list[str]) -> int:
    """Run the pages that are named, or all; 1 if one of them failed."""
    unknown = sorted(set(pages) - set(PAGES))
    if unknown:
        print(f"{', '.join(unknown)}: not one of {', '.join(PAGES)}", file=sys.stderr)
        return 2
    ended_well = [run(page) for page in pages or PAGES]  # all of them, also after one that failed
    return 0 if all(ended_well) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
