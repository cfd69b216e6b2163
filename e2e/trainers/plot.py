"""The picture of the demonstration, as SVG."""

from __future__ import annotations

from typing import Any

WIDTH, HEIGHT, TOP, LEFT = 370, 250, 40, 45
REWARD, ANCHOR, TRUTH, HELD = "#9a6700", "#0969da", "#1a7f37", "#cf222e"


def picture(weak: Any, sound: Any) -> str:
    """Both runs, side by side."""
    last = max(step.number for run in (weak, sound) for step in run.steps)
    panels = [
        panel(weak, "The judge has a loophole", LEFT, last),
        panel(sound, "The same run without the loophole", LEFT + WIDTH + 60, last),
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH + 130} {HEIGHT + TOP + 70}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *panels,
        legend(),
        "</svg>",
        "",
    ])  # fmt: skip


def panel(run: Any, title: str, left: float, last: int) -> str:
    """One run: rates over steps."""

    def x(step: float) -> float:
        return left + WIDTH * step / max(1, last)

    def y(rate: float) -> float:
        return TOP + HEIGHT * (1 - rate)

    def line(points: list[tuple[float, float]], colour: str, more: str = "") -> str:
        path = "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
        return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" {more}/>'

    parts = [f'<text x="{left}" y="22" font-weight="bold">{title}</text>']
    for tenth in range(0, 11, 2):
        height = y(tenth / 10)
        parts.append(f'<path d="M{left} {height:.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 5}" y="{height + 4:.1f}" text-anchor="end">{tenth * 10} %</text>')
    for step in range(0, last + 1, 20):
        parts.append(f'<text x="{x(step):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 32}" text-anchor="middle">step</text>')
    parts.append(line([(s.number, s.right) for s in run.steps], TRUTH, 'stroke-dasharray="2 3"'))
    parts.append(line([(s.number, s.reward) for s in run.steps], REWARD))
    checks = [(float(c["step"]), c["anchor_rate"], c["anchor_ci"]) for c in run.checks if c["anchor_rate"] is not None]
    if checks:
        parts.append(line([(step, rate) for step, rate, _ in checks], ANCHOR))
    for step, rate, bounds in checks:
        if bounds:
            low, high = y(bounds[0]), y(bounds[1])
            parts.append(f'<path d="M{x(step):.1f} {low:.1f}V{high:.1f}" stroke="{ANCHOR}" opacity="0.4"/>')
        parts.append(f'<circle cx="{x(step):.1f}" cy="{y(rate):.1f}" r="3" fill="{ANCHOR}"/>')
    if run.held:
        at = x(run.steps[-1].number)
        parts.append(f'<path d="M{at:.1f} {TOP}v{HEIGHT}" stroke="{HELD}" stroke-width="2"/>')
        parts.append(f'<text x="{at + 5:.1f}" y="{TOP + 115}" fill="{HELD}">held</text>')
    if run.held and run.pinned:
        at, low = x(float(run.pinned)), TOP + HEIGHT - 6
        parts.append(f'<path d="M{at:.1f} {TOP}v{HEIGHT}" stroke="#555" stroke-dasharray="5 3"/>')
        parts.append(f'<text x="{at - 5:.1f}" y="{low}" fill="#555" text-anchor="end">pinned</text>')
    return "\n".join(parts)


def legend() -> str:
    """What the colours mean."""
    names = (
        (REWARD, "reward", ""),
        (ANCHOR, "anchor's pass rate, with its 95 % interval", ""),
        (TRUTH, "right in truth", "2 3"),
    )
    parts, at = [], LEFT
    for colour, name, dashes in names:
        height = TOP + HEIGHT + 54
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(f'<path d="M{at} {height - 4}h24" stroke="{colour}" stroke-width="2"{dashed}/>')
        parts.append(f'<text x="{at + 30}" y="{height}">{name}</text>')
        at += 60 + 7 * len(name)
    return "\n".join(parts)
