"""Draws a chart of time against size for `comm_table.py`: log-log, one panel per number of ranks, as SVG."""
import math
from html import escape

PANEL, GAP, LEFT, TOP, BOTTOM = (270, 250), 26, 62, 66, 52
# Okabe and Ito's colours, which colour-blind readers can distinguish, for light and dark backgrounds.
SERIES = {"Lockstep, symmetric": ("#0072b2", "#56b4e9", "", "circle"),
          "Lockstep, private": ("#009e73", "#4fd0a5", "6 3", "square"),
          "Open MPI": ("#b35900", "#e69f00", "", "diamond"),
          "Intel MPI": ("#8250df", "#b392f0", "4 2", "cross"),
          "oneCCL": ("#9a6700", "#e3d36b", "1 2", "square"),
          "Gloo": ("#b0306a", "#e58ab6", "", "triangle"),
          "copy floor": ("#6e7781", "#8b949e", "2 3", None)}
MARKS = {"circle": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0", "square": "M-3 -3h6v6h-6z",
         "diamond": "M0 -4L4 0L0 4L-4 0z", "triangle": "M0 -4L4 3H-4z",
         "cross": "M-4 -1h3v-3h2v3h3v2h-3v3h-2v-3h-3z"}


def bytes_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def time_text(us):
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= unit:
            return f"{us / unit:g} {name}"
    return f"{us:g} µs"


def style(all_series):
    def rules(shade):
        ink, grid = (("#1f2328", "#d0d7de"), ("#e6edf3", "#3d444d"))[shade]
        lines = [f"text{{fill:{ink}}}.grid{{stroke:{grid}}}"]
        for number, series in enumerate(all_series.values()):
            lines.append(f".s{number}{{stroke:{series[shade]}}}.m{number}{{fill:{series[shade]}}}")
        return "".join(lines)
    return ("<style>text{font:12px system-ui,sans-serif}.title{font-weight:600}path{fill:none}"
            f".line{{stroke-width:1.8}}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}</style>")


class Axes:
    """Maps a size and a time to a position in a panel whose upper left corner is at (left, top)."""

    def __init__(self, sizes, times, left, top):
        self.sizes = (math.log2(min(sizes)) - 1, math.log2(max(sizes)) + 1)
        self.times = (math.floor(math.log10(min(times))), math.ceil(math.log10(max(times))))
        self.left, self.top = left, top

    def x(self, size):
        low, high = self.sizes
        return self.left + PANEL[0] * (math.log2(size) - low) / (high - low)

    def y(self, us):
        low, high = self.times
        return self.top + PANEL[1] * (1 - (math.log10(us) - low) / (high - low))


def axis_lines(axes, sizes, first):
    left, top, (width, height) = axes.left, axes.top, PANEL
    out = []
    for power in range(axes.times[0], axes.times[1] + 1):
        y = axes.y(10.0 ** power)
        out.append(f'<path class="grid" d="M{left} {y:.1f}h{width}"/>')
        if first:
            out.append(f'<text x="{left - 7}" y="{y + 4:.1f}" text-anchor="end">{time_text(10.0 ** power)}'
                       "</text>")
    last_label = -math.inf
    for size in sizes:
        x = axes.x(size)
        out.append(f'<path class="grid" d="M{x:.1f} {top + height}v4"/>')
        if x - last_label > 54:  # room for "256 MiB"
            out.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle">'
                       f"{bytes_text(size)}</text>")
            last_label = x
    return out


def series_lines(axes, number, name, points):
    _, _, dashes, mark = SERIES[name]
    lowest = 10.0 ** axes.times[0]
    places = [(axes.x(size), axes.y(us)) for size, us in sorted(points.items()) if us >= lowest]
    if not places:
        return []
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    out = [f'<path class="line s{number}" stroke-dasharray="{dashes or "none"}" d="{path}"/>']
    if mark:
        out += [f'<path class="m{number}" transform="translate({x:.1f} {y:.1f})" '
                f'd="{MARKS[mark]}"/>' for x, y in places]
    return out


def legend(names):
    out, x = [], LEFT
    for number, name in enumerate(SERIES):
        if name not in names:
            continue
        _, _, dashes, mark = SERIES[name]
        out.append(f'<path class="line s{number}" stroke-dasharray="{dashes or "none"}" d="M{x} 38h26"/>')
        if mark:
            out.append(f'<path class="m{number}" transform="translate({x + 13} 38)" d="{MARKS[mark]}"/>')
        out.append(f'<text x="{x + 32}" y="42">{escape(name)}</text>')
        x += 56 + int(6.3 * len(name))
    return out


def chart(title, panels):
    """Returns SVG text. `panels` is {heading: {series: {bytes: microseconds}}} with the series of SERIES."""
    measured = [(size, us) for lines in panels.values() for name, points in lines.items()
                if name != "copy floor" for size, us in points.items()]
    sizes, times = sorted({size for size, _ in measured}), [us for _, us in measured]
    width = LEFT + len(panels) * (PANEL[0] + GAP)
    height = TOP + PANEL[1] + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'height="{height}" role="img" aria-label="{escape(title, quote=True)}">', style(SERIES),
           f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>']
    out += legend({name for lines in panels.values() for name in lines})
    for place, (heading, lines) in enumerate(panels.items()):
        axes = Axes(sizes, times, LEFT + place * (PANEL[0] + GAP), TOP)
        out.append(f'<text x="{axes.left + 6}" y="{TOP + 16}">{escape(heading)}</text>')
        out += axis_lines(axes, sizes, first=place == 0)
        for number, name in enumerate(SERIES):
            out += series_lines(axes, number, name, lines.get(name, {}))
    out.append(f'<text x="{LEFT}" y="{height - 8}">bytes of the larger buffer</text></svg>')
    return "\n".join(out) + "\n"
