-- What was changed over an archive: names, attributes, whiteouts, links and renames. The contents of files are beside it.
-- doc/overlay-format.md says what each value means.

CREATE TABLE overlay (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE nodes (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      INTEGER NOT NULL,
    mode      INTEGER NOT NULL,
    uid       INTEGER NOT NULL,
    gid       INTEGER NOT NULL,
    links     INTEGER NOT NULL,
    major     INTEGER NOT NULL,
    minor     INTEGER NOT NULL,
    size      INTEGER NOT NULL,
    blocks    INTEGER NOT NULL,
    atime     INTEGER NOT NULL,
    atime_ns  INTEGER NOT NULL,
    mtime     INTEGER NOT NULL,
    mtime_ns  INTEGER NOT NULL,
    ctime     INTEGER NOT NULL,
    ctime_ns  INTEGER NOT NULL,
    target    BLOB,
    place     BLOB,
    lower     BLOB,
    is_shared INTEGER NOT NULL,
    changed   INTEGER NOT NULL
);

CREATE INDEX nodes_without_names ON nodes (id) WHERE links = 0;

CREATE INDEX nodes_of_shared_files ON nodes (id) WHERE is_shared;

CREATE INDEX nodes_by_lower ON nodes (lower) WHERE lower IS NOT NULL;

CREATE TABLE names (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    folder  INTEGER NOT NULL,
    name    BLOB NOT NULL,
    node    INTEGER,
    is_over INTEGER NOT NULL,
    UNIQUE (folder, name)
);

CREATE INDEX names_in_order ON names (folder, is_over);

CREATE INDEX names_of_nodes ON names (node) WHERE node IS NOT NULL;

CREATE TABLE xattrs (
    node  INTEGER NOT NULL,
    name  BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (node, name)
) WITHOUT ROWID;
