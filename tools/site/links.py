"""Sends a link of a page to a file that is no page, such as a program, to the repository."""

import os
import posixpath
import re

LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?\)")
# Python-Markdown wants an empty line before a list; GitHub does not.
ITEM = re.compile(r"^(?:[-*]|\d+\.) ")


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(page.file.src_uri)

    def sent(match):
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if files.get_file_from_path(path):
            return match.group(0)
        if files.get_file_from_path(path + "/README.md"):
            return f"{text}{target.rstrip('/')}/README.md{anchor})"
        if not os.path.exists(os.path.join(os.environ["SITE_ROOT"], path)):
            return match.group(0)  # mkdocs says that it reaches nothing
        return f"{text}{config['repo_url']}/tree/main/{path}{anchor})"

    lines, fenced = [], False
    for line in LINK.sub(sent, markdown).split("\n"):
        fenced ^= line.startswith("```")
        if not fenced and ITEM.match(line) and lines and lines[-1] and not lines[-1].startswith((" ", "-", "*")) and not ITEM.match(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
