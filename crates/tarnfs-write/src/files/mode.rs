//! `--mode`: permission bits as chmod(1) takes them.

/// What becomes of permission bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange(Vec<Clause>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clause {
    /// Whose bits; 0 where nobody is named.
    who: u32,
    action: Action,
    /// Without those of the umask, where nobody is named.
    bits: u32,
    /// X: the right to execute, where somebody has it, and for folders.
    execute: u32,
    /// Setuid and setgid of folders that it does not name stay as they are.
    named: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Set,
    Add,
    Remove,
}

const USER: u32 = 0o4700;
const GROUP: u32 = 0o2070;
const OTHERS: u32 = 0o1007;
const ALL: u32 = 0o7777;
const SET_IDS: u32 = 0o6000;

impl ModeChange {
    /// Of `u+rw,go-w` or `0644`; `None` if it means nothing. Where it does not say whose bits, those of the `umask`
    /// stay as they are, as with chmod.
    pub fn parse(text: &str, umask: u32) -> Option<Self> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= ALL)?;
            // With five digits, all are named.
            let named = if text.len() > 4 { ALL } else { bits };
            return Some(Self(vec![Clause { who: ALL, action: Action::Set, bits, execute: 0, named }]));
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            let letters = part.find(['+', '-', '=']).filter(|_| !part.is_empty())?;
            let (people, mut rest) = part.split_at(letters);
            let mut who = 0;
            for letter in people.chars() {
                who |= match letter {
                    'u' => USER,
                    'g' => GROUP,
                    'o' => OTHERS,
                    'a' => ALL,
                    _ => return None,
                };
            }
            let affected = if people.is_empty() { ALL & !umask } else { who };
            while let Some(sign) = rest.chars().next() {
                let action = match sign {
                    '+' => Action::Add,
                    '-' => Action::Remove,
                    '=' => Action::Set,
                    _ => return None,
                };
                rest = &rest[1..];
                let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
                let (rights, behind) = rest.split_at(end);
                rest = behind;
                let (mut bits, mut execute) = (0, false);
                for letter in rights.chars() {
                    bits |= match letter {
                        'r' => 0o444,
                        'w' => 0o222,
                        'x' => 0o111,
                        's' => 0o6000,
                        't' => 0o1000,
                        'X' => {
                            execute = true;
                            0
                        }
                        _ => return None,
                    };
                }
                let execute = if execute { 0o111 & affected } else { 0 };
                clauses.push(Clause { who, action, bits: bits & affected, execute, named: bits & affected });
            }
        }
        Some(Self(clauses))
    }

    /// What becomes of `mode`.
    pub(super) fn of(&self, mut mode: u32, is_folder: bool) -> u32 {
        for clause in &self.0 {
            let kept = if is_folder { SET_IDS & !clause.named } else { 0 };
            let executes = is_folder || mode & 0o111 != 0;
            let bits = (clause.bits | if executes { clause.execute } else { 0 }) & !kept;
            mode = match (clause.action, clause.who) {
                (Action::Add, _) => mode | bits,
                (Action::Remove, _) => mode & !bits,
                (Action::Set, 0) => mode & kept | bits,
                (Action::Set, who) => mode & (!who | kept) | bits,
            };
        }
        mode & ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_changes_them() {
        for (text, mode, is_folder, expected) in [
            ("0644", 0o7777, false, 0o644),
            ("u+rw,go-w", 0o466, false, 0o644),
            ("a+rX", 0o600, false, 0o644),
            ("a+rX", 0o600, true, 0o755),
            ("a+rX", 0o700, false, 0o755),
            ("go=", 0o777, false, 0o700),
            ("+t", 0o755, true, 0o1755),
            ("+w", 0o444, false, 0o644),
            ("-w", 0o666, false, 0o466),
            ("a+w", 0o444, false, 0o666),
            ("u+s,g-s", 0o2755, false, 0o4755),
            ("u=rwx+s-w", 0o000, false, 0o4500),
            ("=r", 0o777, false, 0o444),
            ("=rw", 0o777, false, 0o644),
            // Of folders, what is not named stays.
            ("755", 0o2775, true, 0o2755),
            ("755", 0o2775, false, 0o755),
            ("00755", 0o2775, true, 0o755),
            ("4755", 0o2775, true, 0o6755),
            ("u=rwX,go=rX", 0o6775, true, 0o6755),
            ("u=rwX,go=rX", 0o6775, false, 0o755),
            ("g-s", 0o2755, true, 0o755),
            ("g=rxs", 0o4755, true, 0o6755),
            ("=rx", 0o2777, true, 0o2555),
        ] {
            assert_eq!(ModeChange::parse(text, 0o022).unwrap().of(mode, is_folder), expected, "{text} {mode:o}");
        }
        for bad in ["", "rwx", "u+q", "z+r", "9", "17777", "u+r,,o+r"] {
            assert!(ModeChange::parse(bad, 0o022).is_none(), "{bad}");
        }
    }
}
