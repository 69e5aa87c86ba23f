//! What is in an archive, counted: how many of what, and how they are stored.
//!
//! All entries are looked at once, in the order in which the index has them. What is kept of them are sums: memory does
//! not grow with their number, but for the blocks that several files share.

use std::collections::HashSet;
use std::sync::Arc;

use tarnfs_format::{Coder, Kind, Piece, Step};
use tarnfs_index::Swept;
use tarnfs_source::Cancel;

use crate::archive::ArchiveTree;
use crate::extensions::Extensions;
use crate::pieces::block_coder;
use crate::{DEFAULT_EXTENSIONS, Error};

/// Ways to store files that are told apart.
const MOST_METHODS: usize = 256;

/// Shared blocks that are told apart.
const MOST_BLOCKS: usize = 1 << 20;

/// Ends of names of which it is known whether archives have them.
const MOST_ENDS: usize = 4096;

/// The set of names of first parts of split files.
const FIRST_PARTS: &str = "/split";

/// What is in an archive.
#[derive(Debug, Clone, Default)]
pub struct Census {
    /// Regular files; one with several names once.
    pub files: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Character devices.
    pub character_devices: u64,
    /// Block devices.
    pub block_devices: u64,
    /// Named pipes.
    pub fifos: u64,
    /// Sockets.
    pub sockets: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// The longest file.
    pub longest: u64,
    /// Files with holes.
    pub sparse: u64,
    /// Files whose names are those of archives and compressed files: what `-r` looks into.
    pub archives: u64,
    /// Entries that later ones of the same path have replaced.
    pub versions: u64,
    /// Archives and compressed files that show as folders.
    pub opened: u64,
    /// How files are stored, where each has its own way. What has the most bytes comes first.
    pub methods: Vec<Method>,
}

/// Files that are stored in one way.
#[derive(Debug, Clone, Default)]
pub struct Method {
    /// Names of the codecs that undo it, in the order in which they do. None: the bytes are stored as they are.
    pub steps: Vec<String>,
    /// True if each block is decoded at once, by itself.
    pub has_blocks: bool,
    /// Files of which most is stored so.
    pub files: u64,
    /// Bytes of files, and what is stored of them: shared blocks count once. `None` if there are too many of these.
    pub bytes: u64,
    /// See `bytes`.
    pub stored: Option<u64>,
    /// Runs of stored bytes that are decoded at once, or one after the other: a member, a block.
    pub runs: u64,
    /// Those of them that several files share, or may share.
    pub shared: u64,
    /// Decoded bytes of the longest, and of the longest that is shared.
    pub longest: u64,
    /// See `longest`.
    pub longest_shared: u64,
    /// Sum of the squares of these lengths, each counted for the bytes of files that lie in it.
    pub squares: f64,
}

/// Of a block among other steps, what undoes that.
fn name_of_step(step: &Step) -> &str {
    tarnfs_codec::coder_of_block(&step.codec, &step.properties).unwrap_or(&step.codec)
}

impl Method {
    /// Decoded bytes before a byte at a random place, from where decoding begins: on average.
    pub fn mean_way(&self) -> f64 {
        if self.bytes == 0 { 0.0 } else { self.squares / self.bytes as f64 / if self.has_blocks { 1.0 } else { 2.0 } }
    }
}

impl ArchiveTree {
    /// Counts what is in it.
    pub fn census(&self, cancel: &Cancel) -> Result<Census, Error> {
        let mut counting = Counting::new()?;
        let mut entries = 0_u64;
        self.index.sweep(&mut |entry| {
            if entries.is_multiple_of(4096) {
                cancel.check()?;
            }
            entries += 1;
            counting.add(entry);
            Ok(())
        })?;
        let mut census = counting.done();
        (census.versions, census.opened) = self.versions(cancel)?;
        Ok(census)
    }

    /// Entries that were replaced, and archives that show as folders: such a folder has replaced its archive.
    fn versions(&self, cancel: &Cancel) -> Result<(u64, u64), Error> {
        let all = self.index.replaced_count()?;
        if all == 0 || self.index.summary().shape.recursion.is_none() {
            return Ok((all, 0));
        }
        let (mut opened, mut trouble) = (0, None);
        let mut before = None;
        self.index.replaced(&mut |folder, name, row| {
            if trouble.is_some() || row.kind != Kind::File {
                return;
            }
            // One of several versions of an archive shows.
            let is_again =
                before.replace((folder, name.to_vec())).is_some_and(|(of, known)| of == folder && known == name);
            let found = cancel.check().map_err(Error::from).and_then(|()| Ok(self.index.lookup(folder, name)?));
            match found {
                Ok(shown) => opened += u64::from(!is_again && shown.is_some_and(|row| row.kind == Kind::Folder)),
                Err(error) => trouble = Some(error),
            }
        })?;
        trouble.map_or(Ok((all.saturating_sub(opened), opened)), Err)
    }
}

/// A census that is under way.
struct Counting {
    census: Census,
    methods: Vec<(Option<Arc<Coder>>, Method)>,
    /// Where shared blocks begin: stream and byte.
    blocks: HashSet<(u32, u64)>,
    /// There were too many of them.
    is_full: bool,
    extensions: Extensions,
    /// The same without first parts of split files: `LGPL-2.1` is none, and `x.tar.gz.aa` is one for what it is without
    /// that end.
    whole: Extensions,
    ends: Vec<(Vec<u8>, bool)>,
}

