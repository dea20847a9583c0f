"""What was measured, as the tables of the page.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.reads.cold import COLD_ROUNDS, Cold
from benchmarks.reads.compare import Timing
from benchmarks.reads.engines import OURS
from benchmarks.reads.lines import BY_NAME
from benchmarks.reads.warm import Warm
from benchmarks.topic import Table

# Where the time goes of a line that has been short of its aim: from its profile and its code, not from guesses.
_REASONS: Mapping[str, str] = {
    "point": "a fixed cost per query, which hardly grows with the graph; not taken apart further",
    "reach3_count": "marking what is new at each hop, and gathering its neighbours",
    "hop2_all": "weights are gathered along every edge once, on one core",
    "triangle": "neighbours are looked up in marks of cache-sized blocks, on one core",
    "triangle_all": "for every edge the shorter list of neighbours is looked up in the longer one, on one core",
    "group": "the values of every edge are gathered and summed",
    "bm25": "ties at the cut are fetched too, because they are broken by id",
    "vector": "the answer is exact: clusters are passed over only when none of their vectors can be nearer",
    "hybrid": "every match of the text is fetched, so that the places to be fused are exact",
    "open_hops": "marking what is new at each hop, and gathering its neighbours",
    "shortest": "every node nearer than the end is visited twice, for its distance and for the order of ties, from one"
    " end alone and on one core",
    "hop2": "mostly a fixed cost per query: one hop to 20 people takes nine tenths of the time of two to 700; of the"
    " rest, removing duplicates and fetching the keys are the largest parts",
    "two_ends": "a fixed cost per query of a third of a millisecond, in about a thousand small calls of Python: the two"
    " people follow a few dozen others, and hardly any pair has one in common",
    "alternatives": "a fixed cost per query of most of a millisecond; not taken apart further",
    "group_function": "about as fast as the best peer; which of the two is faster changes from run to run",
}

_PICTURE = "![Time of the fastest peer divided by ours, for each line of the table](../pictures/reads.svg)"


def make_tables(names: Sequence[str], small: Warm, large: Warm, cold: Sequence[Cold]) -> tuple[Table, ...]:
    """Return the tables of the section."""
    peers = [name for name in names if name != OURS]
    timings = {timing.line.title: timing for timing in large.timings}
    timings |= {f"{one.line.title} (a tenth of the size)": one for one in small.timings if one.line.is_heavy}
    warm = warm_table(peers, timings)
    return (
        replace(warm, about=f"{_PICTURE}\n\n{warm.about}"),
        short_table(timings),
        _cold_table(peers, cold),
        _growth_table(peers, small, large),
        _cost_table(large, cold),
        _quality_table(names, large),
        _memory_table(names, small, large),
    )


def warm_table(peers: Sequence[str], timings: Mapping[str, Timing]) -> Table:
    """Return every line with all engines, by title."""
    rows = []
    for title, timing in timings.items():
        ratios = timing.ratios()
        best = min(ratios, key=lambda name: ratios[name]) if ratios else ""
        rows.append(
            (
                title,
                render_ms(timing.median(OURS)) if OURS in timing.rounds else "fails",
                f"{render_ratio(ratios[best])} ({best})" if best else "",
                f"{timing.line.aim:g}×",
                *(_peer_cell(timing, name, ratios) for name in peers),
            )
        )
    counts = [len(taken) for timing in timings.values() for taken in timing.rounds.values()]
    about = (
        "Warm: every call was made once before. The best peer is the fastest; the aim is against it."
        f" Rounds per line: {_range(counts)}."
    )
    failures = [
        f"{title}: {name} fails with {why}." for title, one in timings.items() for name, why in one.failures.items()
    ]
    return Table(" ".join([about, *failures]), ("Line", "Ours", "Best peer", "Aim", *peers), tuple(rows))


def short_table(timings: Mapping[str, Timing]) -> Table:
    """Return the lines whose aim is not reached against the best peer, and why."""
    rows = []
    for title, timing in timings.items():
        reached = min(timing.ratios().values(), default=None)
        if reached is not None and reached < timing.line.aim:
            rows.append((title, render_ratio(reached), f"{timing.line.aim:g}×", _REASONS.get(timing.line.name, "")))
    return Table("Short of the aim:", ("Line", "Reached", "Aim", "Why"), tuple(rows))


def _peer_cell(timing: Timing, name: str, ratios: Mapping[str, float]) -> str:
    if name not in timing.rounds:
        return ""
    shown = render_ms(timing.median(name))
    return f"{shown} ({render_ratio(ratios[name])})" if name in ratios else shown


def _cold_table(peers: Sequence[str], cold: Sequence[Cold]) -> Table:
    rows = tuple((one.line.title, *(_cold_cell(one, name) for name in (OURS, *peers))) for one in cold)
    about = (
        "Cold: a fresh process with its files out of the page cache, from its start over import and opening to the"
        f" first answer, and in brackets the first query alone; medians of {COLD_ROUNDS}. Where pandas is"
        " installed, as it is here, Arrow's datasets import it when ours starts: most of a start of two seconds."
    )
    return Table(about, ("Line", "Ours", *peers), rows)


def _cold_cell(one: Cold, name: str) -> str:
    if name not in one.total_ms:
        return ""
    ratio = "" if name == OURS else f", {render_ratio(one.total_ms[name] / one.total_ms[OURS])}"
    return f"{render_ms(one.total_ms[name])} ({render_ms(one.first_ms[name])}){ratio}"


def _growth_table(peers: Sequence[str], small: Warm, large: Warm) -> Table:
    before = {timing.line.name: timing for timing in small.timings}
    rows = tuple(
        (timing.line.title, *(_growth(before[timing.line.name], timing, name) for name in (OURS, *peers)))
        for timing in large.timings
    )
    about = (
        "Growth: the warm time at full size over that at a tenth of it. The parameters differ, so read it as a trend."
    )
    return Table(about, ("Line", "Ours", *peers), rows)


def _growth(before: Timing, after: Timing, name: str) -> str:
    if name not in before.rounds or name not in after.rounds:
        return ""
    return render_ratio(after.median(name) / before.median(name))


def _cost_table(warm: Warm, cold: Sequence[Cold]) -> Table:
    starts = {one.line.name: one for one in cold}
    rows = []
    for timing in warm.timings:
        name = timing.line.name
        if name not in warm.planning:
            continue
        first = starts.get(name)
        rows.append(
            (
                timing.line.title,
                render_ms(warm.planning[name]["first"]),
                render_ms(warm.planning[name]["again"]),
                str(first.requests) if first else "",
                _mb(first.bytes_read[OURS]) if first else "",
                ", ".join(f"{peer} {_mb(read)}" for peer, read in first.bytes_read.items() if peer != OURS)
                if first
                else "",
                str(warm.requests[name]),
            )
        )
    about = (
        "What a query of ours costs besides: explaining a text never seen before (compiled, planned and drawn up) and"
        " again; storage requests and bytes read by the first query of a process, with the peers' bytes; requests warm."
    )
    header = (
        "Line",
        "Plan, first",
        "Plan, again",
        "First requests",
        "First bytes",
        "Peers' first bytes",
        "Warm requests",
    )
    return Table(about, header, tuple(rows))


def _quality_table(names: Sequence[str], warm: Warm) -> Table:
    rows = tuple(
        (BY_NAME[line].title, *(f"{shares[name]:.2f}" if name in shares else "" for name in names))
        for line, shares in warm.shares.items()
    )
    about = (
        "Search quality: the share of the ten results that an exact search would return too, ties counting as equal."
    )
    return Table(about, ("Line", *names), rows)


def _memory_table(names: Sequence[str], small: Warm, large: Warm) -> Table:
    rows = tuple(
        (size, *(_mb(warm.peak_bytes[name]) for name in names)) for size, warm in (("a tenth", small), ("full", large))
    )
    return Table("Peak memory of each process over all warm lines.", ("Size", *names), rows)


def render_ms(value: float) -> str:
    """Render a duration with three digits.

    >>> render_ms(0.12345), render_ms(12345.6)
    ('0.123 ms', '12346 ms')
    """
    return f"{value:.3g} ms" if value < 1_000 else f"{value:.0f} ms"


def render_ratio(value: float) -> str:
    """Render a ratio with two digits.

    >>> render_ratio(0.123), render_ratio(4.56), render_ratio(1234)
    ('0.12×', '4.6×', '1234×')
    """
    return f"{value:.2g}×" if value < 10 else f"{value:.0f}×"


def _range(counts: Sequence[int]) -> str:
    """Render the least and the largest of some counts.

    >>> _range([9, 2, 9]), _range([9, 9])
    ('2 to 9', '9')
    """
    least, largest = min(counts), max(counts)
    return str(least) if least == largest else f"{least} to {largest}"


def _mb(value: float) -> str:
    return f"{value / 1e6:.3g} MB" if value < 1e9 else f"{value / 1e6:.0f} MB"
