-- Schema 0.7.0 of ratarmount's sidecars: the tables of a finished one.
CREATE TABLE "files" (
    "path" VARCHAR(65535) NOT NULL,
    "name" VARCHAR(65535) NOT NULL,
    "offsetheader" INTEGER,
    "offset" INTEGER,
    "size" INTEGER,
    "mtime" REAL,
    "mode" INTEGER,
    "type" INTEGER,
    "linkname" VARCHAR(65535),
    "uid" INTEGER,
    "gid" INTEGER,
    "istar" BOOL,
    "issparse" BOOL,
    "isgenerated" BOOL,
    "recursiondepth" INTEGER,
    PRIMARY KEY ("path", "name", "offsetheader")
);
CREATE TABLE "xattrkeys" ("id" INTEGER PRIMARY KEY, "name" VARCHAR(65535) UNIQUE);
CREATE TABLE "xattrsdata" (
    "offsetheader" INTEGER,
    "keyid" INTEGER,
    "value" VARCHAR(65535),
    PRIMARY KEY ("offsetheader", "keyid"),
    FOREIGN KEY ("keyid") REFERENCES xattrkeys("id")
);
-- ratarmount reads attributes through this view, and adds hashes of files through its trigger.
CREATE VIEW "xattrs" ("offsetheader", "key", "value") AS
    SELECT offsetheader, xattrkeys.name, value FROM "xattrsdata" INNER JOIN xattrkeys ON xattrkeys.id = xattrsdata.keyid;
CREATE TRIGGER "xattrs_insert" INSTEAD OF INSERT ON "xattrs"
BEGIN
    INSERT OR IGNORE INTO xattrkeys(name) VALUES (NEW.key);
    INSERT OR REPLACE INTO xattrsdata(offsetheader, keyid, value)
        VALUES (NEW.offsetheader, (SELECT id FROM xattrkeys WHERE name = NEW.key), NEW.value);
END;
CREATE TABLE "metadata" ("key" VARCHAR(65535) NOT NULL, "value" VARCHAR(65535) NOT NULL, PRIMARY KEY ("key"));
CREATE TABLE "versions" (
    "name" VARCHAR(65535) NOT NULL,
    "version" VARCHAR(65535) NOT NULL,
    "major" INTEGER,
    "minor" INTEGER,
    "patch" INTEGER,
    PRIMARY KEY ("name")
);
-- While it is written: hard links, and where what they share shows.
CREATE TEMP TABLE links (folder INTEGER, name BLOB, header INTEGER, node INTEGER, PRIMARY KEY (folder, name)) WITHOUT ROWID;
CREATE TEMP TABLE targets (node INTEGER PRIMARY KEY, path TEXT);
CREATE TEMP TABLE waiting (path TEXT, name TEXT, header INTEGER, node INTEGER, offset INTEGER, size INTEGER, mtime REAL,
    mode INTEGER, type BLOB, linkname TEXT, uid INTEGER, gid INTEGER, issparse INTEGER, ownoffset INTEGER);
