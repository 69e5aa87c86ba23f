#!/usr/bin/env python3
"""Undoes the compression of the same files with tarnfs and its peers, whole processes, and reads at random places of them.

    bench/decoders.py                 all files, with one thread and with all cores; about half an hour on two cores
    bench/decoders.py --small         smaller files, some minutes
    bench/decoders.py --only real.gz,text.one.xz
    bench/decoders.py --tarnfs PATH   another build

What is written goes to /dev/null; what tarnfs writes is also compared with the original, once. With one thread each program is
pinned to one core. Results go to bench/results/<date>-<machine>/decoders.tsv and decoders.md.
"""

import argparse
import datetime
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

import archives
import report

HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE / "work"
LONG = 6.0

# Suffix of the file, how it is made. `one`: a single block or frame, as the plain program writes it.
COMPRESSORS = {
    "gz": "gzip -6 -c",
    "bz2": "lbzip2 -9 -c",
    "xz": "xz -3 -T2 --block-size=4MiB -c",
    "one.xz": "xz -1 -T1 -c",
    "zst": "pzstd -q -3 -c",
    "one.zst": "zstd -q -3 -c",
    "lz4": "lz4 -q -1 -c",
}


def peers(suffix, threads):
    """The command lines that undo this compression, by name; those that are installed."""
    rapidgzip = os.environ.get("TARNFS_PEERS", str(HERE.parent / "target" / "peers")) + "/bin/rapidgzip"
    if not os.path.exists(rapidgzip):
        rapidgzip = "rapidgzip"
    last = suffix.rsplit(".", 1)[-1]
    found = {
        "gz": {
            "igzip": ["igzip", "-dc", "-T", str(threads)],
            "rapidgzip": [rapidgzip, "-d", "-c", "-P", str(threads)],
            "pigz": ["pigz", "-dc", "-p", str(threads)],
            "gzip": ["gzip", "-dc"],
        },
        "bz2": {
            "lbzip2": ["lbzip2", "-dc", "-n", str(threads)],
            "rapidgzip": [rapidgzip, "-d", "-c", "-P", str(threads)],
        },
        "xz": {"xz": ["xz", "-dc", f"-T{threads}"], "pixz": ["pixz", "-d", "-p", str(threads), "-o", "/dev/null", "-i"]},
        "zst": {"zstd": ["zstd", "-q", "-dc"], "pzstd": ["pzstd", "-q", "-dc", "-p", str(threads)]},
        "lz4": {"lz4": ["lz4", "-q", "-dc"]},
    }[last]
    return {name: command for name, command in found.items() if shutil.which(command[0])}


def files(folder, small, only):
    """Makes the files: name -> (path, the original)."""
    folder.mkdir(parents=True, exist_ok=True)
    scale = 32 if small else 256

    def make(path, script):
        if not path.exists():
            print(f"making {path.name}", flush=True)
            part = path.with_name("part-" + path.name)
            archives.shell(f"{script} > {part.name}", folder)
            part.rename(path)

    originals = {"real": ("real.tar", None)}
    if not (folder / "real.tar").exists():
        archives.real_files(folder / "real.tar", 40e6 if small else 1.75e9)
    sources = "find /usr/include /usr/lib/python3* /usr/share /root/.cargo/registry/src -type f"
    names = " -o ".join(f"-name '*.{suffix}'" for suffix in ("h", "py", "pm", "rs", "c", "txt", "md", "html"))
    originals["text"] = ("text", f"({sources} \\( {names} \\) -print0 2>/dev/null | sort -z | xargs -0 cat 2>/dev/null | head -c {scale}M || true)")
    originals["noise"] = ("noise", f"head -c {scale}M /dev/urandom")
    originals["base64"] = ("base64", f"head -c {scale * 3 // 4}M /dev/urandom | base64")
    originals["zeros"] = ("zeros", f"head -c {scale * 4}M /dev/zero")
    # No tar, so that it is one file in a mount: for random reads over all of it.
    originals["stream"] = ("stream", f"tail -c +101 real.tar | head -c {scale * 4}M || true")
    wanted = only.split(",") if only else None
    for name, (file, script) in originals.items():
        for suffix, command in COMPRESSORS.items():
            if wanted and f"{name}.{suffix}" not in wanted:
                continue
            if name not in ("real", "stream") and suffix in ("xz", "zst", "lz4") or (name, suffix) == ("stream", "lz4"):
                continue
            if script:
                make(folder / file, script)
            path = folder / f"{name}.{suffix}"
            if name == "real" and suffix in archives.COMPRESSIONS and not small and (folder / f"real-{suffix}.tar.{suffix}").exists():
                path = folder / f"real-{suffix}.tar.{suffix}"
            make(path, f"{command} < {file}")
            yield f"{name}.{suffix}", path, folder / file


