//! What is damaged in an image, as long as it is not too much to tell.

use crate::{Damage, Error, Event, ReceiveRandom};

/// Damage that is told singly: an image may have any number of names that lead nowhere.
const MOST_TOLD: u64 = 1000;

/// How often damage was met.
#[derive(Debug, Default)]
pub(crate) struct Damages(u64);

impl Damages {
    /// Tells of damage at byte `offset`.
    pub(crate) fn tell(&mut self, receive: &mut ReceiveRandom<'_>, offset: u64, what: String) -> Result<(), Error> {
        self.0 = self.0.saturating_add(1);
        let what = match self.0 {
            ..MOST_TOLD => what,
            MOST_TOLD => "more is damaged than is told here".to_owned(),
            _ => return Ok(()),
        };
        receive(Event::Damage(Damage { offset, what })).map_err(Error::Receiver)
    }
}
