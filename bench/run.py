#!/usr/bin/env python3
"""Runs tarnfs and its peers in turn on the same files, checks that all return the same bytes, and writes tables and plots.

    bench/run.py            all archives of the design, about an hour on two cores
    bench/run.py --small    the same on a small scale, about a minute
    bench/run.py --only plain-empty,real-gz    only these archives
    bench/run.py --tarnfs PATH --name LABEL    another build, as a row of its own

The peers are installed by peers.sh. Results go to bench/results/<date>-<machine>/: results.tsv, results.md, *.svg.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import archives
import report

INDEX_SUFFIXES = (".tarnfs.sqlite", ".index.sqlite")
HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE / "work"


class Program:
    """One way to mount an archive: a command line, and how it is ended."""

    def __init__(self, name, command, index_suffixes=()):
        self.name, self.command, self.index_suffixes = name, command, index_suffixes

    @staticmethod
    def remove_indexes(archive):
        """Also those of the others: tarnfs would use ratarmount's."""
        for suffix in INDEX_SUFFIXES:
            pathlib.Path(f"{archive}{suffix}").unlink(missing_ok=True)

    def index_size(self, archive):
        sizes = [os.path.getsize(f"{archive}{suffix}") for suffix in self.index_suffixes if os.path.exists(f"{archive}{suffix}")]
        return sum(sizes) if sizes else None

    def mount(self, archive, at, limit):
        """Returns (seconds until the command has returned and the mount answers, peak RSS in KiB on the way)."""
        os.makedirs(at, exist_ok=True)
        start = time.monotonic()
        process = subprocess.Popen([*self.command, archive, at], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None, None
        while not os.path.ismount(at):
            if time.monotonic() - start > limit:
                return None, None
            time.sleep(0.001)
        os.listdir(at)
        seconds = time.monotonic() - start
        return seconds, self.memory(at, "VmHWM")

    def pids(self, at):
        """The processes that serve the mount at this folder: those that have its path on their command line."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                try:
                    command = open(f"/proc/{entry}/cmdline", "rb").read().split(b"\0")
                except OSError:
                    continue
                if os.fsencode(at) in command:
                    found.append(int(entry))
        return found

    def memory(self, at, field):
        """Resident memory in KiB: VmRSS now, VmHWM at its peak."""
        total = 0
        for pid in self.pids(at):
            try:
                match = re.search(rf"{field}:\s*(\d+)", open(f"/proc/{pid}/status").read())
            except OSError:
                continue
            total = max(total, int(match.group(1)) if match else 0)
        return total or None

    def cpu(self, at):
        """CPU seconds that the serving processes have used."""
        ticks = 0
        for pid in self.pids(at):
            try:
                fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def unmount(self, at):
        if os.path.ismount(at):
            subprocess.run(["umount", at], stderr=subprocess.DEVNULL)
        for _ in range(200):
            if not os.path.ismount(at) and not self.pids(at):
                break
            time.sleep(0.02)
        else:
            subprocess.run(["umount", "-l", at], stderr=subprocess.DEVNULL)
            for pid in self.pids(at):
                os.kill(pid, signal.SIGKILL)
        if os.path.isdir(at):
            try:
                os.rmdir(at)
            except OSError:
                pass


def programs(tarnfs, name):
    found = [Program(name, [tarnfs], (".tarnfs.sqlite",))]
    peers = os.environ.get("TARNFS_PEERS", str(HERE.parent / "target" / "peers"))
    ratarmount = shutil.which("ratarmount", path=f"{peers}/bin:{os.environ['PATH']}")
    if ratarmount:
        found.append(Program("ratarmount", [ratarmount, "-P", "0"], (".index.sqlite",)))
    if shutil.which("fuse-archive"):
        found.append(Program("fuse-archive", ["fuse-archive"]))
    if shutil.which("archivemount"):
        found.append(Program("archivemount", ["archivemount", "-o", "readonly"]))
    return found


def warm_memory(archive):
    """Touches the memory that names and inodes of a large archive take in the kernel (at most 8 times the archive), so that in a virtual
    machine the first program does not pay for what its host hands out late."""
    available = int(re.search(r"MemAvailable:\s*(\d+)", open("/proc/meminfo").read()).group(1)) * 1024
    block = bytearray(min(4 << 30, available // 4, 8 * os.path.getsize(archive)))
    block[::4096] = b"x" * len(range(0, len(block), 4096))


def timed(command, limit, **options):
    """Seconds that a command takes; None if it fails or takes longer than the limit."""
    start = time.monotonic()
    try:
        done = subprocess.run(command, timeout=limit, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options)
    except subprocess.TimeoutExpired:
        return None, b""
    seconds = time.monotonic() - start
    return (seconds if done.returncode == 0 else None), done.stdout


def find(folder, limit):
    return timed(["find", folder, "-type", "f", "-size", "-1G"], limit)


def measure(program, case, results, limit, rounds):
    """All figures of one program on one archive; the median of so many rounds where one alone would swing."""
    archive = str(case.path)
    at = str(WORK / "mnt" / f"{program.name}-{case.name}")
    os.makedirs(os.path.dirname(at), exist_ok=True)

    def note(figure, value, unit):
        results.append((case.name, program.name, figure, value, unit))
        shown = "-" if value is None else f"{value:.4g}"
        print(f"  {case.name:16} {program.name:14} {figure:24} {shown:>10} {unit}", flush=True)

    program.remove_indexes(archive)
    archives.into_page_cache(archive)
    warm_memory(archive)
    seconds, peak = program.mount(archive, at, limit)
    note("first mount", seconds, "s")
    note("peak memory, indexing", peak and peak / 1024, "MiB")
    program.unmount(at)
    if seconds is None:
        return
    note("index size", (size := program.index_size(archive)) and size / 2**20, "MiB")
    mounts = []
    for _ in range(rounds):
        seconds, _ = program.mount(archive, at, limit)
        mounts.append(seconds)
        program.unmount(at)
    note("next mount", None if None in mounts else sorted(mounts)[rounds // 2], "s")
    program.mount(archive, at, limit)
    try:
        if case.sample:
            # Before the walk, so that no name is known yet.
            wanted = b"".join(os.fsencode(f"{at}/{name}") + b"\0" for name in case.sample)
            seconds, sums = timed(["xargs", "-0", "md5sum"], limit, input=wanted)
            note(f"{len(case.sample)} random files", seconds, "s")
            if seconds is None:
                # Whoever takes too long for a few files is not asked for all.
                return
            got = {line.split(b"  ", 1)[1].removeprefix(os.fsencode(at) + b"/"): line[:32] for line in sums.splitlines()}
            wrong = [name for name, total in case.md5.items() if got.get(os.fsencode(name)) != total]
            note("wrong files", len(wrong), "")
        walk, listing = find(at, limit)
        note("find, first", walk, "s")
        if walk is not None:
            before = program.cpu(at)
            again, _ = find(at, limit)
            note("find, second", again, "s")
            note("find, second: its CPU", program.cpu(at) - before, "s")
            note("files found", listing.count(b"\n"), "")
        note("memory afterwards", (rss := program.memory(at, "VmRSS")) and rss / 1024, "MiB")
        peaks = [program.memory(at, "VmHWM")]
        if case.large:
            subprocess.run(["sync"])
            read = lambda: timed(["dd", f"if={at}/{case.large}", "of=/dev/null", "bs=1M"], limit)[0]
            rates = []
            for _ in range(rounds):
                # What the program has decoded before does not count: a file is mostly read once.
                program.unmount(at)
                program.mount(str(case.path), at, limit)
                archives.drop_cache(f"{at}/{case.large}")
                seconds = read()
                peaks.append(program.memory(at, "VmHWM"))
                rates.append(seconds and case.large_size / 1e6 / seconds)
            note("sequential read", None if None in rates else sorted(rates)[rounds // 2], "MB/s")
            archives.drop_cache(f"{at}/{case.large}")
            seconds = read()
            note("sequential read, again", seconds and case.large_size / 1e6 / seconds, "MB/s")
            peaks.append(program.memory(at, "VmHWM"))
        note("peak memory, serving", max((peak for peak in peaks if peak), default=0) / 1024 or None, "MiB")
        if rounds > 1 and pathlib.Path(program.command[0]).name == "tarnfs":
            time.sleep(65)
            note("memory, idle for a minute", (rss := program.memory(at, "VmRSS")) and rss / 1024, "MiB")
    finally:
        program.unmount(at)


def verify(program, case, limit):
    """Every file's SHA-256, on the first and the next mount, against what tar extracts."""
    at = str(WORK / "mnt" / f"verify-{program.name}-{case.name}")
    program.remove_indexes(str(case.path))
    for _ in ("first", "next"):
        program.mount(str(case.path), at, limit)
        try:
            expected = case.sha256()
            result = subprocess.run(["sha256sum", "--quiet", "-c", str(expected)], cwd=at, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if result.returncode != 0:
                return 1
        finally:
            program.unmount(at)
    return 0


def on_tmpfs(case, results, limit):
    """The same find on the extracted tree in memory: what the second find is measured against."""
    folder = WORK / "tmpfs"
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80%,nr_inodes=0", "none", folder], check=True)
    try:
        subprocess.run(["tar", "-xf", case.path, "-C", folder], check=True)
        find(folder, limit)
        seconds, _ = find(folder, limit)
        results.append((case.name, "tmpfs", "find, second", seconds, "s"))
        print(f"  {case.name:16} tmpfs          find, second             {seconds:10.4g} s", flush=True)
    finally:
        subprocess.run(["umount", folder])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", help="archives, with commas between them")
    parser.add_argument("--programs", help="programs, with commas between them")
    parser.add_argument("--tarnfs", default=str(HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--name", default="tarnfs")
    parser.add_argument("--limit", type=float, help="seconds that one step may take (400; small: 4)")
    parser.add_argument("--no-verify", action="store_true", help="do not compare every file's SHA-256")
    parser.add_argument("--results", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.limit = arguments.limit or (4 if arguments.small else 400)
    if os.geteuid() != 0:
        sys.exit("bench/run.py: needs root, for page caches and tmpfs")
    subprocess.run([HERE / "peers.sh"], check=True)
    os.environ["XDG_CACHE_HOME"] = str(WORK / "cache")
    date = datetime.date.today().isoformat()
    results_folder = arguments.results or HERE / "results" / f"{date}-{os.cpu_count()}-cores{'-small' if arguments.small else ''}"
    results = []
    cases = archives.make(WORK / ("small" if arguments.small else "full"), arguments.small, arguments.only)
    chosen = [p for p in programs(arguments.tarnfs, arguments.name) if not arguments.programs or p.name in arguments.programs.split(",")]
    for case in cases:
        print(f"{case.name}: {case.path.stat().st_size / 2**20:.0f} MiB, {case.about}", flush=True)
        # Without an index archivemount decodes from the start for every file: minutes, for what nobody doubts.
        left_out = {"archivemount"} if arguments.small and case.path.suffix != ".tar" else set()
        for program in (program for program in chosen if program.name not in left_out):
            measure(program, case, results, arguments.limit, 1 if arguments.small else 3)
        if case.walk_on_tmpfs:
            on_tmpfs(case, results, arguments.limit)
        if not arguments.no_verify and case.verify:
            wrong = verify(chosen[0], case, arguments.limit)
            results.append((case.name, chosen[0].name, "all SHA-256, both mounts", wrong, "wrong"))
            print(f"  {case.name:16} {chosen[0].name:14} all SHA-256, both mounts: {'WRONG' if wrong else 'equal'}", flush=True)
        report.write(results_folder, results, cases, chosen)
    print(f"written to {results_folder}")


if __name__ == "__main__":
    main()
