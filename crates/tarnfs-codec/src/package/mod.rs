//! Packages: a head that names what is in them, and a payload that one of the other codecs has compressed.
//!
//! What comes out is the head, and the payload decoded behind it: what reads that shows the files of a package at once.
//! It begins otherwise than a package does, so it is none any more. Seek points are those of the payload's codec,
//! moved.
//!
//! Sub-modules: [`rpm`] and [`deb`] say what the head is, and where the payload lies; [`metered`] ends a head that
//! takes too much to decode.

mod deb;
mod metered;
mod rpm;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tarnfs_source::{Cancel, Limits, MemorySource, SharedSource, Slice, Source};

use crate::{Codec, CoderContext, DecodeContext, Decoder, FileCodec, Findings, FirstPass, Options, Pace, SeekPoint};
use crate::{coder_by_name, detect, faults};

/// The codec of one kind of package.
#[derive(Debug)]
pub(crate) struct Package {
    name: &'static str,
    bid: fn(&[u8]) -> u32,
    layout: fn(&SharedSource, &Limits, &Cancel) -> io::Result<Layout>,
}

pub(crate) static RPM: Package = Package { name: "rpm-payload", bid: rpm::bid, layout: rpm::layout };
pub(crate) static DEB: Package = Package { name: "deb-payload", bid: deb::bid, layout: deb::layout };

/// Bytes of a payload that say how it is compressed.
const HEAD: usize = 4096;

/// What comes before the payload, where that lies, and what undoes its compression.
struct Layout {
    head: SharedSource,
    /// Its length, also when it is gone.
    head_length: u64,
    payload: u64,
    length: u64,
    codec: &'static dyn Codec,
    /// What is wrong with the head.
    findings: Findings,
}

impl Layout {
    fn new(source: &SharedSource, head: SharedSource, payload: u64, length: u64) -> io::Result<Self> {
        let codec = codec_of(&**source, payload, length)?;
        Ok(Self { head_length: head.len(), head, payload, length, codec, findings: Findings::default() })
    }

    /// The same without the head.
    fn headless(&self) -> Self {
        Self { head: nothing(), findings: Findings::default(), ..*self }
    }

    fn slice(&self, source: &SharedSource) -> SharedSource {
        Arc::new(Slice::new(Arc::clone(source), self.payload, self.length))
    }

    /// Errors of the payload's codec count from where that begins.
    fn counted(&self, error: &io::Error) -> io::Error {
        if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted {
            return faults::again(error);
        }
        let what = format!("{error} (which is the payload of a package, and begins at its byte {})", self.payload);
        io::Error::new(error.kind(), what)
    }
}

/// What the bytes of that part of a package are compressed with.
fn codec_of(source: &dyn Source, start: u64, length: u64) -> io::Result<&'static dyn Codec> {
    let mut head = vec![0; usize::try_from(length).unwrap_or(HEAD).min(HEAD)];
    let read = source.read_at(&mut head, start)?;
    let codec = detect(head.get(..read).unwrap_or_default()).or_else(|| coder_by_name("copy"));
    // Packages in packages, and that without an end, are none.
    let codec = codec.filter(|codec| ![RPM.name, DEB.name].contains(&codec.name()));
    codec.ok_or_else(|| faults::invalid(start, "a package whose payload is a package"))
}

/// A head that was handed out.
fn nothing() -> SharedSource {
    Arc::new(MemorySource::new(Vec::new(), "the head of a package"))
}

/// The head, and then what comes of the payload.
struct Joined<D: ?Sized> {
    /// Its head is gone once it was handed out: it may be long.
    layout: Layout,
    /// Bytes of the head, and how many of them were handed out.
    head: u64,
    handed: u64,
    payload: Box<D>,
    findings: Findings,
}

impl<D: Decoder + ?Sized> Joined<D> {
    fn is_behind_head(&self) -> bool {
        self.handed >= self.head
    }
}

impl<D: Decoder + ?Sized> Decoder for Joined<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_behind_head() {
            return self.payload.read(buffer).map_err(|error| self.layout.counted(&error));
        }
        let left = usize::try_from(self.head - self.handed).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let read = self.layout.head.read_at(&mut buffer[..wanted], self.handed)?;
        if read == 0 && wanted > 0 {
            return Err(faults::cut(self.handed, "the head of a package"));
        }
        self.handed += read as u64;
        if self.is_behind_head() {
            self.layout.head = nothing();
        }
        Ok(read)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<bool> {
        if !self.is_behind_head() {
            return Ok(false);
        }
        self.payload.skip(bytes).map_err(|error| self.layout.counted(&error))
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let of_payload = bytes.saturating_sub(self.head.saturating_sub(self.handed));
        size_of::<Self>() + self.layout.head.memory() + self.payload.memory_after(of_payload)
    }
}

