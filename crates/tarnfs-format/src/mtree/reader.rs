//! Reads a specification line by line, and tells an entry for each name.

use std::sync::Arc;

use tarnfs_source::SharedSource;

use super::NAME;
use super::keywords::{Told, split};
use super::line::{Lines, is_comment, unescaped};
use crate::image::{Budget, Teller, is_damage};
use crate::name::{bounded_path, excerpt};
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step};

/// Permissions of what has none that are told.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// Bytes of a value that is an extended attribute.
const LONGEST_OTHER: usize = 4096;

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut lines = Lines::new(Window::growing(&**source).until(&options.cancel));
    let mut tell = Teller::new(receive);
    let mut reader = Reader {
        options,
        budget: Budget::new(source.len(), options.shares),
        folder: Vec::new(),
        all: Told::default(),
        elsewhere: Arc::new(Coder {
            steps: vec![Step { codec: "its content elsewhere, as mtree has none".to_owned(), ..Step::default() }],
            is_behind_header: None,
        }),
    };
    let mut count = 0_u64;
    loop {
        let at = match lines.next() {
            Ok(Some(at)) => at,
            Ok(None) => break,
            Err(error) if is_damage(&error) && count > 0 => {
                tell.damage(0, format!("what is behind is lost: {error}"))?;
                break;
            }
            Err(error) if is_damage(&error) => {
                return Err(Error::NotThisFormat { format: NAME, reason: error.to_string() });
            }
            Err(error) => return Err(Error::Read { offset: 0, error }),
        };
        options.cancel.check().map_err(Error::Receiver)?;
        count = count.saturating_add(1);
        if !is_comment(&lines.line) && !reader.line(&lines.line, at, &mut tell)? {
            break;
        }
    }
    Ok(())
}

struct Reader<'o> {
    options: &'o Options,
    budget: Budget,
    /// The path of the folder that the next name without a slash lies in.
    folder: Vec<u8>,
    /// What holds for all files.
    all: Told,
    /// What stands for content.
    elsewhere: Arc<Coder>,
}

impl Reader<'_> {
    /// Tells what a line has. False if nothing behind it is read.
    fn line(&mut self, line: &[u8], at: u64, tell: &mut Teller<'_>) -> Result<bool, Error> {
        let limits = &self.options.limits;
        let Some((name, words)) = split(line) else { return Ok(true) };
        if matches!(name, b"/set" | b"/unset") {
            if !self.all.of_all(line) {
                tell.damage(at, format!("not all of this is known: {}", excerpt(line)))?;
            }
            return Ok(true);
        }
        if name == b".." {
            let end = self.folder.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            self.folder.truncate(end);
            return Ok(true);
        }
        let is_whole = name.contains(&b'/');
        let name = unescaped(name);
        let path = match (is_whole, self.folder.as_slice()) {
            (true, _) | (false, b"") => name,
            (false, folder) => [folder, b"/", &name].concat(),
        };
        if self.budget.take_bytes(path.len() as u64).is_err() {
            tell.damage(at, "what is behind is left out: its paths are too long for so little text".to_owned())?;
            return Ok(false);
        }
        let mut told = self.all.clone();
        let unknown = words.iter().filter(|word| !told.add(word, LONGEST_OTHER.min(limits.xattr_value))).count();
        if unknown > 0 {
            let what = format!("'{}': not all of what is told of it is known: {}", excerpt(&path), excerpt(line));
            tell.damage(at, what)?;
        }
        let device = told.device.unwrap_or_default();
        let kind = match told.kind.unwrap_or_default() {
            Kind::CharacterDevice(_) => Kind::CharacterDevice(device),
            Kind::BlockDevice(_) => Kind::BlockDevice(device),
            Kind::Symlink if told.link.is_empty() => {
                tell.damage(at, format!("'{}' is a link that leads nowhere; it was left out", excerpt(&path)))?;
                return Ok(true);
            }
            kind => kind,
        };
        let path = bounded_path(path, limits.path);
        if kind == Kind::Folder && !is_whole {
            self.folder.clone_from(&path);
        }
        let mode = match kind {
            Kind::Folder => FOLDER_MODE,
            Kind::Symlink => 0o777,
            _ => FILE_MODE,
        };
        let owner = |mut name: Vec<u8>| {
            name.truncate(limits.owner_name);
            name
        };
        tell.entry(Entry {
            kind,
            mode: told.mode.unwrap_or(mode),
            uid: told.uid.unwrap_or_default(),
            gid: told.gid.unwrap_or_default(),
            user: owner(told.user),
            group: owner(told.group),
            mtime: told.mtime.unwrap_or_default(),
            header: at,
            body: self.body(kind, told.size, at),
            link: if kind == Kind::Symlink { bounded_path(told.link, limits.path) } else { Vec::new() },
            xattrs: told.others,
            path,
            ..Entry::default()
        })?;
        Ok(true)
    }

    /// A file has its size, but nothing that could be read.
    fn body(&mut self, kind: Kind, size: Option<u64>, at: u64) -> Body {
        let body = Body { offset: at, ..Body::default() };
        let size = size.filter(|size| i64::try_from(*size).is_ok());
        if kind != Kind::File || size == Some(0) {
            return body;
        }
        // One byte that cannot be read: nobody takes it for an empty file.
        let size = size.unwrap_or(1);
        let coder = Some(Arc::clone(&self.elsewhere));
        let piece = Piece { length: size, offset: at, decoded: size, coder, ..Piece::default() };
        Body { size, pieces: Some(vec![piece]), ..body }
    }
}
