# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Makes pages that are written for GitHub's Markdown pages of MkDocs: lists begin after an empty line, and links to files outside of docs/
become the files' names."""
import posixpath
import re

ITEM = re.compile(r" {0,3}(?:[-*]|\d+\.) ")


def on_page_markdown(markdown, page, config, files):
    lines, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        before = lines[-1] if lines else ""
        if ITEM.match(line) and not fenced and before.strip() and not ITEM.match(before) and not before.startswith(" "):
            lines.append("")
        lines.append(line)

    def inside(match):
        text, target = match[1], match[2]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), target))
        return match[0] if path.startswith("docs/") or path == "docs" else f"{text} (`{path}` of the sources)"

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)\s#]*)\)", inside, "\n".join(lines))
