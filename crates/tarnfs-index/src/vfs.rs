//! SQLite on an open file instead of a path.
//!
//! SQLite opens by name, follows symbolic links on the way, and looks for journals beside what it opened. An index is
//! opened once, without following anything, and checked as an open file ([`crate::trust`]); what SQLite then reads must
//! be that very file and no other. So it gets a file layer of its own that knows [`Opened`] files by number: there is
//! nothing else that it could open, create, delete or find. The same layer writes indexes, so that one that is built in
//! memory and one under a temporary name are the same to the rest.

#![allow(unsafe_code, reason = "SQLite calls its file layer through C function pointers")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};
use rusqlite::{Connection, OpenFlags};

use crate::store::Store;

/// A file that SQLite may open through [`Opened::connect`] as long as this lives.
#[derive(Debug)]
pub(crate) struct Opened {
    number: u64,
    store: Arc<Store>,
    is_writable: bool,
}

/// Names under which SQLite knows this layer: for files that are read, and for those that are written, where it may
/// make temporary files, too. They have no name either.
const NAME: &CStr = c"tarnfs";
const WRITING: &CStr = c"tarnfs-writing";

struct Known {
    next: u64,
    files: HashMap<u64, (Arc<Store>, bool)>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(|| Mutex::new(Known { next: 1, files: HashMap::new() }));

thread_local! {
    /// Why the last read of this thread has failed: SQLite has a number for it, and no more.
    static FAILED: RefCell<Option<io::Error>> = const { RefCell::new(None) };
}

/// Why SQLite says that it cannot read, in the thread that has asked it.
pub(crate) fn read_error() -> Option<io::Error> {
    FAILED.take()
}

impl Opened {
    /// Makes `file` known to SQLite.
    pub(crate) fn file(file: File, is_writable: bool) -> Self {
        Self::new(Arc::new(Store::File(file)), is_writable)
    }

    /// Makes `store` known to SQLite.
    pub(crate) fn new(store: Arc<Store>, is_writable: bool) -> Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = known.next;
        known.next = number.wrapping_add(1);
        known.files.insert(number, (Arc::clone(&store), is_writable));
        Self { number, store, is_writable }
    }

    /// The file.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// A new connection to the file.
    pub(crate) fn connect(&self) -> rusqlite::Result<Connection> {
        static REGISTERED: LazyLock<c_int> = LazyLock::new(register);
        if *REGISTERED != ffi::SQLITE_OK {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(*REGISTERED), None));
        }
        let access =
            if self.is_writable { OpenFlags::SQLITE_OPEN_READ_WRITE } else { OpenFlags::SQLITE_OPEN_READ_ONLY };
        // Every connection is used by one thread at a time (the pool sees to it), so it needs no mutex of its own.
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let layer = if self.is_writable { WRITING } else { NAME };
        Connection::open_with_flags_and_vfs(self.number.to_string(), flags, layer)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).files.remove(&self.number);
    }
}

/// What SQLite allocates for each file that it opens; `base` must come first.
#[repr(C)]
struct OpenFile {
    base: sqlite3_file,
    /// From `Arc::into_raw`; given back at closing.
    file: *const Store,
    is_writable: bool,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Version 1 has no shared memory: a file that claims a write-ahead log cannot be opened.
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(nothing_to_do),
    xFileSize: Some(file_size),
    xLock: Some(nothing_to_do),
    xUnlock: Some(nothing_to_do),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Tells SQLite of this layer; what has nothing to do with files (time, randomness, sleep) stays with the system's.
fn register() -> c_int {
    // SAFETY: initialising is allowed at any time and from any thread.
    let initialised = unsafe { ffi::sqlite3_initialize() };
    if initialised != ffi::SQLITE_OK {
        return initialised;
    }
    // SAFETY: null asks for the default one; the answer is null or lives as long as the process.
    let system = unsafe { ffi::sqlite3_vfs_find(ptr::null()).as_ref() };
    let Some(system) = system else { return ffi::SQLITE_ERROR };
    let layer = |name: &'static CStr, open| sqlite3_vfs {
        iVersion: 1,
        szOsFile: size_of::<OpenFile>() as c_int,
        mxPathname: 64,
        pNext: ptr::null_mut(),
        zName: name.as_ptr(),
        pAppData: ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: system.xRandomness,
        xSleep: system.xSleep,
        xCurrentTime: system.xCurrentTime,
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    };
    for layer in [layer(NAME, open), layer(WRITING, open_or_make)] {
        // SAFETY: the structure is complete and is never freed, as SQLite demands of a registered layer.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(layer)), 0) };
        if registered != ffi::SQLITE_OK {
            return registered;
        }
    }
    ffi::SQLITE_OK
}

