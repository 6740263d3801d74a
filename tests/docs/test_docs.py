"""Every Python block of the documentation runs, in order, and prints what the page says."""

import contextlib
import io
import re
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KAFKA = ROOT / "docs" / "kafka.md"  # needs a broker
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NEEDS_SPARK = re.compile(r"^(from|import) (pyspark|nearcast\.spark)", re.M)


def blocks(page):
    """Yield (line, code, expected output or None): a text block right after a Python block is its output."""
    text = page.read_text()
    found = list(BLOCK.finditer(text))
    for block, after in zip(found, [*found[1:], None]):
        if block[1] != "python":
            continue
        adjacent = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        yield text[: block.start()].count("\n") + 2, block[2], after[2] if adjacent else None


def pages():
    for page in PAGES:
        if not list(blocks(page)) or page == KAFKA:
            continue
        needs_spark = any(NEEDS_SPARK.search(code) for _, code, _ in blocks(page))
        marks = [pytest.mark.spark] if needs_spark else []
        yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", list(pages()))
def test_page(page, tmp_path, monkeypatch, request):
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")  # the one that all tests share; the page's session() returns it
    bucket = "s3://my-bucket"
    instead = {bucket: request.getfixturevalue("s3")} if bucket in page.read_text() else {}
    run(page, tmp_path, monkeypatch, instead)


@pytest.mark.spark
def test_kafka_page(spark, broker, tmp_path, monkeypatch):
    from spark.broker import create_topics

    create_topics(spark, broker, "messages", "deliveries")
    run(KAFKA, tmp_path, monkeypatch, {"localhost:9092": broker})


def run(page, tmp_path, monkeypatch, instead=None):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # nothing from earlier runs, nothing left behind
    namespace = {"__name__": "__main__"}
    for line, code, expected in blocks(page):
        for word, other in (instead or {}).items():
            code = code.replace(word, other)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            # Line numbers in a traceback are those of the page.
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
        if expected is not None:
            assert out.getvalue() == expected, f"{page.name}, line {line}"


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