impl Counting {
    fn new() -> Result<Self, Error> {
        let sets = DEFAULT_EXTENSIONS.map(str::to_owned);
        let extensions = Extensions::new(&sets).map_err(|_| Error::NotFound)?;
        let sets: Vec<_> = sets.into_iter().filter(|set| *set != FIRST_PARTS).collect();
        let whole = Extensions::new(&sets).map_err(|_| Error::NotFound)?;
        Ok(Self {
            census: Census::default(),
            methods: Vec::new(),
            blocks: HashSet::new(),
            is_full: false,
            extensions,
            whole,
            ends: Vec::new(),
        })
    }

    fn add(&mut self, entry: &Swept<'_>) {
        let census = &mut self.census;
        let count = match entry.kind {
            Kind::File => &mut census.files,
            Kind::Folder => &mut census.folders,
            Kind::Symlink => &mut census.symlinks,
            Kind::HardLink => &mut census.hard_links,
            Kind::CharacterDevice(_) => &mut census.character_devices,
            Kind::BlockDevice(_) => &mut census.block_devices,
            Kind::Fifo => &mut census.fifos,
            Kind::Socket => &mut census.sockets,
        };
        *count += 1;
        if entry.kind != Kind::File {
            return;
        }
        census.bytes = census.bytes.saturating_add(entry.size);
        census.longest = census.longest.max(entry.size);
        census.sparse += u64::from(entry.is_sparse || entry.pieces.is_some_and(|pieces| has_holes(pieces, entry.size)));
        if self.may_be_archive(entry.name) {
            self.census.archives += 1;
        }
        if let Some(pieces) = entry.pieces {
            self.pieces(entry.stream, pieces);
        }
    }

    /// True if `-r` would look into a file of that name.
    fn may_be_archive(&mut self, name: &[u8]) -> bool {
        // Most files end as others do, and most ends are none of an archive.
        let end = name.iter().rposition(|&byte| byte == b'.').map_or(&[][..], |dot| &name[dot..]);
        let known = self.ends.binary_search_by(|(known, _)| known.as_slice().cmp(end));
        let may_be = match known {
            Ok(at) => self.ends[at].1,
            Err(at) => {
                // Another name with the same end, of which nothing else is an end.
                let may_be = self.extensions.stem(&[b"x", end].concat()).is_some();
                if self.ends.len() < MOST_ENDS && end.len() < 32 {
                    self.ends.insert(at, (end.to_vec(), may_be));
                }
                may_be
            }
        };
        let Some(stem) = self.extensions.stem(name).filter(|_| may_be) else { return false };
        self.whole.stem(name).is_some() || self.whole.stem(name.get(..stem).unwrap_or_default()).is_some()
    }

    fn pieces(&mut self, stream: u32, pieces: &[Piece]) {
        let mut most: Option<(u64, usize)> = None;
        for piece in pieces {
            let number = self.method(piece.coder.as_ref());
            let is_shared = (piece.skip, piece.length) != (0, piece.decoded) && piece.coder.is_some();
            let is_new = !is_shared || self.is_new_block(stream, piece.offset);
            let Some((_, method)) = self.methods.get_mut(number) else { continue };
            method.bytes = method.bytes.saturating_add(piece.length);
            method.longest = method.longest.max(piece.decoded);
            method.squares += piece.length as f64 * piece.decoded as f64;
            if is_new {
                method.runs += 1;
                method.stored = method.stored.map(|stored| stored.saturating_add(piece.stored));
            }
            if is_shared {
                method.shared += u64::from(is_new);
                method.longest_shared = method.longest_shared.max(piece.decoded);
                method.stored = method.stored.filter(|_| !self.is_full);
            }
            if most.is_none_or(|(bytes, _)| piece.length > bytes) {
                most = Some((piece.length, number));
            }
        }
        if let Some((_, method)) = most.and_then(|(_, number)| self.methods.get_mut(number)) {
            method.files += 1;
        }
    }

    fn is_new_block(&mut self, stream: u32, offset: u64) -> bool {
        self.is_full |= self.blocks.len() >= MOST_BLOCKS;
        !self.is_full && self.blocks.insert((stream, offset))
    }

    /// The number of the method that `coder` is of.
    fn method(&mut self, coder: Option<&Arc<Coder>>) -> usize {
        // Nearly always the very same as of a file before.
        let is_it = |known: &Option<Arc<Coder>>| match (known, coder) {
            (Some(known), Some(coder)) => Arc::ptr_eq(known, coder),
            (None, None) => true,
            _ => false,
        };
        if let Some(at) = self.methods.iter().position(|(known, _)| is_it(known)) {
            return at;
        }
        let steps = || coder.iter().flat_map(|coder| &coder.steps).map(name_of_step);
        let is_same = |method: &Method| method.steps.iter().map(String::as_str).eq(steps());
        if let Some(at) = self.methods.iter().position(|(_, method)| is_same(method)) {
            self.methods[at].0 = coder.cloned();
            return at;
        }
        if self.methods.len() >= MOST_METHODS {
            return MOST_METHODS;
        }
        let has_blocks = coder.is_some_and(|coder| block_coder(coder).is_some());
        let steps = steps().map(str::to_owned).collect();
        self.methods.push((coder.cloned(), Method { steps, has_blocks, stored: Some(0), ..Method::default() }));
        self.methods.len() - 1
    }

    fn done(self) -> Census {
        let mut methods: Vec<_> = self.methods.into_iter().map(|(_, method)| method).collect();
        methods.retain(|method| method.runs > 0 || method.bytes > 0);
        methods.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.steps.cmp(&other.steps)));
        Census { methods, ..self.census }
    }
}

/// True if something of a file of `size` bytes lies in no piece.
fn has_holes(pieces: &[Piece], size: u64) -> bool {
    pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.length)) < size
}
