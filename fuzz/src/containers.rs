//! What container images say of themselves.

use std::collections::HashMap;
use std::io;

use tarnfs_format::containers::{self, Members};
use tarnfs_format::{Event, Kind, ReadForwards as _, SourceStream};
use tarnfs_source::Cancel;

use super::source;

/// Documents by their paths.
struct Documents(HashMap<String, Vec<u8>>);

impl Members for Documents {
    fn read(&self, path: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(path).filter(|bytes| bytes.len() as u64 <= most).cloned())
    }

    fn has(&self, path: &str) -> io::Result<bool> {
        Ok(self.0.contains_key(path))
    }
}

/// Finds the images in a tar of documents.
pub fn containers(data: &[u8]) {
    containers::may_begin(data);
    let mut documents = HashMap::new();
    let mut stream = SourceStream::new(source(data), Cancel::default());
    let options = tarnfs_format::Options::default();
    let _ = tarnfs_format::tar::Tar.read(&mut stream, &options, &mut |event, stream| {
        if let Event::Entry(entry) = event
            && entry.kind == Kind::File
            && entry.body.size < 1 << 16
            && documents.len() < 256
            && let Ok(path) = String::from_utf8(entry.path)
        {
            documents.insert(path, stream.peek(entry.body.size as usize)?.to_vec());
        }
        Ok(())
    });
    let Ok(Some(found)) = containers::images(&Documents(documents)) else { return };
    for image in &found.images {
        assert!(image.layers.iter().all(|layer| !layer.path.split('/').any(|part| matches!(part, "" | "." | ".."))));
        assert!(image.platform.takes(&image.platform), "{}", image.platform);
    }
    let count = found.images.len();
    assert!(containers::chosen(found.images, None).is_ok_and(|chosen| chosen.len() <= count));
}
