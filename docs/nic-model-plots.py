#!/usr/bin/env python3
"""Draws docs/nic-model-*.svg from `viaduct bench nic-model --json FILE`: nic-model-plots.py FILE"""
import json
import os
import re
import sys

FIGURES = {6: ("send", "Mb/s"), 8: ("receive", "Mb/s"), 10: ("bidirectional", "Mb/s"), 12: ("ping", "us")}
COLOURS = {"RELEASE": "#1f77b4", "RELEASE (SRAM-BOTH)": "#9ecae1", "PARALLEL": "#d62728",
           "PARALLEL (SRAM-CODE)": "#ff7f0e", "PARALLEL (SRAM-DATA)": "#9467bd", "PARALLEL (SRAM-BOTH)": "#fcae91"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 400, 60, 30, 200, 50


def draw(title, unit, lines, limit):
    top = max(v for points in lines.values() for _, v in points)
    if limit:
        top = max(top, max(v for _, v in limit))
    x = lambda size: LEFT + size / 1500 * (WIDTH - LEFT - RIGHT)
    y = lambda value: HEIGHT - BOTTOM - value / (top * 1.05) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-size="14">{title}, {unit} over datagram bytes (model)</text>']
    for size in range(0, 1501, 300):
        out.append(f'<text x="{x(size):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size}</text>')
    for i in range(6):
        value = top * i / 5
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    named = dict(lines)
    if limit:
        named["Ethernet limit"] = limit
    for i, (name, points) in enumerate(named.items()):
        colour = COLOURS.get(name, "#888")
        path = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in points)
        dash = ' stroke-dasharray="4 3"' if name not in COLOURS else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<line x1="{WIDTH - RIGHT + 10}" x2="{WIDTH - RIGHT + 30}" y1="{TOP + 20 * i + 8}" '
                   f'y2="{TOP + 20 * i + 8}" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{WIDTH - RIGHT + 36}" y="{TOP + 20 * i + 12}">{name}</text>')
    return "\n".join(out + ["</svg>\n"])


def main():
    with open(sys.argv[1]) as file:
        report = json.load(file)
    figures = {}
    for row in report["rows"]:
        found = re.match(r"figures (\d+) and \d+, (\d+) B", row["case"])
        if found:
            lines = figures.setdefault(int(found[1]), {})
            lines.setdefault(row["who"], []).append((int(found[2]), row["median"]))
    for figure, (name, unit) in FIGURES.items():
        ways = {6: 1, 8: 1, 10: 2}.get(figure)
        sizes = [size for size, _ in next(iter(figures[figure].values()))]
        limit = [(s, ways * 1000 * s / (max(s + 42, 60) + 24)) for s in sizes] if ways else None
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"nic-model-{name}.svg")
        with open(path, "w") as file:
            file.write(draw(f"UDP {name}", unit, figures[figure], limit))


main()
