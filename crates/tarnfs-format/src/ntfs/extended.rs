//! Extended attributes as OS/2 had them (`$EA`), in which Linux on Windows (WSL) keeps owners, modes and devices.
//!
//! How they lie: [MS-FSCC], section 2.4.16; their names: "File Permissions for WSL" (Microsoft).

use crate::Device;
use crate::little::{u16_at, u32_at};

/// Bytes of one before its name.
const HEADER: usize = 8;

/// What Linux on Windows keeps of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OfLinux {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mode: Option<u32>,
    pub(super) device: Device,
}

/// The names and values in `bytes`, up to one that is damaged.
pub(super) fn pairs(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let own = rest.take()?;
        let (next, name) = (u32_at(own, 0)? as usize, usize::from(*own.get(5)?));
        let behind = HEADER.checked_add(name)?;
        // A zero ends the name.
        let value = behind.checked_add(1)?;
        let end = value.checked_add(usize::from(u16_at(own, 6)?))?;
        let found = (own.get(HEADER..behind)?, own.get(value..end)?);
        rest = own.get(next..).filter(|_| next >= end);
        Some(found)
    })
}

impl OfLinux {
    /// Takes up an attribute, if it is one of these.
    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) -> bool {
        let word = u32_at(value, 0).filter(|_| value.len() == 4);
        match name {
            b"$LXUID" if word.is_some() => self.uid = word,
            b"$LXGID" if word.is_some() => self.gid = word,
            b"$LXMOD" if word.is_some() => self.mode = word,
            b"$LXDEV" if value.len() == 8 => {
                let [major, minor] = [0, 4].map(|at| u32_at(value, at).unwrap_or_default());
                self.device = Device { major, minor };
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &[u8], is_last: bool) -> Vec<u8> {
        let mut own = vec![0; 4];
        own.extend([0, name.len() as u8]);
        own.extend((value.len() as u16).to_le_bytes());
        own.extend([name.as_bytes(), &[0], value].concat());
        own.resize(own.len().next_multiple_of(4), 0);
        let next = if is_last { 0 } else { own.len() as u32 };
        own[..4].copy_from_slice(&next.to_le_bytes());
        own
    }

    #[test]
    fn what_linux_keeps_is_found() {
        let mode = 0o100_750_u32.to_le_bytes();
        let device = [8_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat();
        let all = [
            one("$LXUID", &1000_u32.to_le_bytes(), false),
            one("NAME", b"value", false),
            one("$LXMOD", &mode, false),
            one("$LXDEV", &device, true),
        ]
        .concat();
        let (mut of_linux, mut others) = (OfLinux::default(), Vec::new());
        for (name, value) in pairs(&all) {
            if !of_linux.take(name, value) {
                others.push((name, value));
            }
        }
        let device = Device { major: 8, minor: 1 };
        assert_eq!(of_linux, OfLinux { uid: Some(1000), gid: None, mode: Some(0o100_750), device });
        assert_eq!(others, [(&b"NAME"[..], &b"value"[..])]);
        for length in 0..all.len() {
            assert!(pairs(&all[..length]).count() <= 4);
        }
        // One that leads to itself.
        assert_eq!(pairs(&[&[4, 0, 0, 0, 0, 1, 0, 0, b'x'][..], &[0; 9]].concat()).count(), 1);
    }
}
