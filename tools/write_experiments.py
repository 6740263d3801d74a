"""Put the results of the papers' experiments into docs/experiments.md.

    nearcast bench ap-tree --out figures && nearcast bench lfilter --out figures
    nearcast bench attributes --out figures && nearcast bench attributes --figure all --out figures
    nearcast bench topk --out figures && nearcast bench topk --figure all --out figures
    nearcast bench covering --out figures && nearcast bench covering --figure all --out figures
    python tools/write_experiments.py figures

A table stands between two comments that name its figure; what is written around them stays.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from nearcast.bench.report import experiment_markdown, markdown

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"


def main(directory: Path) -> None:
    """Replace every table whose figure is in *directory*."""
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"<!-- ((?:ap-tree|lfilter|attributes|topk|covering)[\w-]*) -->", text):
        file = directory / f"{name}.json"
        if not file.is_file():
            print(f"{name}: no {file.name}, kept as it is")
            continue
        written = markdown if name in ("attributes", "topk", "covering") else experiment_markdown
        table = written(json.loads(file.read_text(encoding="utf-8")))
        before, _, rest = text.partition(f"<!-- {name} -->")
        after = rest.partition("<!-- end -->")[2]
        text = f"{before}<!-- {name} -->\n\n{table}\n<!-- end -->{after}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
