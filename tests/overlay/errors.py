"""Every error that the manual pages name for calls that change names and attributes, as root and as another user.

    errors.py FOLDER         makes each case in a folder of its own in FOLDER, unless it is there, and prints what is otherwise
    errors.py FOLDER make    only makes them

Not here, each for its reason:
  EFAULT, EBADF of a descriptor that is none, ENOMEM, EINTR, EMFILE, ENFILE, EOVERFLOW: the kernel says them before it asks a file system
  EIO, ENOSPC, EDQUOT: `a_full_disk_is_an_error_and_loses_nothing`, and what is below that cannot be read
  EROFS: `tests/mounting`; EBUSY: of mount points, which the kernel looks after
  EMLINK, EFBIG: of numbers that differ from one file system to another
  EOPNOTSUPP, ENODEV, EWOULDBLOCK: of locks, leases and devices, which are not of the file system
"""

import ctypes
import errno
import os
import signal
import socket
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
HERE = -100
LONG = "n" * 256
LONG_PATH = "d/" * 2100 + "f"
OTHER = 1000
NOREPLACE, EXCHANGE = 1, 2


def call(name, *arguments):
    converted = [argument.encode() if isinstance(argument, str) else argument for argument in arguments]
    if getattr(LIBC, name)(*converted) < 0:
        raise OSError(ctypes.get_errno(), name)


def renameat2(old, new, flags):
    call("renameat2", HERE, old, HERE, new, flags)


def utimensat(path, times, flags=0):
    array = None if times is None else (ctypes.c_long * 4)(*times)
    call("utimensat", HERE, path, array, flags)


def truncate(path, length):
    call("truncate", path, ctypes.c_long(length))


def opened(path, flags, mode=0o644):
    os.close(os.open(path, flags, mode))


def running(do):
    """While the program runs."""
    child = os.fork()
    if child == 0:
        os.execv("./program", ["sleep", "30"])
    try:
        end = time.monotonic() + 20
        while os.readlink(f"/proc/{child}/exe") != os.path.realpath("program") and time.monotonic() < end:
            time.sleep(0.01)
        do()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def ftruncate(path, flags, length):
    descriptor = os.open(path, flags)
    try:
        call("ftruncate", descriptor, ctypes.c_long(length))
    finally:
        os.close(descriptor)


def make_socket():
    """No tar has them."""
    if not os.path.lexists("socket"):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")


def enter(number):
    """Where a case finds what it needs."""
    folder = f"case{number}"
    is_there = os.path.isdir(folder)
    if not is_there:
        os.mkdir(folder)
    os.chdir(folder)
    if is_there:
        make_socket()
    else:
        make()


def make():
    """What each case finds."""
    for folder, mode in [("dir", 0o755), ("full", 0o755), ("locked", 0o700), ("own", 0o755), ("sticky", 0o1777), ("shared", 0o777), ("own/d", 0o755), ("own/e", 0o755)]:
        os.mkdir(folder)
        os.chmod(folder, mode)
    for file, mode in [("file", 0o644), ("full/f", 0o644), ("locked/f", 0o644), ("own/f", 0o644), ("own/g", 0o644), ("sticky/f", 0o666), ("shared/f", 0o644), ("private", 0o600)]:
        with open(file, "w") as made:
            made.write("text\n")
        os.chmod(file, mode)
    os.mkdir("sticky/d")
    os.mkdir("shared/d")
    for own in ["own", "own/f", "own/g", "own/d", "own/e"]:
        os.chown(own, OTHER, OTHER)
    os.symlink("file", "link")
    os.symlink("nothing", "dangling")
    os.symlink("loop", "loop")
    os.mkfifo("fifo")
    make_socket()
    with open("/bin/sleep", "rb") as program, open("program", "wb") as copy:
        copy.write(program.read())
    os.chmod("program", 0o755)


def paths(name, do):
    """What any call says of a path that leads nowhere. `do` gets a path."""
    return [
        (name, "ENOENT", "root", lambda: do("nowhere/f")),
        (name, "ENOENT", "root", lambda: do("dangling/f")),
        (name, "ENOENT", "root", lambda: do("")),
        (name, "ENOTDIR", "root", lambda: do("file/f")),
        (name, "ELOOP", "root", lambda: do("loop/f")),
        (name, "ENAMETOOLONG", "root", lambda: do(LONG)),
        (name, "ENAMETOOLONG", "root", lambda: do(f"dir/{LONG}")),
        (name, "ENAMETOOLONG", "root", lambda: do(LONG_PATH)),
        (name, "EACCES", "other", lambda: do("locked/f")),
    ]


