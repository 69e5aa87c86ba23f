use std::fmt;

/// Passwords for what is encrypted, in the order in which they are tried. Never shown, also not in messages.
#[derive(Clone, Default)]
pub struct Passwords(Vec<Vec<u8>>);

impl Passwords {
    /// Adds one behind the others, unless it is there or empty.
    pub fn add(&mut self, password: Vec<u8>) {
        if !password.is_empty() && !self.0.contains(&password) {
            self.0.push(password);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passwords", self.0.len())
    }
}
