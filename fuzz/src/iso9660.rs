//! Images of ISO 9660, whole or not.

use tarnfs_format::iso9660::Iso9660;
use tarnfs_format::{Event, Format, Options, Probe, ReadRandom};

/// Entries after which a pass ends: further extents of a file are cheap, and so are names of one.
const MOST: usize = 1 << 16;

/// Reads `data` as an image.
pub fn iso9660(data: &[u8]) {
    let source = super::source(data);
    Iso9660.bid(&Probe::new(&data[..data.len().min(64 << 10)], &*source));
    let options = Options::default();
    let length = data.len() as u64;
    let mut count = 0;
    // Whether it is read to its end is the image's matter.
    let _ = Iso9660.read(&source, &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        count += 1;
        if count > MOST {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        super::check_entry(&entry, &options.limits);
        super::check_pieces(&entry, length);
        Ok(())
    });
}
