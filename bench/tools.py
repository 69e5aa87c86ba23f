#!/usr/bin/env python3
"""tarnfs create, ls -R, extract and compare beside GNU tar, bsdtar and the parallel compressors.

Programs take turns in each round; figures are medians. All read the same archive, which GNU tar has written. Time is
also given as processor time (user and system), which other work on the machine disturbs less.

  bench/tools.py --make DIR                 a tree of 24 000 real files and a few large ones, in DIR/small and DIR/large
  bench/tools.py DIR/small DIR/large        the table
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SUFFIX = {"none": ".tar", "gzip": ".tar.gz", "bzip2": ".tar.bz2", "xz": ".tar.xz", "zstd": ".tar.zst"}
PARALLEL = {"gzip": "pigz", "bzip2": "lbzip2", "xz": "xz -T0", "zstd": "zstd -q -T0"}
OPERATIONS = ["list", "extract", "compare", "create"]
TREE_FILES, TREE_LONGEST = 24_000, 2_000_000
LARGE = [("libraries.bin", 90_000_000), ("text.txt", 100_000_000), ("noise.bin", 20_000_000)]


def make(out):
    """Real files: sources, headers and documentation of this machine; libraries, text and noise as large ones."""
    small, large = os.path.join(out, "small"), os.path.join(out, "large")
    os.makedirs(large)
    roots = [os.path.expanduser("~/.cargo/registry/src"), "/usr/include", "/usr/share/doc", "/usr/share"]
    count, text = 0, open(os.path.join(large, "text.txt"), "wb")
    for folder, folders, names in (entry for root in roots for entry in os.walk(root)):
        folders.sort()
        for path in (os.path.join(folder, name) for name in sorted(names)):
            if count == TREE_FILES or os.path.islink(path) or not os.path.isfile(path):
                continue
            if os.path.getsize(path) > TREE_LONGEST:
                continue
            to = small + path
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(path, to)
            if text.tell() < LARGE[1][1]:
                text.write(open(path, "rb").read())
            count += 1
    text.truncate(LARGE[1][1])
    with open(os.path.join(large, "libraries.bin"), "wb") as libraries:
        for folder, folders, names in os.walk("/usr/lib"):
            folders.sort()
            for path in (os.path.join(folder, name) for name in sorted(names)):
                if ".so" in path and os.path.isfile(path) and libraries.tell() < LARGE[0][1]:
                    libraries.write(open(path, "rb").read())
        libraries.truncate(LARGE[0][1])
    with open(os.path.join(large, "noise.bin"), "wb") as noise:
        noise.write(os.urandom(LARGE[2][1]))


def timed(command, folder, to=None):
    """Seconds, processor seconds and what was printed; fails if the program does."""
    with open(to or os.devnull, "wb") as out, tempfile.TemporaryFile() as said:
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{command}: {process.returncode}: {said.read(2000).decode(errors='replace')}")
    return seconds, usage.ru_utime + usage.ru_stime


class Cell:
    """One operation on one archive on one medium, by all programs."""

    def __init__(self, tarnfs, operation, compression, tree, scratch, is_disk, rounds):
        self.operation, self.tree, self.scratch, self.is_disk, self.rounds = operation, tree, scratch, is_disk, rounds
        self.archive = os.path.join(scratch, "archive" + SUFFIX[compression])
        self.own = os.path.join(scratch, "own" + SUFFIX[compression])
        self.out, self.keeps = os.path.join(scratch, "out"), os.path.join(scratch, "keeps")
        self.parallel = PARALLEL.get(compression)
        through = ["-I" + self.parallel] if self.parallel else []
        index = ["--index-folders=" + self.keeps]
        self.commands = {
            "list": {
                "tarnfs": [tarnfs, "ls", "-R", self.archive] + index,
                "tarnfs, index": [tarnfs, "ls", "-R", self.archive] + index,
                "tar": ["tar", "-t"] + through + ["-f", self.archive],
                "bsdtar": ["bsdtar", "-tf", self.archive],
            },
            "extract": {
                "tarnfs": [tarnfs, "extract", "-C", self.out, self.archive],
                "tarnfs, index": [tarnfs, "extract", "-C", self.out, self.archive] + index,
                "tar": ["tar", "-x"] + through + ["-C", self.out, "-f", self.archive],
                "bsdtar": ["bsdtar", "-x", "-C", self.out, "-f", self.archive],
                **({"compressor alone": self.parallel.split() + ["-d", "-c", self.archive]} if through else {}),
            },
            "compare": {
                "tarnfs": [tarnfs, "compare", self.archive, tree],
                "tarnfs, index": [tarnfs, "compare", self.archive, tree] + index,
                "tar": ["tar", "-d"] + through + ["-f", self.archive],
            },
            "create": {
                "tarnfs": [tarnfs, "create", "--no-index", self.own, "."],
                "tar": ["tar", "-c"] + through + ["-f", self.own, "."],
                "bsdtar": ["bsdtar", "-c"] + (["--use-compress-program=" + self.parallel] if through else [])
                + ["-f", self.own, "."],
            },
        }[operation]
        if operation == "create" and self.parallel:
            plain = os.path.join(scratch, "archive.tar")
            self.commands["compressor alone"] = self.parallel.split() + ["-c", plain]

    def empty(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)

    def make_index(self, tarnfs):
        self.empty(self.keeps)
        timed([tarnfs, "index", self.archive, "--index-folders=" + self.keeps], self.tree)

    def run(self, program, command, is_first):
        if program == "tarnfs":
            self.empty(self.keeps)
        elif program == "tarnfs, index":
            self.make_index(command[0])
        self.empty(self.out)
        if os.path.exists(self.own):
            os.remove(self.own)
        if self.is_disk:
            os.sync()
        alone = self.own if program == "compressor alone" and self.operation == "create" else None
        start = time.monotonic()
        seconds, processor = timed(command, self.tree, alone)
        if self.is_disk and self.operation in ("create", "extract"):
            descriptor = os.open(self.scratch, os.O_RDONLY)
            subprocess.run(["sync", "-f", self.scratch], check=True)
            os.close(descriptor)
            seconds = time.monotonic() - start
        size = os.path.getsize(self.own) if self.operation == "create" else 0
        if is_first and self.operation == "create" and not alone:
            through = ["-I" + self.parallel] if self.parallel else []
            timed(["tar", "-d"] + through + ["-f", self.own], self.tree)
        if is_first and self.operation == "extract" and program != "compressor alone":
            timed(["diff", "-r", self.tree, self.out], self.tree)
        return seconds, processor, size

    def measure(self):
        runs = {program: [] for program in self.commands}
        for number in range(self.rounds):
            for program, command in self.commands.items():
                runs[program].append(self.run(program, command, number == 0))
        return {program: [statistics.median(column) for column in zip(*all_runs)] for program, all_runs in runs.items()}


def cells(options, tree, medium, scratch):
    is_disk = medium == "disk"
    here = os.path.join(scratch, "tree")
    subprocess.run(["cp", "-a", tree, here], check=True)
    rows = []
    plain = os.path.join(scratch, "archive.tar")
    timed(["tar", "-cf", plain, "."], here)
    for compression in options.only or SUFFIX:
        archive = os.path.join(scratch, "archive" + SUFFIX[compression])
        if compression != "none":
            timed(["tar", "-c", "-I" + PARALLEL[compression], "-f", archive, "."], here)
        for operation in options.operations or OPERATIONS:
            cell = Cell(options.tarnfs, operation, compression, here, scratch, is_disk, options.runs)
            found = cell.measure()
            rows.append((os.path.basename(os.path.normpath(tree)), medium, compression, operation, found))
            print(line(rows[-1]), file=sys.stderr, flush=True)
        if compression != "none":
            os.remove(archive)
    return rows


def ratio(own, others, column):
    fastest = min(figures[column] for figures in others.values())
    return f"{fastest / max(own[column], 0.0005):.2f}"


def line(row):
    files, medium, compression, operation, found = row
    # What only undoes a compression lists and extracts nothing.
    others = {name: figures for name, figures in found.items() if not name.startswith("tarnfs")}
    if operation != "create":
        others.pop("compressor alone", None)
    own = found["tarnfs"]
    figure = lambda name: f"{found[name][0]:.3f} / {found[name][1]:.2f}" if name in found else "-"
    columns = [files, medium, compression, operation]
    columns += [figure(name) for name in ("tarnfs", "tarnfs, index", "tar", "bsdtar", "compressor alone")]
    columns += [ratio(own, others, 0), ratio(own, others, 1)]
    return "| " + " | ".join(columns) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", metavar="DIR")
    parser.add_argument("--make", metavar="DIR")
    parser.add_argument("--tarnfs", default=os.path.join(HERE, "..", "target", "release", "tarnfs"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(SUFFIX))
    parser.add_argument("--operations", action="append", choices=OPERATIONS)
    parser.add_argument("--media", action="append", choices=["tmpfs", "disk"])
    parser.add_argument("--disk", default=os.path.join(HERE, "work"), help="a folder on a disk")
    options = parser.parse_args()
    options.tarnfs = os.path.abspath(options.tarnfs)
    if options.make:
        make(options.make)
    print("| files | medium | compression | operation | tarnfs | tarnfs, index | tar | bsdtar | compressor alone "
          "| × faster, real | × faster, CPU |")
    print("| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    os.makedirs(options.disk, exist_ok=True)
    for tree in (os.path.abspath(tree) for tree in options.trees):
        for medium in options.media or ["tmpfs", "disk"]:
            folder = "/dev/shm" if medium == "tmpfs" else options.disk
            with tempfile.TemporaryDirectory(prefix="tools-", dir=folder) as scratch:
                for row in cells(options, tree, medium, scratch):
                    print(line(row), flush=True)


if __name__ == "__main__":
    main()
