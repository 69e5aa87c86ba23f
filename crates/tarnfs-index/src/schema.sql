-- The index of one archive, schema 1.
--
-- Rows of a folder lie together: nodes are numbered by (folder, name), so the children of a folder are one range of
-- nodes in the order of their names (compared as bytes). Node 1 is the root. A folder's number is less than those of what is in
-- it. The bytes of an index are the same for the same archive and options.
-- A file is an index only if it has exactly these tables, PRAGMA application_id 0x7461726e and PRAGMA user_version 1.

-- What is known of the whole: key, value.
CREATE TABLE summary (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- What was found broken, for people: at which byte of the innermost stream, what. (What must not be served is in damage.)
CREATE TABLE notes (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, what TEXT NOT NULL);

-- What many entries share; frequent ones have small numbers, since SQLite stores 0 and 1 in no bytes. 0 is that of folders that no entry names.
-- stream: what header and body count in: 0 the innermost stream of the archive itself, else the number of a nested stream (in layers).
-- type: the S_IFMT bits of st_mode, 0 for a hard link; mode: 0o7777; body: bytes from an entry's first header to its content.
-- more: bits that say in which of the tables below each entry of the class has a row: 1 links, 2 devices, 4 times, 8 extents, 16 xattrs,
-- 32 link_counts (a missing row there says 1). 64: its mtime counts nanoseconds. 128: a header that holds for all entries behind it (pax type g)
-- says something of it, so its own headers do not tell all. 256: its row in extents is a list of pieces: those of a file's
-- content, or of a symbolic link's target, which has no row in links then.
CREATE TABLE classes (
    class INTEGER PRIMARY KEY,
    type INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    user BLOB NOT NULL,
    "group" BLOB NOT NULL,
    body INTEGER NOT NULL,
    more INTEGER NOT NULL,
    stream INTEGER NOT NULL
);

-- One row for each visible name; and before it, where something else shows in place of a folder with something in it, one of the
-- same name for that folder. The folder does not show, unless what follows is a hard link that leads nowhere. A row's node is its
-- rowid, from 1 on without gaps: a column for it would cost a byte in each row.
-- header: where its first header begins in the innermost stream, in units of header_unit bytes (a key of summary: 512 if all headers lie on
-- multiples of 512, else 1), -1 for a folder that no entry names; size: in bytes, of a symbolic link that of its target; mtime: seconds since
-- 1970, or nanoseconds if its class says so. A hard link (type 0 of its class) always has a row in hard_links; header is that of its own, and
-- all else is 0: it is what the node that it shares is.
CREATE TABLE entries (
    name BLOB NOT NULL,
    class INTEGER NOT NULL,
    header INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL
);

-- One row for each folder: the folder that it is in, the range of its children, and how many of them are folders.
CREATE TABLE folders (
    node INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    subfolders INTEGER NOT NULL
);

-- Entries that another one of the same path has replaced, in the order (folder, name), those of one name as they came. Columns as
-- in entries; their nodes are behind the last one of entries, so the tables below serve both. header is -1 of a folder that no entry
-- names. Of a folder, what is in it is in the row of its path in entries that is a folder.
CREATE TABLE replaced (
    node INTEGER PRIMARY KEY,
    folder INTEGER NOT NULL,
    name BLOB NOT NULL,
    class INTEGER NOT NULL,
    header INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL
);

CREATE TABLE links (node INTEGER PRIMARY KEY, target BLOB NOT NULL);
-- shared: the node that the link is a name of; 0 if there is none, and then the name is not shown.
CREATE TABLE hard_links (node INTEGER PRIMARY KEY, shared INTEGER NOT NULL);
CREATE TABLE link_counts (node INTEGER PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE devices (node INTEGER PRIMARY KEY, major INTEGER NOT NULL, minor INTEGER NOT NULL);
-- Seconds since 1970 and nanoseconds behind them, 0 to 999 999 999; NULL where the archive does not say. mtime_ns: only of an mtime that
-- is not whole seconds and, in nanoseconds, does not fit in 64 bits (before 1677, after 2262).
CREATE TABLE times (
    node INTEGER PRIMARY KEY,
    atime INTEGER,
    atime_ns INTEGER,
    ctime INTEGER,
    ctime_ns INTEGER,
    mtime_ns INTEGER
);
-- map: pairs (bytes of hole before the extent, length of the extent), each number as unsigned LEB128. Of a class with bit 256, pieces, in such numbers:
-- 4 times the number of a coder, or 0 for stored bytes, plus 1 if a CRC-32 follows, plus 2 if the piece is a part of what the coder gives;
-- bytes of hole before the piece; its length; where it is stored, as the distance from the end of the piece before it, or from the header, zigzag; stored bytes, if
-- there is a coder; if it is a part: bytes that the coder gives (at most, if it decodes blocks), and of these the ones before the piece; CRC-32 of the piece (4 bytes, little-endian).
CREATE TABLE extents (node INTEGER PRIMARY KEY, map BLOB NOT NULL);
-- How stored bytes become a file's. steps: strings, each with its length as unsigned LEB128 before it: the format of the header that stands before the stored
-- bytes, empty if there is none, then of each step the name of a codec and its properties. Where a step has more, an empty name follows, and a string of numbers:
-- twice the count of its inputs, plus 1 if the bytes that come of it are told; these; of each input 0, offset and length of stored bytes, or the step that gives it, from 1.
CREATE TABLE coders (id INTEGER PRIMARY KEY, steps BLOB NOT NULL);
CREATE TABLE xattr_names (id INTEGER PRIMARY KEY, name BLOB NOT NULL);
CREATE TABLE xattrs (node INTEGER NOT NULL, id INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (node, id)) WITHOUT ROWID;

-- Layers of compression around the archive, outermost first, from 0 on: codec, and the length of what comes out in bytes. From 1024 on: nested
-- streams, compressed files in the archive whose content is shown; input: the stream that it lies in (0 the innermost of the archive, else the number of
-- another nested one, which is less), start and length: where in it, in bytes. All three are NULL of layers around the archive.
CREATE TABLE layers (
    layer INTEGER PRIMARY KEY,
    codec TEXT NOT NULL,
    decoded_length INTEGER NOT NULL,
    input INTEGER,
    start INTEGER,
    length INTEGER
);
-- Pieces of nested streams whose codec is "pieces": as those of extents, offsets from the start of the layer on.
CREATE TABLE nested_pieces (
    layer INTEGER PRIMARY KEY,
    map BLOB NOT NULL
);
-- Where decoding of a layer can start. decoded: byte of its output; length: decoded bytes to the next one; compressed_bit: in bits of its input;
-- state: what the codec needs to start there (its module says in which form), a row of states, 0 for none; checksums: of each 128 KiB, little-endian, the lower half of
-- XXH3-64 of the bytes, exclusive or that of their place in the decoded stream (8 bytes, little-endian).
CREATE TABLE chunks (
    layer INTEGER NOT NULL,
    decoded INTEGER NOT NULL,
    length INTEGER NOT NULL,
    compressed_bit INTEGER NOT NULL,
    state INTEGER NOT NULL,
    checksums BLOB NOT NULL,
    PRIMARY KEY (layer, decoded)
) WITHOUT ROWID;
CREATE TABLE states (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
-- Bytes that must not be served, from first to before end: of a layer's output (layer 0 is the outermost codec), what was found, at which byte of
-- its input. Ranges of one layer do not overlap.
CREATE TABLE damage (
    layer INTEGER NOT NULL,
    first INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    compressed INTEGER NOT NULL,
    what TEXT NOT NULL,
    PRIMARY KEY (layer, first)
) WITHOUT ROWID;
