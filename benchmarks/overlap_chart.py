"""Draws a chart of step time against bucket size for `overlap.py`: one panel per rate, as SVG."""
import math
from html import escape

from comm_chart import style

PANEL, GAP, LEFT, TOP, BOTTOM = (300, 230), 70, 62, 66, 52
# Okabe and Ito's colours, which colour-blind readers can distinguish, for light and dark backgrounds.
SERIES = {"without overlap": ("#b35900", "#e69f00", "6 3"), "with overlap": ("#0072b2", "#56b4e9", ""),
          "without communication": ("#6e7781", "#8b949e", "2 3")}


def nice_top(value):
    """Returns (the end of an axis that starts at 0 and contains `value`, the distance between its lines)."""
    unit = 10 ** math.floor(math.log10(value))
    step = next(step for step in (0.2 * unit, 0.5 * unit, unit, 2 * unit) if value / step <= 6)
    return math.ceil(value / step) * step, step


def panel(found, heading, left):
    caps = sorted(found.rows)
    low, high = math.log2(caps[0]) - 0.5, math.log2(caps[-1]) + 0.5
    top, step = nice_top(max(found.whole["step_ms"], *(row["step_ms"] for row in found.rows.values())))
    width, height = PANEL

    def x(cap):
        return left + width * (math.log2(cap) - low) / (high - low)

    def y(ms):
        return TOP + height * (1 - ms / top)

    out = [f'<text x="{left}" y="{TOP - 8}">{escape(heading)}</text>']
    for line in range(round(top / step) + 1):
        out.append(f'<path class="grid" d="M{left} {y(line * step):.1f}h{width}"/>')
        out.append(f'<text x="{left - 7}" y="{y(line * step) + 4:.1f}" text-anchor="end">{line * step / 1000:.4g} s</text>')
    for cap in caps:
        out.append(f'<path class="grid" d="M{x(cap):.1f} {TOP + height}v4"/>')
        out.append(f'<text x="{x(cap):.1f}" y="{TOP + height + 18}" text-anchor="middle">{cap:g}</text>')
    for number, ms in ((0, found.whole["step_ms"]), (2, found.in_step_ms)):
        dashes = list(SERIES.values())[number][2]
        out.append(f'<path class="line s{number}" stroke-dasharray="{dashes}" d="M{left} {y(ms):.1f}h{width}"/>')
    points = [(x(cap), y(found.rows[cap]["step_ms"])) for cap in caps]
    out.append('<path class="line s1" d="M' + "L".join(f"{px:.1f} {py:.1f}" for px, py in points) + '"/>')
    out += [f'<circle class="m1" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in points]
    return out


def chart(title, panels):
    """Returns SVG text. `panels` is {heading: overlap.Rate}."""
    width = LEFT + len(panels) * (PANEL[0] + GAP)
    height = TOP + PANEL[1] + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           f'role="img" aria-label="{escape(title, quote=True)}">', style(SERIES),
           f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>']
    at = LEFT
    for number, (name, (_, _, dashes)) in enumerate(SERIES.items()):
        out.append(f'<path class="line s{number}" stroke-dasharray="{dashes or "none"}" d="M{at} 34h26"/>')
        out.append(f'<text x="{at + 32}" y="38">{escape(name)}</text>')
        at += 56 + int(6.3 * len(name))
    for place, (heading, found) in enumerate(panels.items()):
        out += panel(found, heading, LEFT + place * (PANEL[0] + GAP))
    out.append(f'<text x="{LEFT}" y="{height - 8}">size of a bucket, MiB</text></svg>')
    return "\n".join(out) + "\n"
