//! What an archive has under names that show something else by now, and hard links.

use crate::{Error, Node, Row};

/// What does not show because a later entry has its path, and the entries that are names of others.
#[allow(clippy::type_complexity, reason = "each of these types is used once, where its documentation is")]
pub trait History {
    /// Hands every entry that a later one of the same path has replaced to `receive`: the folder, the name, the row.
    /// Hard links are not among them.
    fn replaced(&self, receive: &mut dyn FnMut(Node, &[u8], &Row)) -> Result<(), Error>;

    /// How many that are, hard links perhaps among them.
    fn replaced_count(&self) -> Result<u64, Error> {
        let mut count = 0_u64;
        self.replaced(&mut |_, _, _| count = count.saturating_add(1))?;
        Ok(count)
    }

    /// Those of [`History::replaced`] that had this `name` in `folder`, hard links among them, in the order of the
    /// archive: the byte of the stream at which the entry's own header begins, and what it is. What a hard link is
    /// that led nowhere, nobody knows: it is left out. The node of a folder is one whose children are what lies at
    /// this path, if anything does; a folder without a header was named by what lies in it alone. Ends where `receive`
    /// returns false.
    ///
    /// The first `from` are passed over. Returns how many that were: less if there are not so many.
    fn replaced_of(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Option<u64>, &Row) -> bool,
    ) -> Result<u64, Error>;

    /// Every hard link: the folder it is in, its name, the byte of the stream at which its own header begins, the node
    /// that it shares.
    fn hard_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Node)) -> Result<(), Error>;

    /// The same of hard links that were replaced; the last number is `None` if it led nowhere. An index that does not
    /// keep them has none.
    fn replaced_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Option<Node>)) -> Result<(), Error> {
        let _ = receive;
        Ok(())
    }
}
