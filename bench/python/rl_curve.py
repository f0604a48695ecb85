"""docs/rl_scaling.svg: env steps a second over the number of collectors."""
import math

WIDTH, HEIGHT = 880, 340
PANEL, GAP, LEFT, TOP, BASE = 350, 90, 70, 60, 280
COLOURS = ("#2563eb", "#c2410c")


def short(value):
    return f"{value / 1000:,.0f} k" if value >= 10_000 else f"{value:,.0f}"


def nice_top(value):
    """The next round number."""
    unit = 10 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if unit * step >= value)


def panel(left, title, points, colour):
    top = nice_top(max(rate for _, rate in points))
    steps = max(1.0, math.log2(points[-1][0]))

    def x(collectors):
        return left + PANEL * math.log2(collectors) / steps

    def y(rate):
        return BASE - (BASE - TOP) * rate / top

    parts = [f'<text x="{left}" y="{TOP - 20}" class="title">{title}</text>']
    for i in range(5):
        rate = top * i / 4
        parts.append(f'<line x1="{left}" y1="{y(rate):.1f}" x2="{left + PANEL}" y2="{y(rate):.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{short(rate)}</text>')
    for collectors, rate in points:
        parts.append(f'<text x="{x(collectors):.1f}" y="{BASE + 20}" text-anchor="middle">{collectors}</text>')
        parts.append(f'<circle cx="{x(collectors):.1f}" cy="{y(rate):.1f}" r="4" fill="{colour}"/>')
    line = " ".join(f"{x(collectors):.1f},{y(rate):.1f}" for collectors, rate in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts.append(f'<text x="{left + PANEL / 2}" y="{BASE + 42}" text-anchor="middle">collectors</text>')
    return parts


def svg(curves, where):
    """The document; `curves` is {title: [(collectors, env steps a second)]}."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="12" fill="#374151">',
             '<style>.grid{stroke:#e5e7eb}.title{font-size:14px;font-weight:bold}</style>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="18">CartPole DQN, env steps a second of the whole job ({where})</text>']
    for i, (title, points) in enumerate(curves.items()):
        if points:
            parts += panel(LEFT + i * (PANEL + GAP), title, points, COLOURS[i % len(COLOURS)])
    return "\n".join([*parts, "</svg>", ""])
