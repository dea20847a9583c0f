"""Draws the pictures of the documents as SVG: the layers, the life of a commit, and bars for the measurements.

`python tools/draw.py` rewrites docs/pictures/; it needs nothing but the standard library. The bars come from the table
of warm reads and of loads in docs/appendix/benchmarks.md.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
BENCHMARKS = ROOT / "docs" / "appendix" / "benchmarks.md"
FONT = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"'
# Readable on white and on dark pages: every picture brings its own background.
PAPER, INK, SOFT, LINE = "#ffffff", "#1f2937", "#4b5563", "#9ca3af"
BLUE, GREEN, AMBER, VIOLET, GREY = "#dbeafe", "#dcfce7", "#fef3c7", "#ede9fe", "#f3f4f6"


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of boxes: a title for the row, and a name and a note for each box."""

    title: str
    colour: str
    boxes: tuple[tuple[str, str], ...]


LAYERS = (
    Layer("Surfaces", BLUE, (("cli", "the command line"), ("client", "og.connect"))),
    Layer("Clusters", BLUE, (("cluster", "graphs, schemas, queries, policies and pipelines declared in a folder"),)),
    Layer("Around it", BLUE, (("server", "HTTP, tokens"), ("pipelines", "declared and scheduled"))),
    Layer("Library", GREEN, (("graph", "og.open: the API that every surface calls"), ("policy", "who may do what"))),
    Layer("Executors", GREEN, (("spark", "executors, the data source, queries on Spark"),)),
    Layer("Engine", GREEN, (("engine", "reads, writes, loads, branches, merge, changes, maintenance"),)),
    Layer("Core", AMBER, (("rules", "what makes data valid"), ("manifest", "commits, branches, publish"))),
    Layer("Storage", GREY, (("store", "Lance datasets, on disk or S3"),)),
    Layer("Languages", GREY, (("lang", ".pg schemas and .gq queries"),)),
)
COMMIT_STEPS = (
    ("1  Prepare", "take a snapshot, compute the change, check every rule", BLUE),
    ("2  Stage", "write data files that nothing refers to yet", BLUE),
    ("3  Prove and sync", "every file is whole, has a checksum, is on disk", BLUE),
    ("4  Publish", "write the next version of __manifest: one compare-and-swap", GREEN),
    ("5  Link", "put dataset versions where other Lance tools look for them", GREY),
    ("6  Age", "commits move to the log; cleanup removes what nothing keeps", GREY),
)


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {FONT}>'
    paper = f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", paper, *parts, "</svg>", ""])


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} rx="7" fill="{colour}" stroke="{LINE}"/>'


