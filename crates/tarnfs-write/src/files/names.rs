//! Names of users and groups of this machine: of its files, or else as the system knows them.

use std::collections::HashMap;
use std::sync::OnceLock;

use tarnfs_source::accounts;

/// Names by number, and numbers by name. Where a number or a name stands twice, the first one counts.
#[derive(Default)]
struct Table {
    names: HashMap<u32, Vec<u8>>,
    numbers: HashMap<Vec<u8>, u32>,
}

/// Lines of "name:password:number:...".
fn parse(file: &[u8]) -> Table {
    let mut table = Table::default();
    for line in file.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b':');
        let (Some(name), Some(number)) = (fields.next(), fields.nth(1)) else { continue };
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        if let Some(number) = number.filter(|_| !name.is_empty()) {
            table.names.entry(number).or_insert_with(|| name.to_vec());
            table.numbers.entry(name.to_vec()).or_insert(number);
        }
    }
    table
}

fn read(path: &str) -> Table {
    std::fs::read(path).map(|file| parse(&file)).unwrap_or_default()
}

fn users() -> &'static Table {
    static USERS: OnceLock<Table> = OnceLock::new();
    USERS.get_or_init(|| read("/etc/passwd"))
}

fn groups() -> &'static Table {
    static GROUPS: OnceLock<Table> = OnceLock::new();
    GROUPS.get_or_init(|| read("/etc/group"))
}

/// The name of a user.
pub fn user_name(id: u32) -> Option<Vec<u8>> {
    users().names.get(&id).cloned().or_else(|| accounts::user_name(id))
}

/// The name of a group.
pub fn group_name(id: u32) -> Option<Vec<u8>> {
    groups().names.get(&id).cloned().or_else(|| accounts::group_name(id))
}

/// The number of the user of that name.
pub fn user_number(name: &[u8]) -> Option<u32> {
    users().numbers.get(name).copied().or_else(|| accounts::user_number(name))
}

/// The number of the group of that name.
pub fn group_number(name: &[u8]) -> Option<u32> {
    groups().numbers.get(name).copied().or_else(|| accounts::group_number(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_counts() {
        let table = parse(b"root:x:0:0::/:\ntoor:x:0:0::/:\n:x:3:\nbroken\nlisa:x:many:\nroot:x:7:");
        assert_eq!(table.names.get(&0).map(Vec::as_slice), Some(&b"root"[..]));
        assert_eq!(table.numbers.get(&b"toor"[..]), Some(&0));
        assert_eq!(table.numbers.get(&b"root"[..]), Some(&0));
        assert_eq!(table.numbers.len(), 2);
    }
}
