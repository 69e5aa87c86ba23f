"""The archives of the benchmark, made once and kept in bench/work."""

import dataclasses
import hashlib
import io
import os
import pathlib
import random
import subprocess
import tarfile


@dataclasses.dataclass
class Case:
    """One archive, and what is measured on it."""

    name: str
    about: str
    path: pathlib.Path
    sample: list = dataclasses.field(default_factory=list)
    md5: dict = dataclasses.field(default_factory=dict)
    large: str = ""
    large_size: int = 0
    walk_on_tmpfs: bool = False
    verify: bool = False
    plain: pathlib.Path = None

    def sha256(self):
        """A file for `sha256sum -c` with the sum of every file, from what tar extracts."""
        sums = self.plain.with_suffix(".sha256")
        if not sums.exists():
            part = sums.with_suffix(".part")
            with tarfile.open(self.plain) as tar, open(part, "wb") as out:
                for member in tar:
                    if member.isreg() and "\n" not in member.name and "\\" not in member.name:
                        digest = hashlib.file_digest(tar.extractfile(member), "sha256").hexdigest()
                        out.write(digest.encode() + b"  " + os.fsencode(member.name) + b"\n")
            part.rename(sums)
        return sums


def into_page_cache(path):
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def drop_cache(path):
    """Forgets what the kernel has cached of one file."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def shell(script, folder):
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, check=True)


def empty_files(path, folders, files, size):
    """Folders of files of one size, as a tar without a tree on disk."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        rng = random.Random(1)
        for folder in range(folders):
            info = tarfile.TarInfo(f"{folder:05d}")
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, 1_600_000_000
            tar.addfile(info)
            for file in range(files):
                info = tarfile.TarInfo(f"{folder:05d}/{file:05d}")
                info.mode, info.mtime, info.size = 0o644, 1_600_000_000 + file, size
                tar.addfile(info, io.BytesIO(rng.randbytes(size)) if size else None)


def real_files(path, limit):
    """A tar of this system's own files up to `limit` bytes: programs, libraries, documentation, sources."""
    roots = [root for root in ("usr/share", "usr/lib", "usr/include", "usr/bin", "usr/local", "root/.cargo/registry/src", "root/.rustup") if os.path.isdir("/" + root)]
    listing = subprocess.run(["find", *roots, "-xdev", "(", "-type", "f", "-o", "-type", "l", "-o", "-type", "d", ")", "-printf", "%s %p\\0"], cwd="/", stdout=subprocess.PIPE, check=True).stdout
    total, chosen = 0, []
    for item in listing.split(b"\0")[:-1]:
        size, name = item.split(b" ", 1)
        if b"\n" in name:
            continue
        total += int(size) + 1024
        if total > limit:
            break
        chosen.append(name)
    subprocess.run(["tar", "--format=gnu", "--no-recursion", "--null", "-T", "-", "-cf", str(path)], cwd="/", input=b"\0".join(chosen), check=True)


COMPRESSIONS = {
    "gz": "gzip -6 -c",
    "bz2": "lbzip2 -9 -c",
    "xz": "xz -3 -T2 --block-size=4MiB -c",
    "zst": "pzstd -q -3 -c",
    "lz4": "lz4 -q -1 -c",
}


def make(folder, small, only):
    folder.mkdir(parents=True, exist_ok=True)
    wanted = only.split(",") if only else None
    cases = []

    def case(name, about, make_it, **more):
        if wanted and name not in wanted:
            return
        path = folder / f"{name}.tar"
        for suffix in COMPRESSIONS:
            if name.endswith(f"-{suffix}"):
                path = folder / f"{name}.tar.{suffix}"
        if not path.exists():
            print(f"making {path.name}", flush=True)
            part = path.with_name("part-" + path.name)
            make_it(part)
            part.rename(path)
        cases.append(Case(name, about, path, **more))

    folders, files = (100, 100) if small else (1000, 1000)
    case("empty", f"{folders} folders of {files} empty files", lambda path: empty_files(path, folders, files, 0), walk_on_tmpfs=True)
    folders, files = (10, 10) if small else (10, 1000)
    case("64k", f"{folders} folders of {files} files of 64 KiB", lambda path: empty_files(path, folders, files, 65536))

    plain = folder / "real.tar"
    if not wanted or any(name.startswith("real") for name in wanted):
        if not plain.exists():
            print("making real.tar", flush=True)
            part = plain.with_name("part-real.tar")
            real_files(part, 40e6 if small else 1.75e9)
            part.rename(plain)
        with tarfile.open(plain) as tar:
            members = [member for member in tar if member.isreg() and member.size > 0 and member.name.isprintable() and "\\" not in member.name]
            rng = random.Random(7)
            sample = rng.sample(members, min(len(members), 50 if small else 1000))
            md5 = {member.name: hashlib.file_digest(tar.extractfile(member), "md5").hexdigest().encode() for member in sample}
            largest = max(members, key=lambda member: member.size)
        more = dict(sample=[member.name for member in sample], md5=md5, verify=True, plain=plain, large=largest.name, large_size=largest.size)
        case("real", "files of a real system", lambda path: None, **more)
        for suffix, command in COMPRESSIONS.items():
            case(f"real-{suffix}", command, lambda path, command=command: shell(f"{command} < real.tar > {path.name}", folder), **more)

    def bundle(path):
        shell(f"tar -C /usr/share/doc -cf {path.name} --exclude='*.gz' .", folder)

    case("bundle", "a bundle of small text files", bundle)

    size = 32 if small else 1024

    def large(path):
        shell(f"mkdir -p large.d; head -c {size}M /dev/urandom > large.d/large; tar -C large.d -cf {path.name} large; rm -r large.d", folder)

    case("large", f"one file of {size} MiB", large, large="large", large_size=size << 20)
    return cases