def label(x: float, y: float, text: str, size: int = 14, colour: str = INK, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" {more}>{escape(text)}</text>'


def draw_layers() -> str:
    """Return the layers as rows of boxes, each of which uses only what is below it."""
    left, width, row, gap = 110, 620, 50, 16
    parts = []
    for number, layer in enumerate(LAYERS):
        y = 16 + number * (row + gap)
        parts.append(label(left - 14, y + 30, layer.title, 13, SOFT, 'text-anchor="end"'))
        each = (width - gap * (len(layer.boxes) - 1)) / len(layer.boxes)
        for place, (name, note) in enumerate(layer.boxes):
            x = left + place * (each + gap)
            parts += [box(x, y, each, row, layer.colour), label(x + 12, y + 21, name, 15, INK, 'font-weight="600"')]
            parts.append(label(x + 12, y + 39, note, 12, SOFT))
        if number:
            parts.append(_arrow_down(left + width / 2, y - gap + 2, y - 2))
    height = 16 + len(LAYERS) * (row + gap)
    return svg(left + width + 16, height, "The layers of OmniGraph", parts)


def _arrow_down(x: float, start: float, end: float) -> str:
    return f'<path d="M{x:g} {start:g}V{end:g}m-4 -5l4 5l4 -5" fill="none" stroke="{SOFT}" stroke-width="1.5"/>'


def draw_commit() -> str:
    """Return the six steps from a change to a commit, with what a crash leaves at each of them."""
    width, row, gap = 610, 44, 14
    parts = []
    for number, (name, note, colour) in enumerate(COMMIT_STEPS):
        y = 16 + number * (row + gap)
        parts += [box(16, y, width, row, colour), label(28, y + 27, name, 15, INK, 'font-weight="600"')]
        parts.append(label(190, y + 27, note, 13, SOFT))
        if number:
            parts.append(_arrow_down(80, y - gap + 1, y - 1))
    step = row + gap
    for first, last, lines in (
        (0, 2, ("A crash here leaves", "orphan files. The", "graph is as before.")),
        (3, 3, ("All or nothing",)),
        (4, 5, ("A crash here loses", "nothing: others", "finish the work.")),
    ):
        top, bottom = 16 + first * step, 16 + last * step + row
        parts.append(f'<path d="M{width + 24} {top + 2}h8V{bottom - 2}h-8" fill="none" stroke="{LINE}"/>')
        middle = (top + bottom) / 2 - (len(lines) - 1) * 9 + 5
        parts += [label(width + 42, middle + 18 * place, text, 13) for place, text in enumerate(lines)]
    return svg(width + 190, 16 + len(COMMIT_STEPS) * step, "The life of a commit", parts)


def read_ratios(page: str) -> list[tuple[str, str, float]]:
    """Return each line of the warm reads with its best peer and how many times longer that takes than ours."""
    table = page.partition("| Line | Ours | Best peer |")[2].partition("\n\n")[0]
    found = re.findall(r"^\| ([^|]+) \| [\d.]+ ms \| ([\d.]+)× \((\w+)\) \|", table, re.MULTILINE)
    return [(line, peer, float(ratio)) for line, ratio, peer in found]


def draw_reads(page: str) -> str:
    """Return bars on a logarithmic scale: to the right of 1 we are faster than the best peer, to the left slower."""
    ratios = read_ratios(page)
    left, span, row = 380, 330, 24
    low, high = 0.25, 16.0

    def place(ratio: float) -> float:
        share = math.log(min(max(ratio, low), high) / low) / math.log(high / low)
        return left + span * share

    height = 62 + row * len(ratios)
    parts = [label(16, 26, "Warm reads: time of the fastest peer divided by ours", 15, INK, 'font-weight="600"')]
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16):
        x = place(tick)
        stroke = SOFT if tick == 1 else "#e5e7eb"
        parts.append(f'<path d="M{x:g} 50V{height - 10}" stroke="{stroke}"/>')
        parts.append(label(x, 46, f"{tick:g}×", 11, SOFT, 'text-anchor="middle"'))
    for number, (line, peer, ratio) in enumerate(ratios):
        y = 56 + number * row
        start, end = sorted((place(1), place(ratio)))
        colour = "#60a5fa" if ratio >= 1 else "#f59e0b"
        parts.append(label(left - 12, y + 13, line, 12, INK, 'text-anchor="end"'))
        parts.append(f'<rect x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="16" rx="3" fill="{colour}"/>')
        parts.append(label(place(max(ratio, 1)) + 6, y + 13, f"{ratio:g}× {peer}", 11, SOFT))
    return svg(left + span + 100, height, "Warm reads against the fastest peer", parts)


def load_rates(page: str) -> list[tuple[str, int, bool]]:
    """Return the lines of the loads with two cores: what, from which format, rows a second, and whether it is ours."""
    table = page.partition("| What | From | Cores | Time | Rows / s |")[2].partition("\n\n")[0]
    lines = re.findall(r"^\| ([^|]+) \| (\w+) \| 2 \| [\d.]+ s \| ([\d,]+) \|", table, re.MULTILINE)
    return [
        (f"{what.replace('`', '')}, {source}", int(rate.replace(",", "")), "load" in what)
        for what, source, rate in lines
    ]


def draw_loads(page: str) -> str:
    """Return bars of rows per second, longest first."""
    rates = sorted(load_rates(page), key=lambda line: -line[1])
    left, span, row = 300, 380, 26
    most = max((rate for _, rate, _ in rates), default=1)
    parts = [label(16, 26, "Loads on two cores: rows per second", 15, INK, 'font-weight="600"')]
    for number, (line, rate, is_ours) in enumerate(rates):
        y, width = 44 + number * row, span * rate / most
        colour = "#60a5fa" if is_ours else "#d1d5db"
        parts.append(label(left - 12, y + 13, line, 12, INK, 'text-anchor="end"'))
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="16" rx="3" fill="{colour}"/>')
        parts.append(label(left + width + 6, y + 13, f"{rate:,}", 11, SOFT))
    return svg(left + span + 90, 56 + row * len(rates), "Loads on two cores", parts)


def draw_all() -> dict[str, str]:
    """Return every picture by its file name."""
    page = BENCHMARKS.read_text(encoding="utf-8")
    return {
        "layers.svg": draw_layers(),
        "commit.svg": draw_commit(),
        "reads.svg": draw_reads(page),
        "loads.svg": draw_loads(page),
    }


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, text in draw_all().items():
        (PICTURES / name).write_text(text, encoding="utf-8")