NEW = {
    "link": lambda path: os.link("file", path),
    "mkdir": os.mkdir,
    "mkfifo": os.mkfifo,
    "mknod": lambda path: os.mknod(path, 0o100644),
    "symlink": lambda path: os.symlink("file", path),
    "open O_CREAT": lambda path: opened(path, os.O_CREAT | os.O_WRONLY),
    "rename to": lambda path: os.rename("own/f", path),
}
OLD = {
    "chmod": lambda path: os.chmod(path, 0o600),
    "chown": lambda path: os.chown(path, 0, 0),
    "lchown": lambda path: os.lchown(path, 0, 0),
    "link from": lambda path: os.link(path, "own/new"),
    "open": lambda path: opened(path, os.O_RDONLY),
    "rename": lambda path: os.rename(path, "own/new"),
    "rmdir": os.rmdir,
    "truncate": lambda path: truncate(path, 1),
    "unlink": os.unlink,
    "utimensat": lambda path: utimensat(path, None),
}
ROWS = [row for name, do in {**NEW, **OLD}.items() for row in paths(name, do)]
# What is not there, by its last name.
ROWS += [(name, "ENOENT", "root", lambda do=do: do("nothing")) for name, do in OLD.items()]
# A link that leads to itself or to nothing, where links are followed.
for name in ["chmod", "chown", "open", "truncate", "utimensat"]:
    ROWS += [(name, "ELOOP", "root", lambda name=name: OLD[name]("loop")), (name, "ENOENT", "root", lambda name=name: OLD[name]("dangling"))]
# A folder in which one may not write.
ROWS += [(name, "EACCES", "other", lambda do=do: do("dir/new")) for name, do in NEW.items() if name not in ("link",)]
ROWS += [("link", "EACCES", "other", lambda: os.link("own/f", "dir/new"))]
# Something has the name.
for name in ["link", "mkdir", "mkfifo", "mknod", "symlink"]:
    ROWS += [(name, "EEXIST", "root", lambda name=name, path=path: NEW[name](path)) for path in ["file", "dir", "link", "dangling", "loop", "fifo"]]