impl FirstPass for Joined<dyn FirstPass> {
    fn findings(&mut self) -> Option<&mut Findings> {
        if !self.is_behind_head() {
            return Some(&mut self.findings);
        }
        let (head, payload) = (self.head, self.layout.payload);
        let found = self.payload.findings()?;
        self.findings.take_moved(found, head, payload);
        Some(&mut self.findings)
    }

    fn verified_to(&self) -> u64 {
        let payload = if self.is_behind_head() { self.payload.verified_to() } else { 0 };
        self.handed.saturating_add(payload)
    }

    fn compressed_position(&self) -> u64 {
        if self.is_behind_head() {
            self.layout.payload.saturating_add(self.payload.compressed_position())
        } else {
            self.handed.min(self.layout.payload)
        }
    }
}

/// The layouts of the packages that were read last, without their heads. To find out how long a head is, it may have to
/// be decoded, and each seek point needs that.
static KNOWN: Mutex<VecDeque<Arc<Known>>> = Mutex::new(VecDeque::new());

/// How many there are.
const MOST_KNOWN: usize = 64;

struct Known {
    /// No other source lies at its address as long as this is there.
    source: Weak<dyn Source>,
    layout: Mutex<Option<Layout>>,
    /// Its head, as long as somebody has it.
    head: Mutex<Weak<dyn Source>>,
    /// Held while they are found out: the source is read, which waits only for decoders of a lesser depth. So the
    /// memory for a head is taken once, however many want it. Who needs no head waits for it only the first time.
    making: Mutex<()>,
}

impl Known {
    /// That of `source`.
    fn of(source: &SharedSource) -> Arc<Self> {
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&Arc<Self>| std::ptr::addr_eq(known.source.as_ptr(), Arc::as_ptr(source));
        if let Some(known) = all.iter().find(is_it) {
            return Arc::clone(known);
        }
        let known = Arc::new(Self {
            source: Arc::downgrade(source),
            layout: Mutex::default(),
            head: Mutex::new(Weak::<MemorySource>::new()),
            making: Mutex::default(),
        });
        all.truncate(MOST_KNOWN - 1);
        all.push_front(Arc::clone(&known));
        known
    }

    /// The layout, if that and, where it is asked for, its head are there.
    fn get(&self, with_head: bool) -> Option<Layout> {
        let layout = self.layout.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.headless();
        if !with_head {
            return Some(layout);
        }
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
        Some(Layout { head, ..layout })
    }

    fn set(&self, layout: &Layout) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&layout.head);
        *self.layout.lock().unwrap_or_else(PoisonError::into_inner) = Some(layout.headless());
    }
}

impl Package {
    /// The layout of `source`, with its head only if that is asked for.
    fn known(&self, source: &SharedSource, limits: &Limits, with_head: bool) -> io::Result<Layout> {
        let known = Known::of(source);
        if let Some(layout) = known.get(with_head) {
            return Ok(layout);
        }
        let _making = known.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have found it out in between.
        if let Some(layout) = known.get(with_head) {
            return Ok(layout);
        }
        let found = (self.layout)(source, limits, &Cancel::default())?;
        known.set(&found);
        Ok(if with_head { found } else { found.headless() })
    }
}

impl Codec for Package {
    fn name(&self) -> &'static str {
        self.name
    }

    /// That of the slowest one that payloads have.
    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let mut layout = (self.layout)(&source, &options.limits, &options.cancel)?;
        // What a container says is of the package.
        let of_payload = Options { coder: CoderContext::default(), ..options.clone() };
        let payload = layout.codec.first_pass(layout.slice(&source), &of_payload);
        let payload = payload.map_err(|error| layout.counted(&error))?;
        let findings = Findings { points: vec![SeekPoint::default()], ..std::mem::take(&mut layout.findings) };
        let head = layout.head_length;
        Ok(Box::new(Joined { layout, head, handed: 0, payload, findings }))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let is_start = *point == SeekPoint::default();
        // Behind the head, only where things are is needed.
        let layout = self.known(&source, &context.limits, is_start)?;
        let (head, payload) = (layout.head_length, layout.payload.saturating_mul(8));
        let bit = if is_start { Some(0) } else { point.compressed_bit.checked_sub(payload) };
        let decoded = if is_start { Some(0) } else { point.decoded.checked_sub(head) };
        let (Some(compressed_bit), Some(decoded)) = (bit, decoded) else {
            return Err(faults::invalid(point.compressed_bit / 8, "a seek point that this package cannot have"));
        };
        let inside = SeekPoint { compressed_bit, decoded, state: point.state.clone() };
        let of_payload = DecodeContext { coder: CoderContext::default(), ..context.clone() };
        let payload = layout.codec.resume(layout.slice(&source), &inside, &of_payload);
        let payload = payload.map_err(|error| layout.counted(&error))?;
        let handed = if is_start { 0 } else { head };
        Ok(Box::new(Joined { layout, head, handed, payload, findings: Findings::default() }))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Package {
    fn bid(&self, head: &[u8]) -> u32 {
        (self.bid)(head)
    }
}
