"""Small SVG pictures for docs/bench: distributions and bars, with axes, no library."""
import os

COLOURS = ("#1f6feb", "#8b949e", "#bf8700", "#2da44e")
HEAD = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" font-family="sans-serif" '
        'font-size="13">\n<rect width="{0}" height="{1}" fill="white"/>\n'
        '<text x="20" y="26" font-size="15">{2}</text>\n')


def write(path, width, height, title, parts):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD.format(width, height, title) + "\n".join(parts) + "\n</svg>\n")


def distributions(path, title, series):
    """Cumulative distributions of several series of numbers."""
    left, top, width, height = 60, 50, 620, 260
    most = max(sorted(values)[int(len(values) * 0.99)] for values in series.values()) * 1.1
    parts = [f'<path d="M{left},{top}V{top + height}H{left + width}" fill="none" stroke="black"/>']
    for step in range(6):
        x = left + width * step / 5
        parts.append(f'<text x="{x:.0f}" y="{top + height + 20}" text-anchor="middle">'
                     f'{most * step / 5:.1f}</text>')
        y = top + height * (5 - step) / 5
        parts.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{step * 20}%</text>')
    for (name, values), colour in zip(series.items(), COLOURS):
        ordered = sorted(values)
        points = " ".join(f"{left + width * min(value, most) / most:.1f},"
                          f"{top + height * (1 - (i + 1) / len(ordered)):.1f}"
                          for i, value in enumerate(ordered))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        middle = ordered[len(ordered) // 2]
        at = list(series).index(name)
        parts.append(f'<text x="{left + 20}" y="{top + 20 + 20 * at}" fill="{colour}">{name}: p50 '
                     f'{middle:.2f}</text>')
    write(path, 720, 350, title, parts)


def bars(path, title, values):
    left, top, width = 170, 50, 440
    most = max(values.values())
    parts = []
    for at, ((name, value), colour) in enumerate(zip(values.items(), COLOURS)):
        y = top + 40 * at
        length = width * value / most
        parts.append(f'<text x="{left - 10}" y="{y + 19}" text-anchor="end">{name}</text>'
                     f'<rect x="{left}" y="{y}" width="{length:.0f}" height="28" fill="{colour}"/>'
                     f'<text x="{left + length + 8:.0f}" y="{y + 19}">{value:.0f}</text>')
    write(path, 760, top + 40 * len(values) + 20, title, parts)
