"""Links of pages to files outside of docs/ go to the repository, if the file exists. Adds style and script, and mends
the theme."""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
# A warning of this logger fails a strict build.
log = logging.getLogger("mkdocs.hooks.links")

FENCE = re.compile(r"(?m)^ *(```+)[^`]*?^ *\1 *$", re.DOTALL)
# What the theme writes, and what stands for it on each page.
MENDS = {
    # A dialog needs a name for screen readers.
    'data-md-component="search" role="dialog"': 'data-md-component="search" role="dialog" aria-label="Search"',
    # The script of the theme would ask api.github.com for the stars of the repository.
    ' data-md-component="source"': "",
}

MISSING = """<h1>There is no such page</h1>
<p>It may have moved. Search for it, or begin at <a href="{home}">the first page</a>.</p>"""

# The search shows the pages of this section, and those with results of tests, below the others.
MAINTAINERS = "For maintainers"
TABLES = {"proof.md", "matrix.md"}

LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]+)?\)")


def on_files(files, config):
    for name in ("site.css", "site.js"):
        path = Path(__file__).with_name(name)
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(path)))
    return files


def on_post_template(output, template_name, config):
    if template_name != "404.html":
        return output
    found, title = mend(output, template_name), "<h1>404 - Not found</h1>"
    if title not in found:
        log.warning("%s: the theme does not write %s any more", template_name, title)
    return found.replace(title, MISSING.format(home=config.site_url))


def on_post_page(output, page, config):
    return mend(output, page.file.src_uri)


def mend(output, name):
    for old, new in MENDS.items():
        if old not in output:
            log.warning("%s: the theme does not write %s any more", name, old)
        output = output.replace(old, new)
    return output


def on_page_markdown(markdown, page, config, files):
    maintainers = any(section.title == MAINTAINERS for section in page.ancestors)
    if maintainers or page.file.src_uri in TABLES:
        page.meta.setdefault("search", {"boost": 0.2})
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