ROWS += [
    # chmod, chown
    ("chmod", "EPERM", "other", lambda: os.chmod("file", 0o600)),
    ("chmod", None, "other", lambda: os.chmod("own/f", 0o600)),
    ("chown", "EPERM", "other", lambda: os.chown("own/f", 0, -1)),
    ("chown", "EPERM", "other", lambda: os.chown("own/f", -1, 0)),
    ("chown", "EPERM", "other", lambda: os.chown("file", OTHER, OTHER)),
    ("chown", None, "other", lambda: os.chown("own/f", OTHER, OTHER)),
    ("lchown", None, "root", lambda: os.lchown("dangling", 3, 4)),
    ("fchownat", "EINVAL", "root", lambda: call("fchownat", HERE, "file", 0, 0, 1 << 20)),
    ("fchmodat", "ENOTDIR", "root", lambda: os.chmod("f", 0o600, dir_fd=os.open("file", os.O_RDONLY))),
    # link
    ("link", "EPERM", "root", lambda: os.link("dir", "new")),
    ("link", "EPERM", "other", lambda: os.link("own/d", "own/new")),
    ("link", "EXDEV", "root", lambda: os.link("/proc/self/status", "new", follow_symlinks=False)),
    ("link", None, "root", lambda: os.link("dangling", "new", follow_symlinks=False)),
    ("link", "EINVAL", "root", lambda: call("linkat", HERE, "file", HERE, "new", 1 << 20)),
    # mkdir, mkfifo, mknod
    ("mkdir", "EEXIST", "root", lambda: os.mkdir(".")),
    ("mkdir", "EEXIST", "root", lambda: os.mkdir("/")),
    ("mknod", "EPERM", "other", lambda: os.mknod("own/new", 0o020644, os.makedev(1, 3))),
    ("mknod", "EPERM", "other", lambda: os.mknod("own/new", 0o060644, os.makedev(1, 3))),
    ("mknod", None, "root", lambda: os.mknod("new", 0o020644, os.makedev(1, 3))),
    ("mknod", None, "other", lambda: os.mknod("own/new", 0o010644)),
    ("mknod", "EINVAL", "root", lambda: call("mknod", "new", 0o120644, 0)),
    ("mknod", "EPERM", "root", lambda: call("mknod", "new", 0o040644, 0)),
    # open
    ("open", "EACCES", "other", lambda: opened("private", os.O_RDONLY)),
    ("open", "EACCES", "other", lambda: opened("file", os.O_WRONLY)),
    ("open", "EACCES", "other", lambda: opened("file", os.O_RDONLY | os.O_TRUNC)),
    ("open", "EACCES", "other", lambda: opened("own", os.O_TMPFILE | os.O_RDWR) or opened("dir", os.O_TMPFILE | os.O_RDWR)),
    ("open", "EEXIST", "root", lambda: opened("file", os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    ("open", "EEXIST", "root", lambda: opened("dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    ("open", "EISDIR", "root", lambda: opened("dir", os.O_WRONLY)),
    ("open", "EISDIR", "root", lambda: opened("dir", os.O_RDWR)),
    ("open", "EISDIR", "root", lambda: opened("dir", os.O_CREAT | os.O_RDONLY)),
    ("open", "EISDIR", "root", lambda: opened("new/", os.O_CREAT | os.O_WRONLY)),
    ("open", "ELOOP", "root", lambda: opened("link", os.O_NOFOLLOW | os.O_RDONLY)),
    ("open", "ENOTDIR", "root", lambda: opened("file", os.O_DIRECTORY | os.O_RDONLY)),
    ("open", "ENOTDIR", "root", lambda: opened("file", os.O_TMPFILE | os.O_RDWR)),
    ("open", "EINVAL", "root", lambda: opened("dir", os.O_TMPFILE | os.O_RDONLY)),
    ("open", "ENXIO", "root", lambda: opened("fifo", os.O_WRONLY | os.O_NONBLOCK)),
    ("open", "ENXIO", "root", lambda: opened("socket", os.O_RDONLY)),
    ("open", "EPERM", "other", lambda: opened("file", os.O_RDONLY | os.O_NOATIME)),
    ("open", "ETXTBSY", "root", lambda: running(lambda: opened("program", os.O_WRONLY))),
    ("open", None, "root", lambda: opened("link", os.O_CREAT | os.O_WRONLY)),
    # rename
    ("rename", "EACCES", "other", lambda: os.rename("dir/new", "own/new") if os.path.exists("dir/new") else os.rename("file", "own/new")),
    ("rename", "EACCES", "other", lambda: os.rename("shared/d", "own/new")),
    ("rename", "EINVAL", "root", lambda: os.rename("own", "own/d/new")),
    ("rename", "EINVAL", "root", lambda: os.rename("own", "own/new")),
    ("rename", "EINVAL", "root", lambda: renameat2("own/f", "own/g", NOREPLACE | EXCHANGE)),
    ("rename", "EINVAL", "root", lambda: renameat2("own/f", "own/g", 1 << 10)),
    ("rename", "EINVAL", "root", lambda: renameat2("own", "own/d", EXCHANGE)),
    ("rename", "EBUSY", "root", lambda: os.rename("own/..", "new")),
    ("rename", "EBUSY", "root", lambda: os.rename(".", "new")),
    ("rename", "EEXIST", "root", lambda: renameat2("own/f", "own/g", NOREPLACE)),
    ("rename", "EEXIST", "root", lambda: renameat2("own/f", "dangling", NOREPLACE)),
    ("rename", "EISDIR", "root", lambda: os.rename("file", "dir")),
    ("rename", "ENOENT", "root", lambda: renameat2("own/f", "nothing", EXCHANGE)),
    ("rename", "ENOTDIR", "root", lambda: os.rename("dir", "file")),
    ("rename", "ENOTDIR", "root", lambda: os.rename("file/", "new")),
    ("rename", "ENOTEMPTY", "root", lambda: os.rename("dir", "full")),
    ("rename", "ENOTEMPTY", "root", lambda: os.rename("own/d", "own")),
    ("rename", "EPERM", "other", lambda: os.rename("sticky/f", "sticky/new")),
    ("rename", "EPERM", "other", lambda: os.rename("own/f", "sticky/f")),
    ("rename", "EXDEV", "root", lambda: os.rename("file", "/proc/self/new")),
    ("rename", None, "root", lambda: os.rename("own/d", "own/e")),
    ("rename", None, "root", lambda: renameat2("own/f", "dir", EXCHANGE)),
    ("rename", None, "other", lambda: os.rename("shared/f", "own/new")),
    # rmdir
    ("rmdir", "EACCES", "other", lambda: os.rmdir("dir")),
    ("rmdir", "EINVAL", "root", lambda: os.rmdir("dir/.")),
    ("rmdir", "ENOTEMPTY", "root", lambda: os.rmdir("own/d/..")),
    ("rmdir", "ENOTEMPTY", "root", lambda: os.rmdir("full")),
    ("rmdir", "ENOTDIR", "root", lambda: os.rmdir("file")),
    ("rmdir", "ENOTDIR", "root", lambda: os.rmdir("link")),
    ("rmdir", "ENOTDIR", "root", lambda: os.rmdir("fifo")),
    ("rmdir", "EPERM", "other", lambda: os.rmdir("sticky/d")),
    ("rmdir", None, "other", lambda: os.rmdir("own/d")),
    # symlink
    ("symlink", "ENOENT", "root", lambda: os.symlink("", "new")),
    ("symlink", "ENAMETOOLONG", "root", lambda: os.symlink("t" * 4096, "new")),
    ("symlink", None, "root", lambda: os.symlink("t" * 4000, "new")),
    # truncate
    ("truncate", "EACCES", "other", lambda: truncate("file", 1)),
    ("truncate", "EINVAL", "root", lambda: truncate("file", -1)),
    ("truncate", "EINVAL", "root", lambda: truncate("fifo", 1)),
    ("truncate", "EISDIR", "root", lambda: truncate("dir", 1)),
    ("truncate", "ETXTBSY", "root", lambda: running(lambda: truncate("program", 1))),
    ("ftruncate", "EINVAL", "root", lambda: ftruncate("file", os.O_RDONLY, 1)),
    ("ftruncate", "EINVAL", "root", lambda: ftruncate("file", os.O_RDWR, -1)),
    ("ftruncate", None, "other", lambda: ftruncate("own/f", os.O_RDWR, 100_000)),
    # unlink
    ("unlink", "EACCES", "other", lambda: os.unlink("full/f")),
    ("unlink", "EISDIR", "root", lambda: os.unlink("dir")),
    ("unlink", "ENOTDIR", "root", lambda: os.unlink("file/")),
    ("unlink", "EPERM", "other", lambda: os.unlink("sticky/f")),
    ("unlink", None, "other", lambda: os.unlink("shared/f")),
    ("unlinkat", "EINVAL", "root", lambda: call("unlinkat", HERE, "file", 1 << 20)),
    # utimensat
    ("utimensat", "EACCES", "other", lambda: utimensat("file", None)),
    ("utimensat", None, "other", lambda: utimensat("sticky/f", None)),
    ("utimensat", "EPERM", "other", lambda: utimensat("sticky/f", (1, 0, 1, 0))),
    ("utimensat", "EPERM", "other", lambda: utimensat("file", (1, 0, 1, 0))),
    ("utimensat", "EINVAL", "root", lambda: utimensat("file", (1, 10**9, 1, 0))),
    ("utimensat", "EINVAL", "root", lambda: utimensat("file", (1, 0, 1, 0), 1 << 20)),
    ("utimensat", None, "other", lambda: utimensat("own/f", (-5, 7, 1, 999_999_999))),
]


def one(number, row):
    """What comes of it, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.umask(0o022)
        enter(number)
        if row[2] == "other":
            os.setgroups([])
            os.setresgid(OTHER, OTHER, OTHER)
            os.setresuid(OTHER, OTHER, OTHER)
        try:
            row[3]()
            said = "None"
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error.errno))
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 100).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return said


def main():
    os.chdir(sys.argv[1])
    if sys.argv[2:] == ["make"]:
        os.umask(0o022)
        for number in range(len(ROWS)):
            enter(number)
            os.chdir("..")
        return
    wrong = 0
    for number, row in enumerate(ROWS):
        said = one(number, row)
        if said != str(row[1]):
            wrong += 1
            print(f"case {number}: {row[0]} as {row[2]}: {said}, not {row[1]}")
    print(f"{len(ROWS)} cases, {wrong} of them otherwise")
    sys.exit(wrong > 0)


main()
