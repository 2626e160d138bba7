"""Charts as SVG files, for the report: bars and lines. Nothing to install."""

import dataclasses
import math
from html import escape

WIDTH, LABELS, FIGURES = 860, 170, 90
BAR, GAP, GROUP_GAP = 16, 3, 16
TOP, BOTTOM = 62, 34
COLOURS = ["#8a94a6", "#0b7a75", "#d98032", "#a63446", "#5b4b8a", "#3b7dc4", "#b8a12c"]
SHADES = ["#bfe0dd", "#f3d5b5", "#cfd4dd", "#d9cfe8", "#c9ddf2"]
GRID, PALE = "#e3e6eb", "#f3f4f6"
FONT = 'font-family="system-ui, sans-serif" font-size="12"'
BOLD, RIGHT, MIDDLE = 'font-weight="600"', 'text-anchor="end"', 'text-anchor="middle"'

# Lines: where a plot begins, its height, and the room around it.
UPPER, HEIGHT, LEFT, BELOW, BETWEEN = 78, 250, 52, 42, 30


def decades(values):
    """The powers of ten around the values, as exponents (first, last)."""
    first = math.floor(math.log10(min(values)))
    return first, max(first + 1, math.ceil(math.log10(max(values))))


def in_words(ms):
    """A time as people write it."""
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.3g} ms"


def text(x, y, said, more=""):
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(str(said))}</text>'


def line(x1, y1, x2, y2):
    """A line of a grid."""
    ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{GRID}"/>'


def rectangle(x, y, width, height, colour, said=""):
    """A filled rectangle; `said` shows when the pointer rests on it."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"'
    return f"<rect {place}><title>{escape(said)}</title></rect>" if said else f"<rect {place}/>"


def legend(names, x, y=34):
    """The names of series beside their colours, in a line."""
    body = []
    for i, name in enumerate(names):
        body.append(rectangle(x, y, 11, 11, COLOURS[i % len(COLOURS)]))
        body.append(text(x + 16, y + 10, name))
        x += 34 + 7 * len(name)
    return body


def picture(title, height, body):
    """The whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" height="{height:.0f}" role="img" {FONT}>',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            text(10, 20, title, BOLD),
            *body,
            "</svg>\n",
        ]
    )


def bars(title, groups):
    """Horizontal bars on a logarithmic scale, of {group: {series: milliseconds or None}}.

    The series have the same order everywhere.
    """
    body, bottom = bars_from(TOP, groups)
    return picture(title, bottom, body)


def bars_from(top, groups):
    """The body of such bars from a height on, and where it ends."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    known = [ms for values in groups.values() for ms in values.values() if ms]
    first, last = decades(known)
    left, right = LABELS, WIDTH - FIGURES

    def place(ms):
        return left + (right - left) * (math.log10(ms) - first) / (last - first)

    body, y = [], top
    for group, values in groups.items():
        start = y
        for name, ms in values.items():
            if ms:
                colour = COLOURS[series.index(name) % len(COLOURS)]
                long = place(ms) - left
                body.append(rectangle(left, y, long, BAR, colour, f"{group}, {name}"))
                body.append(text(place(ms) + 5, y + BAR - 4, in_words(ms)))
                y += BAR + GAP
        body.append(text(left - 10, (start + y - GAP) / 2 + 4, group, f"{RIGHT} {BOLD}"))
        y += GROUP_GAP
    grid = []
    for power in range(first, last + 1):
        x = place(10**power)
        grid.append(line(x, top - 6, x, y - GROUP_GAP + 4))
        grid.append(text(x, y + 4, in_words(10**power), f'{MIDDLE} fill="#667"'))
    return [*legend(series, left, top - 28), *grid, *body], y + BOTTOM - GROUP_GAP


def stacked(title, parts, mark, name):
    """One bar at TOP of {part: (size, what is written in it)}, and a mark with a name at a size."""
    left, right = LABELS, WIDTH - FIGURES
    scale = (right - left) / sum(size for size, _ in parts.values())
    body, x = [text(left - 10, TOP + 6, title, f"{RIGHT} {BOLD}")], left
    for shade, (size, said) in zip(SHADES, parts.values(), strict=False):
        body.append(rectangle(x, TOP - 10, size * scale - 2, 24, shade))
        body.append(text(x + size * scale / 2, TOP + 6, said, MIDDLE))
        x += size * scale
    at = left + mark * scale
    place = f'x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 20}" y2="{TOP + 20}"'
    body.append(f'<line {place} stroke="#a63446" stroke-width="2" stroke-dasharray="4 3"/>')
    return [*body, text(at, TOP - 25, name, f'{MIDDLE} fill="#a63446" {BOLD}')]


@dataclasses.dataclass(frozen=True)
class Plot:
    """One plot of several lines: what the axes are, and {series: [(x, y)]}; y begins at zero.

    `form` is how values of y are written.
    """

    x: str
    y: str
    series: dict
    logarithmic: bool = False
    form: str = "{:g}"


def steps(low, high, most=6):
    """Round numbers from `low` to `high`, a few."""
    raw = (high - low) / most or 1.0
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * by for by in (1, 2, 2.5, 5, 10) if power * by >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def decimal_steps(low, high, most=12):
    """1, 2, 5, 10 ... from `low` to `high`; powers of ten only, where those would be too many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [by * 10.0**power for power in range(first, last + 1) for by in (1, 2, 5)]
    found = [value for value in found if low <= value <= high]
    return found if len(found) <= most else [v for v in found if math.log10(v) % 1 < 1e-9]


def plotted(plot, names, left, width):
    """The body of one plot, between `left` and `left + width`."""
    points = [point for line in plot.series.values() for point in line]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    scale = math.log10 if plot.logarithmic else float
    top = max(y for _, y in points) or 1.0
    marks = steps(0, top)
    if marks[-1] < top:
        marks.append(round(2 * marks[-1] - marks[-2], 10))

    def across(x):
        span = scale(high) - scale(low)
        return left + width * ((scale(x) - scale(low)) / span if span else 0.5)

    def up(y):
        return UPPER + HEIGHT * (1 - y / marks[-1])

    body = []
    for mark in marks:
        body.append(line(left, up(mark), left + width, up(mark)))
        body.append(text(left - 6, up(mark) + 4, plot.form.format(mark), f'{RIGHT} fill="#667"'))
    for mark in (decimal_steps if plot.logarithmic else steps)(low, high):
        body.append(line(across(mark), UPPER, across(mark), UPPER + HEIGHT))
        body.append(text(across(mark), UPPER + HEIGHT + 16, f"{mark:g}", f'{MIDDLE} fill="#667"'))
    body.append(text(left + width / 2, UPPER + HEIGHT + 34, plot.x, MIDDLE))
    body.append(text(left - LEFT + 10, UPPER - 8, plot.y, 'fill="#667"'))
    for name, found in plot.series.items():
        colour = COLOURS[names.index(name) % len(COLOURS)]
        places = [(across(x), up(y)) for x, y in found]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return body


def lines(title, plots):
    """Plots of lines side by side; a series has the same colour in all."""
    names = list(dict.fromkeys(name for plot in plots for name in plot.series))
    width = (WIDTH - BETWEEN) / len(plots)
    body = legend(names, LEFT)
    for number, plot in enumerate(plots):
        body += plotted(plot, names, LEFT + width * number, width - LEFT - BETWEEN / 2)
    return picture(title, UPPER + HEIGHT + BELOW, body)
