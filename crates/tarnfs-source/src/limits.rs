use std::time::Duration;

/// How far a number that comes from a file is believed. One value is passed down to every parser and decoder.
///
/// Each field names the attack that it stops; the defaults are far above what real archives hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one extended header (pax records, a GNU long name). A header of 8 KiB that says 4 GiB
    /// made a peer allocate 4.1 GiB.
    pub extended_header: u64,
    /// Bytes of one path as stored. Linux itself stops at 4096 (PATH_MAX), archives may hold longer ones.
    /// Of targets of symbolic links no more than Linux takes goes into an index.
    pub path: usize,
    /// Components of one path. A path of 500 000 components made a peer use 4.4 GiB.
    pub path_components: usize,
    /// Bytes of one name: what Linux allows in one directory entry (NAME_MAX).
    pub name: usize,
    /// Bytes of the name of an owner or a group, and of the name of an archive: far more than any system has. An
    /// archive of 11 MB, whose 300 entries each have an owner of 8 MiB, took 5 GB.
    pub owner_name: usize,
    /// Extents in the map of one sparse file; more is an attack on memory, at 24 bytes each.
    pub sparse_extents: usize,
    /// Bytes of one extended attribute's value (XATTR_SIZE_MAX of Linux).
    pub xattr_value: usize,
    /// Extended attributes of one entry.
    pub xattrs: usize,
    /// Bytes that a decoder may use for its window or dictionary. zstd's own command refuses windows above 128 MiB.
    pub decoder_window: u64,
    /// Bytes of an LZMA dictionary: its format goes to 4 GiB, `xz -9` uses 64 MiB.
    pub lzma_dictionary: u64,
    /// Bytes searched for a valid header after damage, before the rest is given up. `u64::MAX` searches to the end.
    pub resynchronise: u64,
    /// Layers of compression around one file: a gzip quine has no end of them.
    pub compression_layers: usize,
    /// Archives in an archive, beside one for each 16 bytes of it. One of 50 KB whose archives hold 16 others each,
    /// seven levels deep, has 286 million of them.
    pub nested: u64,
    /// Bytes for names in a cpio that wait for the content of their file: half a million files with other names in the
    /// archive, or outside of it. Archives in archives have less: one of 7 MB, six of them in each other, took 600 MB.
    pub waiting_names: usize,
    /// Bytes that a reader may hold before it has told the first entry, as of a directory that is decoded whole. Six
    /// archives of 10 KB that are read beside each other took 1.8 GB; those that need more are read by themselves.
    pub held: u64,
    /// Processor time in which a directory is read, beside some for each entry that comes of it and for each byte of
    /// the archive. An image of 5 MB, in which a file of 700 000 parts had 12 000 names, took 15 minutes.
    pub directory_time: Duration,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        extended_header: 16 << 20,
        path: 64 << 10,
        path_components: 1024,
        name: 255,
        owner_name: 255,
        sparse_extents: 4 << 20,
        xattr_value: 64 << 10,
        xattrs: 16_384,
        decoder_window: 128 << 20,
        lzma_dictionary: 1536 << 20,
        resynchronise: u64::MAX,
        compression_layers: 100,
        nested: 1 << 17,
        waiting_names: 128 << 20,
        held: u64::MAX,
        directory_time: Duration::from_secs(20),
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
