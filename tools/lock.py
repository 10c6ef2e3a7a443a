"""Write `hashes.txt`: the checksum of every package that the development environment installs, by name and version.

`make lock` asks pip what it would install within `constraints.txt`; `make verify` has pip compare. No index is named:
the same versions have the same checksums wherever they come from. Checksums are of one system, which the file names;
`make` itself installs by version alone, on any system and from any index.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

OWN = "nsmbayes"
HASHES = Path("hashes.txt")


def lines(report: dict[str, Any]) -> list[str]:
    """One line per package of pip's report, in the form that `pip install --require-hashes` reads."""
    found = []
    for entry in report["install"]:
        name, version = entry["metadata"]["name"], entry["metadata"]["version"]
        if name != OWN:
            digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
            found.append(f"{name}=={version} --hash=sha256:{digest}")
    return sorted(found, key=str.lower)


def read() -> dict[str, str]:
    """The checksum of each name==version in `hashes.txt`."""
    pairs = (line.split(" --hash=sha256:") for line in HASHES.read_text().splitlines() if " --hash=" in line)
    return {pin.lower().replace("_", "-"): digest.strip() for pin, digest in pairs}


def main() -> None:
    """Read pip's report from standard input, and write the file."""
    system = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    head = f"# {system}, {platform.system()} {platform.machine()}: written by `make lock`, compared by `make verify`.\n"
    HASHES.write_text(head + "".join(f"{line}\n" for line in lines(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
