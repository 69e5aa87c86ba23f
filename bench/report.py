"""Writes the figures as TSV and Markdown, and one SVG plot for each figure."""

import html
import platform
import re
import subprocess


def version(program):
    for flag in ("--version", "-v", "-V"):
        try:
            done = subprocess.run([program.command[0], flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return "?"
        match = re.search(rb"\d+\.\d+(\.\d+)?", done.stdout)
        if done.returncode == 0 and match:
            return match.group().decode()
    return "?"


def machine():
    model = re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo").read())
    memory = re.search(r"MemTotal:\s*(\d+)", open("/proc/meminfo").read())
    cores = len(re.findall(r"^processor", open("/proc/cpuinfo").read(), re.M))
    return f"{model.group(1) if model else platform.machine()}, {cores} cores, {int(memory.group(1)) >> 20} GiB, Linux {platform.release().split('-')[0]}"


def shown(value):
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def write(folder, results, cases, programs):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "results.tsv", "w") as out:
        out.write("archive\tprogram\tfigure\tvalue\tunit\n")
        for case, program, figure, value, unit in results:
            out.write(f"{case}\t{program}\t{figure}\t{'' if value is None else value}\t{unit}\n")
    names = list(dict.fromkeys(row[1] for row in results))
    table = {(case, figure, program): (value, unit) for case, program, figure, value, unit in results}
    with open(folder / "results.md", "w") as out:
        out.write("# Figures\n\n")
        out.write(f"Machine: {machine()}.\n")
        out.write("Programs: " + ", ".join(f"{program.name} {version(program)}" for program in programs) + ".\n\n")
        out.write("Each program in turn on the same file, which is in the page cache. – : failed or took too long. ")
        out.write("The factor is that of the best peer: above 1, the first program is better.\n\n")
        for case in cases:
            figures = list(dict.fromkeys(row[2] for row in results if row[0] == case.name))
            if not figures:
                continue
            out.write(f"## {case.name}: {case.about}, {case.path.stat().st_size / 2**20:.0f} MiB\n\n")
            out.write("| figure | " + " | ".join(names) + " | factor |\n|---|" + "---:|" * (len(names) + 1) + "\n")
            for figure in figures:
                cells = [table.get((case.name, figure, name), (None, "")) for name in names]
                unit = next((unit for _, unit in cells if unit), "")
                out.write(f"| {figure}{f' ({unit})' if unit else ''} | " + " | ".join(shown(value) for value, _ in cells) + f" | {factor(cells, unit)} |\n")
            out.write("\n")
    for figure in ("first mount", "next mount", "find, first", "1000 random files", "100 random files", "sequential read", "peak memory, indexing", "peak memory, serving", "memory afterwards"):
        rows = [(case.name, [(name, table[case.name, figure, name][0]) for name in names if (case.name, figure, name) in table]) for case in cases]
        rows = [(case, values) for case, values in rows if any(value for _, value in values)]
        if rows:
            unit = next(row[4] for row in results if row[2] == figure)
            plot(folder / f"{re.sub('[^a-z0-9]+', '-', figure)}.svg", figure, unit, rows, names)


def factor(cells, unit):
    ours, peers = cells[0][0], [value for value, _ in cells[1:] if value]
    if not ours or not peers or unit not in ("s", "ms", "MiB", "MB/s"):
        return ""
    return f"{ours / max(peers):.1f}" if unit == "MB/s" else f"{min(peers) / ours:.1f}"


COLOURS = ["#1b6ca8", "#d9822b", "#7a9e3f", "#8d6cab", "#888888"]


def plot(path, title, unit, rows, names):
    """Horizontal bars on a logarithmic scale: the programs differ by factors of a hundred."""
    import math

    values = [value for _, bars in rows for _, value in bars if value]
    low, high = math.log10(min(values)) - 0.2, math.log10(max(values)) + 0.05
    left, width, bar, gap = 110, 560, 14, 12
    height = sum(len(bars) * bar + gap for _, bars in rows) + 80
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{height}" font-family="sans-serif" font-size="12">']
    out.append('<rect width="100%" height="100%" fill="white"/>')
    out.append(f'<text x="10" y="20" font-size="15">{html.escape(title)} ({unit}, logarithmic)</text>')
    for number, name in enumerate(names):
        out.append(f'<rect x="{10 + 130 * number}" y="32" width="10" height="10" fill="{COLOURS[number % 5]}"/><text x="{25 + 130 * number}" y="41">{html.escape(name)}</text>')
    y = 60
    for case, bars in rows:
        out.append(f'<text x="{left - 8}" y="{y + len(bars) * bar / 2 + 4}" text-anchor="end">{html.escape(case)}</text>')
        for name, value in bars:
            if value:
                length = max(1, (math.log10(value) - low) / (high - low) * width)
                out.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 2}" fill="{COLOURS[names.index(name) % 5]}"/>')
                out.append(f'<text x="{left + length + 4:.1f}" y="{y + 10}" font-size="10">{shown(value)}</text>')
            else:
                out.append(f'<text x="{left + 4}" y="{y + 10}" font-size="10">failed or too slow</text>')
            y += bar
        y += gap
    out.append("</svg>")
    path.write_text("\n".join(out))
