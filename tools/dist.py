"""Check what `make dist` has built: the wheel holds the package and nothing else, the sdist all that its tests need.

python -m tools.dist dist
"""

import sys
import tarfile
import zipfile
from pathlib import Path

SDIST = ("nsmbayes", "tests", "bench", "docs", "Makefile", "constraints.txt", "pyproject.toml", "README.md", "LICENSE")


def problems_of_wheel(names: list[str]) -> list[str]:
    """What is wrong with the files of a wheel, in words.

    Example:
        >>> from tools.dist import problems_of_wheel
        >>> problems_of_wheel(["nsmbayes/py.typed", "nsmbayes-0.1.0.dist-info/entry_points.txt", "tests/test_x.py"])
        ['the wheel holds tests/test_x.py, which is not of the package']
    """
    found = [
        f"the wheel holds {name}, which is not of the package"
        for name in names
        if not (name.startswith("nsmbayes/") and name.endswith((".py", "/py.typed")))
        and not name.split("/")[0].endswith(".dist-info")
    ]
    for needed in ("nsmbayes/py.typed", "entry_points.txt"):
        if not any(name.endswith(needed) for name in names):
            found.append(f"the wheel lacks {needed}")
    return found


def problems_of_sdist(names: list[str]) -> list[str]:
    """What is wrong with the files of a source distribution."""
    tops = {parts[1] for name in names if len(parts := name.split("/")) > 1}
    return [f"the sdist lacks {name}" for name in SDIST if name not in tops]


def main(folder: Path) -> int:
    """Check the newest wheel and sdist in a folder."""
    wheels, sdists = (
        sorted(folder.glob(pattern), key=lambda p: p.stat().st_mtime) for pattern in ("*.whl", "*.tar.gz")
    )
    if not wheels or not sdists:
        print(f"{folder} has no wheel, or no sdist")
        return 1
    with zipfile.ZipFile(wheels[-1]) as wheel, tarfile.open(sdists[-1]) as sdist:
        found = problems_of_wheel(wheel.namelist()) + problems_of_sdist(sdist.getnames())
    print("\n".join(found) or f"{wheels[-1].name} and {sdists[-1].name} hold what they should")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
