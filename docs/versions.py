"""The versions of the manual that a site has, a folder each: what the selector of each page shows.

`python docs/versions.py FOLDER` lists those in a folder, as after the manual of a release was unpacked there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

#: Leads from the top of the site to the newest version.
_INDEX = """<!doctype html>
<meta charset="utf-8">
<title>bucketwise</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html">
<a href="{newest}/index.html">bucketwise {newest}</a>
"""


def listed(site: Path) -> list[str]:
    """Writes the list of the versions in a folder, and its first page; returns them, the newest first."""
    found: dict[Version, str] = {}
    for folder in site.iterdir():
        if (folder / "index.html").is_file():
            try:
                found[Version(folder.name)] = folder.name
            except InvalidVersion:
                continue
    names = [found[it] for it in sorted(found, reverse=True)]
    told = [{"version": it, "title": it, "aliases": ["latest"] if it == names[0] else []} for it in names]
    (site / "versions.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if names:
        (site / "index.html").write_text(_INDEX.format(newest=names[0]), encoding="utf-8")
    return names


if __name__ == "__main__":
    sys.stdout.writelines(f"{it}\n" for it in listed(Path(sys.argv[1])))