def run(command, path, threads, stdout=subprocess.DEVNULL):
    """Seconds, and peak memory in MiB if `time` is there to tell; None where it fails."""
    pin = ["taskset", "-c", "0"] if threads == 1 else []
    # The peak of a child of this script is at least that of the script.
    measured = ["/usr/bin/time", "-q", "-f", "%M"] if os.path.exists("/usr/bin/time") else []
    start = time.monotonic()
    process = subprocess.Popen([*measured, *pin, *command, str(path)], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)
    _, errors = process.communicate()
    seconds = time.monotonic() - start
    peak = errors.split()[-1:] if measured else []
    return (seconds, int(peak[0]) / 1024 if peak else None) if process.returncode == 0 else (None, None)


def random_reads(mount, path, results, name, program, limit):
    """The median of 200 reads of 64 KiB, ms, right after mounting with the index there."""
    at = WORK / "mnt" / "decoders"
    at.mkdir(parents=True, exist_ok=True)
    try:
        if subprocess.run([*mount, path, at], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=400).returncode != 0:
            return
        deadline = time.monotonic() + 60
        while not os.path.ismount(at) and time.monotonic() < deadline:
            time.sleep(0.01)
        file = max((entry for entry in at.rglob("*") if entry.is_file()), key=lambda entry: entry.stat().st_size)
        size = file.stat().st_size
        # In a tar it may be small: then the reads are not over all of the stream, and are left out.
        if size < 100 << 20 and "small" not in str(path):
            return
        rng, times = random.Random(3), []
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        until = time.monotonic() + limit
        for _ in range(200):
            start = time.monotonic()
            os.pread(descriptor, 65536, rng.randrange(max(1, size - 65536)))
            times.append(time.monotonic() - start)
            if time.monotonic() > until:
                break
        os.close(descriptor)
        note(results, name, program, f"random 64 KiB, median of {len(times)}", statistics.median(times) * 1000, "ms")
    finally:
        subprocess.run(["umount", at], stderr=subprocess.DEVNULL)
        time.sleep(0.2)


def note(results, file, program, figure, value, unit):
    results.append((file, program, figure, value, unit))
    print(f"  {file:14} {program:12} {figure:32} {'-' if value is None else format(value, '.4g'):>10} {unit}", flush=True)