/// [`open`], and for what has no name a temporary file without one.
extern "C" fn open_or_make(
    layer: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    if !name.is_null() {
        return open(layer, name, file, flags, out_flags);
    }
    // SAFETY: SQLite passes `szOsFile` bytes; null methods say that there is nothing to close if this fails.
    unsafe { (*file).pMethods = ptr::null() };
    let Ok(temporary) = tarnfs_source::temporary_file() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: SQLite passes places for the file and for the flags.
    unsafe { give(Arc::new(Store::File(temporary)), true, file, out_flags) };
    ffi::SQLITE_OK
}

extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes `szOsFile` bytes; null methods say that there is nothing to close if this fails.
    unsafe { (*file).pMethods = ptr::null() };
    // Only the database itself: no journals, no temporary files, no master journals.
    if name.is_null() || flags & ffi::SQLITE_OPEN_MAIN_DB == 0 {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: SQLite passes a terminated string that lives until the file is closed.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(number) = name.to_str().ok().and_then(|name| name.parse::<u64>().ok()) else {
        return ffi::SQLITE_CANTOPEN;
    };
    let found = {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.files.get(&number).map(|(file, is_writable)| (Arc::clone(file), *is_writable))
    };
    let Some((opened, is_writable)) = found else { return ffi::SQLITE_CANTOPEN };
    let is_writable = is_writable && flags & ffi::SQLITE_OPEN_READWRITE != 0;
    // SAFETY: SQLite passes places for the file and for the flags.
    unsafe { give(opened, is_writable, file, out_flags) };
    ffi::SQLITE_OK
}

/// Hands an open file to SQLite.
///
/// # Safety
/// `file` has room for an [`OpenFile`]; `out_flags` is null or valid.
unsafe fn give(opened: Arc<Store>, is_writable: bool, file: *mut sqlite3_file, out_flags: *mut c_int) {
    // SAFETY: SQLite allocated `szOsFile` bytes, suitably aligned, for this; the rest is the condition above.
    unsafe {
        ptr::write(
            file.cast::<OpenFile>(),
            OpenFile { base: sqlite3_file { pMethods: &raw const METHODS }, file: Arc::into_raw(opened), is_writable },
        );
        if let Some(out) = out_flags.as_mut() {
            *out = if is_writable { ffi::SQLITE_OPEN_READWRITE } else { ffi::SQLITE_OPEN_READONLY };
        }
    }
}

/// The file behind SQLite's pointer.
///
/// # Safety
/// `file` was filled in by [`open`] and is not closed.
unsafe fn opened<'a>(file: *mut sqlite3_file) -> (&'a Store, bool) {
    // SAFETY: by the condition above.
    unsafe {
        let open = &*file.cast::<OpenFile>();
        (&*open.file, open.is_writable)
    }
}

extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes once what `open` filled in; the count taken there is given back here.
    unsafe {
        drop(Arc::from_raw((*file.cast::<OpenFile>()).file));
        (*file).pMethods = ptr::null();
    }
    ffi::SQLITE_OK
}

extern "C" fn read(file: *mut sqlite3_file, buffer: *mut c_void, length: c_int, offset: i64) -> c_int {
    let (Ok(length), Ok(offset)) = (usize::try_from(length), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_READ;
    };
    // SAFETY: SQLite passes an open file, and a buffer of `length` bytes that nobody else uses.
    let (file, buffer) = unsafe { (opened(file).0, std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length)) };
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => {
                rest.fill(0);
                return ffi::SQLITE_IOERR_SHORT_READ;
            }
            Ok(read) => done = done.saturating_add(read),
            // Of a file: a signal. Of a source: somebody wants it to end.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !file.waits() => {}
            Err(error) => {
                FAILED.replace(Some(error));
                return ffi::SQLITE_IOERR_READ;
            }
        }
    }
    ffi::SQLITE_OK
}

