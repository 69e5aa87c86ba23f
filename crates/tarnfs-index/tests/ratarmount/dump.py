"""Opens an archive with ratarmount's own library and prints its tree, one JSON object for each name.

Arguments: "write" or "use", the archive, its sidecar, and names of boolean options. With "use" the sidecar must do: none is made.
"""

import json
import stat
import sys
import zlib

from ratarmountcore.mountsource.compositing.versioning import FileVersionLayer
from ratarmountcore.mountsource.formats.tar import SQLiteIndexedTar

doing, archive, sidecar, *options = sys.argv[1:]
options = {name: True for name in options}
if options.pop("small-spacing", False):
    options["gzipSeekPointSpacing"] = 1 << 20
if options.pop("indexed_gzip", False):
    options["prioritizedBackends"] = ["indexed_gzip"]
kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink", stat.S_IFCHR: "device", stat.S_IFIFO: "fifo", 0: "device"}


def walk(tree, path):
    for name in sorted(tree.list(path) or {}):
        full = path + "/" + name
        info = tree.lookup(full)
        if info is None:
            continue
        kind = kinds[stat.S_IFMT(info.mode)]
        content = None
        if kind == "file":
            with source.open(info) as file:
                content = file.read()
            assert len(content) == info.size, full
        xattrs = {key: zlib.crc32(tree.get_xattr(info, key)) for key in tree.list_xattr(info)}
        print(json.dumps([full, kind, stat.S_IMODE(info.mode), info.uid, info.gid, info.size, info.mtime, info.linkname if kind == "symlink" else "",
                          zlib.crc32(content) if content else None, xattrs]))
        if kind == "folder":
            walk(tree, full)


class Unversioned:
    """FileVersionLayer marks what it returns; the source below wants it as it was."""

    def __init__(self, below):
        self.layer = FileVersionLayer(below)
        self.list = below.list

    def lookup(self, path):
        info = self.layer.lookup(path)
        if info is not None:
            info.userdata.pop()
        return info

    def list_xattr(self, info):
        return source.list_xattr(info)

    def get_xattr(self, info, key):
        return source.get_xattr(info, key)


with SQLiteIndexedTar(archive, writeIndex=doing == "write", indexFilePath=sidecar, indexMinimumFileCount=0, readOnlyIndex=doing == "use", **options) as source:
    walk(Unversioned(source), "")
