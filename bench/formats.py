#!/usr/bin/env python3
"""Archives of other formats than tar: tarnfs beside the programs for each format, on the same files.

    bench/formats.py            1.75 GB of real files, 200 000 small ones, one large member; about half an hour on two cores
    bench/formats.py --small    the same on a small scale
    bench/formats.py --only zip-real,zip-many

Programs that are not installed are left out, and so are archives whose tool is not there. Results go to bench/results/ as those of run.py do.
"""

import argparse
import datetime
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile

import archives
import report
import run

# The command that makes an archive of the folder it runs in, by suffix.
TOOLS = {
    "zip": ["zip", "-q", "-r", "-y", "-6"],
    "7z": ["7z", "a", "-bd", "-bso0", "-snl", "-mx=5", "-mmt=2"],
    "squashfs-zstd": ["mksquashfs", ".", None, "-comp", "zstd", "-no-progress", "-quiet"],
    "squashfs-xz": ["mksquashfs", ".", None, "-comp", "xz", "-no-progress", "-quiet"],
    "squashfs-gzip": ["mksquashfs", ".", None, "-comp", "gzip", "-no-progress", "-quiet"],
}


class Kernel(run.Program):
    """The kernel's own squashfs on a loop device: the limit."""

    def memory(self, at, field):
        return None

    def cpu(self, at):
        return 0


def programs(tarnfs, suffix):
    found = [program for program in run.programs(tarnfs, "tarnfs") if program.name != "archivemount"]
    for name, command, suffixes in (
        ("fuse-zip", ["fuse-zip", "-r"], ("zip",)),
        ("mount-zip", ["mount-zip"], ("zip",)),
        ("squashfuse", ["squashfuse"], ("squashfs",)),
    ):
        if suffix.startswith(suffixes) and shutil.which(name):
            found.append(run.Program(name, command))
    if suffix.startswith("squashfs"):
        found.append(Kernel("kernel", ["mount", "-t", "squashfs", "-o", "loop,ro"]))
    return found


def pack(suffix, folder, path):
    tool = TOOLS[suffix]
    part = path.with_name(f"part-{path.name}")
    part.unlink(missing_ok=True)
    if None in tool:
        command = [str(part) if argument is None else argument for argument in tool]
    else:
        command = [*tool, str(part), "."]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    part.rename(path)


def trees(folder, small):
    """Name of each tree, what it is, how it is made, and what of a Case is known of it."""
    real = archives.make(folder, small, "real")[0]

    def unpack(at):
        subprocess.run(["tar", "-xf", real.path, "-C", at], check=True)

    def many(at):
        rng = random.Random(3)
        for number in range(2_000 if small else 200_000):
            name = at / f"{number // 1000:04d}" / f"{number:06d}.txt"
            name.parent.mkdir(exist_ok=True)
            name.write_bytes(b"%d " % number * rng.randrange(10, 200))

    def large(at):
        with tarfile.open(real.path) as tar, open(at / "large", "wb") as out:
            left = (32 if small else 1024) << 20
            for member in tar:
                if member.isreg() and left > 0:
                    bytes_ = tar.extractfile(member).read(left)
                    left -= len(bytes_)
                    out.write(bytes_)

    yield "real", real.about, unpack, dict(sample=real.sample, md5=real.md5, large=real.large, large_size=real.large_size)
    yield "many", "small files", many, {}
    yield "large", "one large file", large, dict(large="large", large_size=(32 if small else 1024) << 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", help="archives (zip-real, 7z-real, squashfs-zstd-real, zip-many, ...), with commas between them")
    parser.add_argument("--tarnfs", default=str(run.HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--limit", type=float, help="seconds that one step may take (400; small: 20)")
    parser.add_argument("--results", type=pathlib.Path)
    arguments = parser.parse_args()
    limit = arguments.limit or (20 if arguments.small else 400)
    if os.geteuid() != 0:
        sys.exit("bench/formats.py: needs root, for page caches and mounts")
    os.environ["XDG_CACHE_HOME"] = str(run.WORK / "cache")
    folder = run.WORK / ("small" if arguments.small else "full")
    date = datetime.date.today().isoformat()
    results_folder = arguments.results or run.HERE / "results" / f"{date}-{os.cpu_count()}-cores-formats{'-small' if arguments.small else ''}"
    results, cases, seen = [], [], {}
    for tree, about, make, more in trees(folder, arguments.small):
        at = folder / f"tree-{tree}"
        for suffix, tool in TOOLS.items():
            name = f"{suffix}-{tree}"
            if arguments.only and name not in arguments.only.split(",") or not shutil.which(tool[0]):
                continue
            path = folder / f"{tree}.{suffix.replace('squashfs-', '')}.{suffix.split('-')[0]}"
            if not path.exists():
                if not at.exists():
                    at.mkdir(parents=True)
                    make(at)
                pack(suffix, at, path)
            case = archives.Case(name, about, path, **more)
            cases.append(case)
            print(f"{name}: {path.stat().st_size / 2**20:.0f} MiB, {about}", flush=True)
            for program in programs(arguments.tarnfs, suffix):
                seen[program.name] = program
                run.measure(program, case, results, limit, 1 if arguments.small else 3)
            report.write(results_folder, results, cases, list(seen.values()))
        shutil.rmtree(at, ignore_errors=True)
    print(f"written to {results_folder}")


if __name__ == "__main__":
    main()
