#!/usr/bin/env python3
"""Archives in an archive: tarnfs beside ratarmount, both with --recursive, on a tar of many tars and on one of many tar.gz.

    bench/recursion.py              2000 archives of 10 small files each, a minute
    bench/recursion.py --archives 100 --rounds 1

Checks that every file is shown with its bytes, and writes a line for each figure to standard output and to --results.
Peak memory is that of all processes together: the one that reads the archive, and those that serve it.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import time

import archives
import run

HERE = pathlib.Path(__file__).resolve().parent
FILES = 10


def content(archive, file):
    """A small text that no other file has."""
    return f"file {file} of archive {archive}\n".encode() * (5 + file)


def inner(archive):
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for file in range(FILES):
                data = content(archive, file)
                info = tarfile.TarInfo(f"folder/{file}.txt")
                info.size, info.mode, info.mtime = len(data), 0o644, 1_600_000_000 + file
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()


def make(path, count, suffix):
    """A tar of `count` tars, compressed if `suffix` says so; kept for the next time."""
    if path.exists():
        return
    part = path.with_name("part-" + path.name)
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        for archive in range(count):
            data = inner(archive)
            if suffix == ".gz":
                data = gzip.compress(data, 6, mtime=0)
            info = tarfile.TarInfo(f"{archive // 100:03d}/{archive:05d}.tar{suffix}")
            info.size, info.mode, info.mtime = len(data), 0o644, 1_600_000_000
            tar.addfile(info, io.BytesIO(data))
    part.rename(path)


class Recursive(run.Program):
    """A program that looks into archives, and whose processes are counted together."""

    def __init__(self, program, options):
        super().__init__(program.name, [*program.command, *options], program.index_suffixes)

    def memory(self, at, field):
        found = [self.of_process(pid, field) for pid in self.pids(at)]
        return sum(found) or None

    @staticmethod
    def of_process(pid, field):
        try:
            lines = open(f"/proc/{pid}/status").read().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith(field + ":")), 0)

    def first_mount(self, archive, at, limit):
        """As `mount`; the most memory that all processes had at a time is looked at every few milliseconds until they serve."""
        os.makedirs(at, exist_ok=True)
        start = time.monotonic()
        process = subprocess.Popen([*self.command, archive, at], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, self.memory(at, "VmRSS") or 0)
            if time.monotonic() - start > limit:
                process.kill()
                process.wait()
                return None, None
            time.sleep(0.005)
        seconds = time.monotonic() - start
        if process.returncode != 0 or not os.path.ismount(at):
            return None, peak or None
        os.listdir(at)
        return seconds, max(peak, self.memory(at, "VmHWM") or 0)


def is_right(at, count, suffix, every):
    """True if each file of every so many archives has its bytes."""
    for archive in range(0, count, every):
        folder = pathlib.Path(at) / f"{archive // 100:03d}" / f"{archive:05d}.tar{suffix}" / "folder"
        for file in range(FILES):
            try:
                found = (folder / f"{file}.txt").read_bytes()
            except OSError:
                return False
            if hashlib.sha256(found).digest() != hashlib.sha256(content(archive, file)).digest():
                return False
    return True


def median(values):
    return None if None in values else sorted(values)[len(values) // 2]


def find(folder, limit):
    """Asks for the size of every file; `-size -1G` would find empty ones only."""
    return run.timed(["find", folder, "-type", "f", "-size", "-1000000k"], limit)


def measure(program, path, count, suffix, limit, rounds, note):
    archive, at = str(path), str(run.WORK / "mnt" / f"{program.name}-{path.stem}")
    os.makedirs(os.path.dirname(at), exist_ok=True)
    archives.into_page_cache(archive)
    first, peaks = [], []
    for _ in range(rounds):
        # The time of a first mount by itself, then its memory: looking at it takes time, too.
        program.remove_indexes(archive)
        seconds, _ = program.mount(archive, at, limit)
        program.unmount(at)
        first.append(seconds)
        program.remove_indexes(archive)
        seconds, peak = program.first_mount(archive, at, limit)
        program.unmount(at)
        peaks.append(peak)
    note("first mount", median(first), "s")
    known = [peak for peak in peaks if peak]
    note("peak memory, indexing", max(known) / 1024 if known else None, "MiB")
    if None in first:
        return
    following = []
    for _ in range(rounds):
        seconds, _ = program.mount(archive, at, limit)
        following.append(seconds)
        program.unmount(at)
    note("next mount", median(following), "s")
    walks, again, counts = [], [], set()
    for _ in range(rounds):
        program.mount(archive, at, limit)
        try:
            seconds, listing = find(at, limit)
            walks.append(seconds)
            counts.add(listing.count(b"\n"))
            again.append(find(at, limit)[0])
            memory = program.memory(at, "VmHWM")
        finally:
            program.unmount(at)
    note("find, first", median(walks), "s")
    note("find, second", median(again), "s")
    note("files found", min(counts), f"of {count * FILES}")
    note("peak memory, serving", memory and memory / 1024, "MiB")
    program.mount(archive, at, limit)
    try:
        note("bytes", "equal" if is_right(at, count, suffix, max(1, count // 200)) else "WRONG", "")
    finally:
        program.unmount(at)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archives", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tarnfs", default=str(HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--programs", help="programs, with commas between them")
    parser.add_argument("--limit", type=float, default=120, help="seconds that one step may take")
    parser.add_argument("--results", type=pathlib.Path, help="a file for lines of archive, program, figure, value, unit")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench/recursion.py: needs root, to unmount whatever was mounted")
    os.environ["XDG_CACHE_HOME"] = str(run.WORK / "cache")
    folder = run.WORK / "recursion"
    folder.mkdir(parents=True, exist_ok=True)
    # Indexes are kept however small they are: without one the next mount is the first one.
    options = ["--recursive", "--index-minimum-file-count", "0"]
    programs = [Recursive(program, options) for program in run.programs(arguments.tarnfs, "tarnfs") if program.index_suffixes]
    lines = []
    for name, suffix in (("tars", ""), ("tar-gz", ".gz")):
        path = folder / f"{name}-{arguments.archives}.tar"
        make(path, arguments.archives, suffix)
        print(f"{name}: {path.stat().st_size / 2**20:.1f} MiB, {arguments.archives} archives of {FILES} files", flush=True)
        for program in programs:
            if arguments.programs and program.name not in arguments.programs.split(","):
                continue

            def note(figure, value, unit):
                shown = "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"
                lines.append("\t".join((name, program.name, figure, shown, unit)))
                print(f"  {name:8} {program.name:12} {figure:24} {shown:>10} {unit}", flush=True)

            measure(program, path, arguments.archives, suffix, arguments.limit, arguments.rounds, note)
    if arguments.results:
        arguments.results.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