def write(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "decoders.tsv", "w") as out:
        out.write("file\tprogram\tfigure\tvalue\tunit\n")
        for row in results:
            out.write("\t".join("" if cell is None else str(cell) for cell in row) + "\n")
    with open(folder / "decoders.md", "w") as out:
        out.write(f"# Decoders\n\nMachine: {report.machine()}. Seconds to /dev/null, medians; the factor is that of the best peer.\n\n")
        for file in dict.fromkeys(row[0] for row in results):
            rows = [row for row in results if row[0] == file]
            names = list(dict.fromkeys(row[1] for row in rows))
            out.write(f"## {file}\n\n| figure | " + " | ".join(names) + " | factor |\n|---|" + "---:|" * (len(names) + 1) + "\n")
            for figure in dict.fromkeys(row[2] for row in rows):
                of = {row[1]: (row[3], row[4]) for row in rows if row[2] == figure}
                cells = [of.get(name, (None, "")) for name in names]
                unit = next((unit for _, unit in cells if unit), "")
                ours, others = cells[0][0], [value for value, _ in cells[1:] if value]
                factor = f"{min(others) / ours:.2f}" if ours and others else ""
                out.write(f"| {figure} ({unit}) | " + " | ".join(report.shown(value) for value, _ in cells) + f" | {factor} |\n")
            out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", help="files, with commas between them")
    parser.add_argument("--tarnfs", default=str(HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--results", type=pathlib.Path)
    arguments = parser.parse_args()
    subprocess.run([HERE / "peers.sh"], check=True)
    os.environ["XDG_CACHE_HOME"] = str(WORK / "cache")
    peers_folder = os.environ.get("TARNFS_PEERS", str(HERE.parent / "target" / "peers"))
    ratarmount = shutil.which("ratarmount", path=f"{peers_folder}/bin:{os.environ['PATH']}")
    cores = os.cpu_count()
    folder = arguments.results or HERE / "results" / f"{datetime.date.today().isoformat()}-{cores}-cores{'-small' if arguments.small else ''}"
    results = []
    for name, path, original in files(WORK / ("small" if arguments.small else "full"), arguments.small, arguments.only):
        print(f"{name}: {path.stat().st_size / 2**20:.0f} MiB, {original.stat().st_size / 2**20:.0f} MiB decoded", flush=True)
        archives.into_page_cache(path)
        index = WORK / "decoders.index"
        index.unlink(missing_ok=True)
        without = [arguments.tarnfs, "cat", "--index-file", ":memory:", "-P"]
        check = f"{arguments.tarnfs} cat --index-file :memory: {path} | cmp - {original}"
        same = subprocess.run(["bash", "-o", "pipefail", "-c", check]).returncode == 0
        note(results, name, "tarnfs", "wrong bytes", 0 if same else 1, "")
        timed = not name.startswith("stream")
        for threads in dict.fromkeys((cores, 1)) if timed else ():
            all_of = {"tarnfs": [*without, str(threads)], **peers(name.split(".", 1)[1], threads)}
            times, memory = {program: [] for program in all_of}, {}
            for round_ in range(3):
                for program, command in all_of.items():
                    if round_ > 0 and (None in times[program] or times[program][0] > LONG):
                        continue
                    seconds, memory[program] = run(command, path, threads)
                    times[program].append(seconds)
            plural = "" if threads == 1 else "s"
            for program in all_of:
                value = None if None in times[program] else statistics.median(times[program])
                note(results, name, program, f"{threads} thread{plural}", value, "s")
            for program in all_of:
                note(results, name, program, f"memory, {threads} thread{plural}", memory[program], "MiB")
        subprocess.run([arguments.tarnfs, "index", "--cache-size", "0", "--index-file", index, path], stderr=subprocess.DEVNULL)
        for threads in dict.fromkeys((cores, 1)) if timed else ():
            plural = "" if threads == 1 else "s"
            times = [run([arguments.tarnfs, "cat", "--range", "0:", "--index-file", str(index), "-P", str(threads)], path, threads)[0] for _ in range(3)]
            note(results, name, "tarnfs", f"with an index, {threads} thread{plural}", None if None in times else statistics.median(times), "s")
        random_reads([arguments.tarnfs, "--cache-size", "0", "--index-file", index], path, results, name, "tarnfs", 120)
        if ratarmount and not name.startswith("real"):
            of_peer = WORK / "decoders.ratarmount"
            random_reads([ratarmount, "-P", "0", "--index-file", of_peer], path, results, name, "ratarmount", 60)
            of_peer.unlink(missing_ok=True)
        index.unlink(missing_ok=True)
        write(folder, results)
    print(f"written to {folder}")


if __name__ == "__main__":
    main()
