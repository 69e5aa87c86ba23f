//! Where entries come from: the archive itself, or one in it. What came from an archive that a later entry of its path
//! has replaced does not show.

/// Number of an archive in the archive; 0 is the archive itself.
pub(super) type Number = u32;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// Of each, from 1 on, the one that it lies in, and whether it was replaced.
    all: Vec<(Number, bool)>,
    any_replaced: bool,
}

impl Origins {
    pub(super) fn add(&mut self, within: Number) -> Number {
        self.all.push((within, false));
        self.all.len() as Number
    }

    pub(super) fn replace(&mut self, number: Number) {
        let place = (number as usize).checked_sub(1).and_then(|at| self.all.get_mut(at));
        if let Some((_, is_replaced)) = place {
            *is_replaced = true;
            self.any_replaced = true;
        }
    }

    /// True if it was replaced, or one that it lies in.
    pub(super) fn is_gone(&self, number: Number) -> bool {
        let mut at = number;
        while self.any_replaced
            && let Some(&(within, is_replaced)) = (at as usize).checked_sub(1).and_then(|at| self.all.get(at))
        {
            if is_replaced {
                return true;
            }
            // Numbers shrink on the way out.
            at = within.min(at.saturating_sub(1));
        }
        false
    }

    /// Of each whether it is gone, or `None` if none is.
    pub(super) fn gone(&self) -> Option<Vec<bool>> {
        if !self.any_replaced {
            return None;
        }
        let mut gone = vec![false];
        for &(within, is_replaced) in &self.all {
            gone.push(is_replaced || gone.get(within as usize).copied().unwrap_or_default());
        }
        Some(gone)
    }
}