extern "C" fn write(file: *mut sqlite3_file, bytes: *const c_void, length: c_int, offset: i64) -> c_int {
    let (Ok(length), Ok(offset)) = (usize::try_from(length), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite passes an open file, and `length` bytes that do not change meanwhile.
    let ((file, is_writable), bytes) =
        unsafe { (opened(file), std::slice::from_raw_parts(bytes.cast::<u8>(), length)) };
    if !is_writable {
        return ffi::SQLITE_READONLY;
    }
    match file.write_all_at(bytes, offset) {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            ffi::SQLITE_FULL
        }
        Err(_) => ffi::SQLITE_IOERR_WRITE,
    }
}

extern "C" fn truncate(file: *mut sqlite3_file, length: i64) -> c_int {
    // SAFETY: SQLite passes an open file.
    let (file, is_writable) = unsafe { opened(file) };
    match u64::try_from(length) {
        Ok(length) if is_writable && file.set_len(length).is_ok() => ffi::SQLITE_OK,
        _ => ffi::SQLITE_IOERR_TRUNCATE,
    }
}

extern "C" fn file_size(file: *mut sqlite3_file, length: *mut i64) -> c_int {
    // SAFETY: SQLite passes an open file and a place for the answer.
    unsafe {
        match opened(file).0.len() {
            Ok(bytes) => {
                *length = bytes as i64;
                ffi::SQLITE_OK
            }
            Err(_) => ffi::SQLITE_IOERR_FSTAT,
        }
    }
}

/// For locks and syncs: a finished index never changes, an unfinished one is ours alone, and the writer syncs it
/// itself.
extern "C" fn nothing_to_do(_: *mut sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

extern "C" fn check_reserved_lock(_: *mut sqlite3_file, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *answer = 0 };
    ffi::SQLITE_OK
}

extern "C" fn file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    4096
}

extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite passes an open file.
    let (_, is_writable) = unsafe { opened(file) };
    // Immutable: no locks, and no looking for a journal, before each query.
    if is_writable { ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE } else { ffi::SQLITE_IOCAP_IMMUTABLE }
}

extern "C" fn delete(_: *mut sqlite3_vfs, _: *const c_char, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

extern "C" fn access(_: *mut sqlite3_vfs, _: *const c_char, _: c_int, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *answer = 0 };
    ffi::SQLITE_OK
}

extern "C" fn full_pathname(_: *mut sqlite3_vfs, name: *const c_char, room: c_int, full: *mut c_char) -> c_int {
    // SAFETY: SQLite passes a terminated name.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if usize::try_from(room).is_ok_and(|room| name.len() <= room) {
        // SAFETY: `full` has `room` bytes, and the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), full, name.len()) };
        ffi::SQLITE_OK
    } else {
        ffi::SQLITE_CANTOPEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_a_file_without_a_name_and_creates_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile_in(folder.path()).unwrap();
        let again = file.try_clone().unwrap();
        let opened = Opened::file(file, true);
        let connection = opened.connect().unwrap();
        connection
            .execute_batch("CREATE TABLE a (b); INSERT INTO a VALUES (7); BEGIN; INSERT INTO a VALUES (8)")
            .unwrap_err();
        connection.execute_batch("PRAGMA journal_mode = OFF; CREATE TABLE a (b); INSERT INTO a VALUES (7)").unwrap();
        drop((connection, opened));
        let opened = Opened::file(again, false);
        let connection = opened.connect().unwrap();
        assert_eq!(connection.query_row("SELECT b FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
        connection.execute_batch("INSERT INTO a VALUES (8)").unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn forgets_what_is_dropped() {
        let opened = Opened::file(tempfile::tempfile().unwrap(), false);
        let number = opened.number;
        drop(opened);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        assert!(Connection::open_with_flags_and_vfs(number.to_string(), flags, NAME).is_err());
    }
}
