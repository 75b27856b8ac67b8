"""Links of pages to files outside of docs/ go to the repository, if the file exists. Adds the style."""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
# A warning of this logger fails a strict build.
log = logging.getLogger("mkdocs.hooks.links")

FENCE = re.compile(r"(?m)^ *(```+)[^`]*?^ *\1 *$", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]+)?\)")


def on_files(files, config):
    style = Path(__file__).with_name("site.css")
    files.append(File.generated(config, "assets/site.css", abs_src_path=str(style)))
    return files


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def rewrite(match):
        target, anchor = match.group(1), match.group(2) or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        found = ROOT / path
        if path.startswith("docs/") and not found.is_dir():
            return match.group(0)
        if path.startswith("../") or not found.exists():
            log.warning("%s: there is no %s", page.file.src_uri, target)
        elif anchor and found.suffix == ".md" and anchor[1:] not in anchors(found):
            log.warning("%s: %s has no %s", page.file.src_uri, target, anchor)
        kind = "tree" if found.is_dir() else "blob"
        return f"]({config.repo_url}/{kind}/main/{path}{anchor})"

    out, at = [], 0
    for fence in FENCE.finditer(markdown):
        out += [LINK.sub(rewrite, markdown[at : fence.start()]), fence.group(0)]
        at = fence.end()
    return "".join(out) + LINK.sub(rewrite, markdown[at:])


def anchors(path):
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.*)$", FENCE.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}
