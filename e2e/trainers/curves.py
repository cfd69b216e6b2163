"""The curves of `scripts/gpu` as a picture: `python3 curves.py PICTURE.svg gpu.json…`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from plot import ANCHOR, HELD, REWARD, TRUTH

WIDTH, HEIGHT, LEFT, TOP, NEXT_X, NEXT_Y = 340, 170, 45, 30, 420, 250
PLAIN = "#aaa"

Line = tuple[str, str, list[tuple[float, float]]]
"""What it shows, its colour, and its points."""


def points(curve: list[dict[str, Any]], key: str, over: int = 1) -> list[tuple[float, float]]:
    """The values of a figure by step, as means over so many steps."""
    values = [one[key] for one in curve]
    return [
        (curve[at]["step"], sum(values[max(0, at + 1 - over) : at + 1]) / min(over, at + 1)) for at in range(len(curve))
    ]


def panel(number: int, title: str, top: float, lines: list[Line], held: float | None = None) -> str:
    """One chart, from 0 to `top`."""
    left, above = LEFT + number % 2 * NEXT_X, TOP + number // 2 * NEXT_Y
    last = max(step for _, _, line in lines for step, _ in line)

    def at(step: float, value: float) -> str:
        return f"{left + WIDTH * step / last:.1f} {above + HEIGHT * (1 - value / top):.1f}"

    parts = [f'<text x="{left}" y="{above - 10}" font-weight="bold">{title}</text>']
    for quarter in range(5):
        value = top * quarter / 4
        parts.append(f'<path d="M{at(0, value)}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 5}" y="{at(0, value).split()[1]}" dy="4" text-anchor="end">{value:g}</text>')
    for step in (0, last / 2, last):
        x = at(step, 0).split()[0]
        parts.append(f'<text x="{x}" y="{above + HEIGHT + 16}" text-anchor="middle">{step:g}</text>')
    below = left
    for name, colour, line in lines:
        path = "M" + "L".join(at(step, value) for step, value in line)
        width = 5 if colour == PLAIN else 1.5  # the lines of both lie upon each other
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts.append(f'<text x="{below}" y="{above + HEIGHT + 34}" fill="{colour}">{name}</text>')
        below += 14 + 6.4 * len(name)
    if held is not None:
        x = at(held, 0).split()[0]
        parts.append(f'<path d="M{at(held, 0)}v-{HEIGHT}" stroke="{HELD}" stroke-width="2"/>')
        parts.append(f'<text x="{x}" y="{above + 90}" dx="-6" text-anchor="end" fill="{HELD}">held</text>')
    return "\n".join(parts)


def picture(found: dict[str, Any]) -> str:
    """SFT, DPO and GRPO through the product and with TRL alone, and the run that was held."""

    def both(method: str, key: str, over: int = 1) -> list[Line]:
        names = {"plain": ("TRL alone", PLAIN), "product": ("the product", REWARD)}
        return [(*names[how], points(found[method][how]["curve"], key, over)) for how in names]

    gamed = found["gamed"]
    checks = [(float(check["step"]), check["anchor_rate"]) for check in gamed["checks"]]
    panels = [
        panel(0, "SFT: loss", 8, both("sft", "loss")),
        panel(1, "DPO, LoRA: margin of the rewards", 100, both("dpo", "rewards/margins")),
        panel(
            2, "GRPO: reward by a sound judge, mean of ten steps", 1,
            [("reward", REWARD, points(found["grpo"]["product"]["curve"], "reward", 10))],
        ),
        panel(3, "GRPO: the judge has a loophole", 1, [
            ("reward", REWARD, points(gamed["curve"], "reward")),
            ("right in truth", TRUTH, points(gamed["curve"], "right")),
            ("the anchor's pass rate", ANCHOR, checks),
        ], gamed["curve"][-1]["step"]),
    ]  # fmt: skip
    size = f"0 0 {LEFT + NEXT_X + WIDTH + 20} {TOP + NEXT_Y + HEIGHT + 50}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *panels, "</svg>", ""])


def main() -> None:
    found: dict[str, Any] = {}
    for name in sys.argv[2:]:
        found |= json.loads(pathlib.Path(name).read_text())
    pathlib.Path(sys.argv[1]).write_text(picture(found))


if __name__ == "__main__":
    main()
