"""Put the results of the papers' experiments into docs/experiments.md.

    for paper in ap-tree lfilter attributes topk covering moving; do python -m benchmarks $paper --out figures; done
    for table in attributes topk covering moving; do nearcast bench $table --json figures/$table.json; done
    python -m benchmarks page figures

Each table is between two comments, the first of which names its figure; the text around them is kept.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.papers.tables import figure_markdown
from nearcast.bench.report import markdown

__all__ = ["write_page"]

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"


def write_page(directory: Path) -> list[str]:
    """Replace every table whose figure is in *directory*; return the names of the figures that are not."""
    missing = []
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"<!-- ((?:ap-tree|lfilter|attributes|topk|covering|moving)[\w-]*) -->", text):
        file = directory / f"{name}.json"
        if not file.is_file():
            missing.append(name)
            continue
        written = markdown if name in ("attributes", "topk", "covering", "moving") else figure_markdown
        table = written(json.loads(file.read_text(encoding="utf-8")))
        before, _, rest = text.partition(f"<!-- {name} -->")
        after = rest.partition("<!-- end -->")[2]
        text = f"{before}<!-- {name} -->\n\n{table}\n<!-- end -->{after}"
    PAGE.write_text(text, encoding="utf-8")
    return missing
