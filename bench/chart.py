"""Horizontal bars on a logarithmic scale as an SVG file, for the report. Nothing to install."""

import math
from html import escape

WIDTH, LABELS, FIGURES = 860, 170, 90
BAR, GAP, GROUP_GAP = 16, 3, 16
TOP, BOTTOM = 62, 34
COLOURS = ["#8a94a6", "#0b7a75", "#d98032", "#a63446", "#5b4b8a"]
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def decades(values):
    """The powers of ten around the values, as exponents (first, last)."""
    first = math.floor(math.log10(min(values)))
    return first, max(first + 1, math.ceil(math.log10(max(values))))


def in_words(ms):
    """A time as people write it."""
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.3g} ms"


def bars(title, groups):
    """SVG of {group: {series: milliseconds or None}}; the series have the same order everywhere."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    known = [ms for values in groups.values() for ms in values.values() if ms]
    first, last = decades(known)
    left, right = LABELS, WIDTH - FIGURES

    def place(ms):
        return left + (right - left) * (math.log10(ms) - first) / (last - first)

    body, y = [], TOP
    for group, values in groups.items():
        start = y
        for name, ms in values.items():
            if ms:
                colour = COLOURS[series.index(name) % len(COLOURS)]
                body.append(
                    f'<rect x="{left}" y="{y}" width="{place(ms) - left:.1f}" height="{BAR}" '
                    f'fill="{colour}"><title>{escape(f"{group}, {name}")}</title></rect>'
                )
                body.append(text(place(ms) + 5, y + BAR - 4, in_words(ms)))
                y += BAR + GAP
        middle = (start + y - GAP) / 2 + 4
        body.append(text(left - 10, middle, group, 'text-anchor="end" font-weight="600"'))
        y += GROUP_GAP
    grid = [
        f'<line x1="{place(10**power):.1f}" x2="{place(10**power):.1f}" y1="{TOP - 6}" '
        f'y2="{y - GROUP_GAP + 4}" stroke="#e3e6eb"/>'
        + text(place(10**power), y + 4, in_words(10**power), 'text-anchor="middle" fill="#667"')
        for power in range(first, last + 1)
    ]
    legend, x = [], left
    for i, name in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        legend.append(f'<rect x="{x}" y="34" width="11" height="11" fill="{colour}"/>')
        legend.append(text(x + 16, 44, name))
        x += 34 + 7 * len(name)
    height = y + BOTTOM - GROUP_GAP
    head = text(10, 20, title, 'font-weight="600"')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" {FONT}>',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *[head, *legend, *grid, *body],
            "</svg>\n",
        ]
    )


def text(x, y, said, more=""):
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(str(said))}</text>'
