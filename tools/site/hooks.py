"""Hooks of MkDocs: pages that read well in the repository, as pages of the site."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
FENCE = re.compile(r"^(\s*```)(\w+)(?:,\w+| (\S+))$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Name the file of a code block in a title, and leave links to sources out."""

    def shown(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        place = PurePosixPath(page.file.src_uri).parent / target
        inner = Path(ROOT, place).resolve()
        is_page = files.get_file_from_path(inner.relative_to(ROOT).as_posix()) if inner.is_relative_to(ROOT) else None
        return text if inner.exists() and not is_page else f"[{text}]({target}{anchor or ''})"

    parts = re.split(r"(^\s*```.*?^\s*```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    # Python-Markdown continues a numbered item at four columns, the pages do at three.
    parts[::2] = [re.sub(r"^   (?=\S)", "    ", LINK.sub(shown, part), flags=re.MULTILINE) for part in parts[::2]]
    return FENCE.sub(lambda found: found[1] + found[2] + (f' title="{found[3]}"' if found[3] else ""), "".join(parts))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the script of diagrams on the pages that have one."""
    if 'class="mermaid"' not in output:
        return output
    depth = "../" * (len(PurePosixPath(page.file.dest_uri).parts) - 1)
    return output.replace("</head>", f'<script src="{depth}assets/mermaid.js"></script></head>')
