//! Folders whose path an entry has that is no folder.
//!
//! A folder is known from the first entry that names it, or something in it, and most archives say no more. Where
//! something else takes its path, what is named in it afterwards makes a folder again, and that must be noted, once
//! each time. Of each folder two bits are kept, and most entries need not be looked at. That finds all of it where
//! entries come in the order of the archive; for others see [`super::latest`].

use super::folders::Number;

/// What is known of all folders.
#[derive(Debug, Default)]
pub(super) struct Clashes {
    /// Of each folder whether there are, or may be, folders in it.
    has_folders: Bits,
    /// Of each folder whether something else has its path.
    taken: Bits,
    /// How many of these there are.
    count: u64,
    /// The stream and the header of the last entry.
    last: (u32, u64),
    /// True once an entry has come that may lie before one that came before it.
    is_out_of_order: bool,
}

/// One bit for each folder up to the last one that has it.
#[derive(Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, number: Number) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Returns what it was.
    pub(super) fn set(&mut self, number: Number, value: bool) -> bool {
        let at = number as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at.saturating_add(1), 0);
        }
        let before = self.get(number);
        if let Some(word) = self.0.get_mut(at) {
            *word = *word & !(1 << (number % 64)) | u64::from(value) << (number % 64);
        }
        before
    }
}

impl Clashes {
    /// An entry comes whose header is at that byte of `stream`.
    pub(super) fn meet(&mut self, stream: u32, header: u64) {
        let (last_stream, last_header) = std::mem::replace(&mut self.last, (stream, header));
        self.is_out_of_order |= stream != last_stream || header < last_header;
    }

    /// False if all entries have come in the order of the archive.
    pub(super) fn is_out_of_order(&self) -> bool {
        self.is_out_of_order
    }

    /// There is a folder in `parent`.
    pub(super) fn add_folder(&mut self, parent: Number) {
        if !self.has_folders.get(parent) {
            self.has_folders.set(parent, true);
        }
    }

    /// False if no folder is in `parent`.
    pub(super) fn may_have_folders(&self, parent: Number) -> bool {
        self.has_folders.get(parent)
    }

    /// Something else has the path of `folder`.
    pub(super) fn take(&mut self, folder: Number) {
        if !self.taken.set(folder, true) {
            self.count = self.count.saturating_add(1);
        }
    }

    /// True if there is any folder whose path something else has.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// It is a folder again; true if it was not.
    pub(super) fn give_back(&mut self, folder: Number) -> bool {
        let was_taken = self.taken.get(folder) && self.taken.set(folder, false);
        self.count = self.count.saturating_sub(u64::from(was_taken));
        was_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_has_bits_of_its_own() {
        let mut clashes = Clashes::default();
        for number in [0, 1, 63, 64, 1000] {
            assert!(!clashes.may_have_folders(number) && !clashes.give_back(number));
            clashes.add_folder(number);
            clashes.take(number);
            clashes.take(number);
            assert!(clashes.any() && clashes.may_have_folders(number));
        }
        assert!(!clashes.may_have_folders(2) && !clashes.give_back(65));
        for number in [64, 0, 1000, 63, 1] {
            assert!(clashes.any() && clashes.give_back(number) && !clashes.give_back(number));
        }
        assert!(!clashes.any());
    }
}
