"""What MkDocs does to the manual: navigation, pages of the top of the repository and of reference, links."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).parent))

import reference  # noqa: E402
import versions  # noqa: E402

from bucketwise import __version__  # noqa: E402

#: Pages from the top of the repository, by their place in the site.
TOP = {"index.md": "README.md"} | {
    f"{it}.md": f"{it}.md" for it in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")
}
_is_built = True
_FENCE = re.compile(r"(?m)^```(\w+) .*$")
_ITEM = re.compile(r"- (?:\w+ the )?\[([^\]]+)\]\(([^)]+)\)")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_startup(command: str, **_: Any) -> None:
    """Notes whether the site is built: each version into a folder of its own. One that is served has none."""
    global _is_built
    _is_built = command != "serve"


def on_config(config: Any) -> Any:
    """Gives the site the navigation that the index of the manual has, with the pages of reference."""
    if _is_built:
        config.site_dir = str(Path(config.site_dir) / __version__)
    config.nav = [
        {"Home": "index.md"},
        *navigation((ROOT / "docs" / "README.md").read_text(encoding="utf-8")),
    ]
    return config


def navigation(index: str) -> list[dict[str, list[dict[str, str]]]]:
    """Returns the sections of the index, each with its pages in order: of each line the first link."""
    sections: dict[str, list[dict[str, str]]] = {}
    for line in index.splitlines():
        if line.startswith("## "):
            sections[line.partition(": ")[2].capitalize()] = []
        elif (found := _ITEM.match(line)) and "#" not in found[2]:
            title, target = found.groups()
            inside = (Path("docs") / target).as_posix().replace("docs/../", "")
            list(sections.values())[-1].append({title: _place(inside)})
    sections["Reference"] += [{title: f"reference/{name}.md"} for name, title in reference.TITLES.items()]
    return [{title: pages} for title, pages in sections.items()]


def on_files(files: Files, config: Any) -> Files:
    """Adds pages from the top of the repository, those of reference, and a schema of the policy file."""
    from bucketwise.config.schema import FILE_NAME, policy_file_schema

    readme = files.get_file_from_path("README.md")
    if readme is not None:
        files.remove(readme)
    made = {place: (ROOT / name).read_text(encoding="utf-8") for place, name in TOP.items()}
    made |= reference.pages() | {FILE_NAME: json.dumps(policy_file_schema(), indent=2, ensure_ascii=False)}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_post_build(config: Any) -> None:
    """Lists the new version beside those that the site has."""
    if _is_built:
        versions.listed(Path(config.site_dir).parent)


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Returns the page with plain fences, and with links as they are in the site. What is linked to and is no
    page of it, such as a file of the source, stays as text."""
    place = page.file.src_uri
    source = Path(TOP[place]) if place in TOP else Path("docs") / place

    def linked(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        path, hash_, fragment = target.partition("#")
        if "://" in target or not path:
            return found[0]
        named = (ROOT / source.parent / path).resolve()
        inside = named.relative_to(ROOT).as_posix() if named.is_relative_to(ROOT) else path
        where = _place(inside)
        if place.startswith("reference/") or files.get_file_from_path(where) is not None:
            up = "../" * place.count("/")
            return (
                found[0]
                if place.startswith("reference/")
                else f"{mark}[{text}]({up}{where}{hash_}{fragment})"
            )
        return text

    return _outside_fences(_FENCE.sub(r"```\1", markdown), lambda it: _LINK.sub(linked, it))


def _place(path: str) -> str:
    """Returns where a file of the repository lies in the site."""
    by_source = {source: place for place, source in TOP.items()}
    if path in ("docs", "docs/README.md"):
        return "index.md"
    return by_source.get(path, path.removeprefix("docs/"))


def _outside_fences(markdown: str, change: Any) -> str:
    parts = re.split(r"(?ms)(^```.*?^```$)", markdown)
    return "".join(it if number % 2 else change(it) for number, it in enumerate(parts))
