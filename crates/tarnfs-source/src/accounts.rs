//! Users and groups that `/etc/passwd` and `/etc/group` do not name: those of a directory service (LDAP, SSSD), of
//! systemd, ... Only the C library knows how to ask for them, and nothing here may call it, so the program says how.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

/// Answers that are kept of each kind.
const MOST: usize = 4096;
/// Bytes of the longest name for which the system is asked: none has longer ones.
pub const LONGEST: usize = 256;

/// What says the number of a name.
type Numbers = fn(&[u8]) -> Option<u32>;

/// How the system is asked.
#[derive(Debug, Clone, Copy)]
pub struct System {
    /// The name of the user of that number.
    pub user_name: fn(u32) -> Option<Vec<u8>>,
    /// The name of the group.
    pub group_name: fn(u32) -> Option<Vec<u8>>,
    /// The number of the user of that name.
    pub user_number: fn(&[u8]) -> Option<u32>,
    /// The number of the group.
    pub group_number: fn(&[u8]) -> Option<u32>,
}

/// `None`: nobody is asked.
static SYSTEM: RwLock<Option<System>> = RwLock::new(None);

/// From now on the system is asked so; `None`: not at all, as in a process that may not open files any more. What was
/// asked before is still known.
pub fn ask(system: Option<System>) {
    *SYSTEM.write().unwrap_or_else(PoisonError::into_inner) = system;
}

fn system() -> Option<System> {
    *SYSTEM.read().unwrap_or_else(PoisonError::into_inner)
}

/// What was answered, also that there is no answer: asking may take long.
type Answers<Q, A> = LazyLock<Mutex<HashMap<Q, Option<A>>>>;

static USER_NAMES: Answers<u32, Vec<u8>> = LazyLock::new(Mutex::default);
static GROUP_NAMES: Answers<u32, Vec<u8>> = LazyLock::new(Mutex::default);
static USER_NUMBERS: Answers<Vec<u8>, u32> = LazyLock::new(Mutex::default);
static GROUP_NUMBERS: Answers<Vec<u8>, u32> = LazyLock::new(Mutex::default);

/// What is known, or else what `how` says.
fn answer<Q: Eq + Hash + Clone, A: Clone>(
    known: &Mutex<HashMap<Q, Option<A>>>,
    question: &Q,
    how: Option<impl FnOnce(&Q) -> Option<A>>,
) -> Option<A> {
    let answers = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = answers().get(question) {
        return answer.clone();
    }
    // Nobody else waits meanwhile.
    let answer = how?(question);
    let mut answers = answers();
    if answers.len() >= MOST {
        answers.clear();
    }
    answers.insert(question.clone(), answer.clone());
    answer
}

fn number_of(known: &Mutex<HashMap<Vec<u8>, Option<u32>>>, name: &[u8], how: Option<Numbers>) -> Option<u32> {
    if name.is_empty() || name.len() > LONGEST {
        return None;
    }
    answer(known, &name.to_vec(), how.map(|how| move |name: &Vec<u8>| how(name)))
}

/// The name that the system has for the user of that number.
pub fn user_name(id: u32) -> Option<Vec<u8>> {
    answer(&USER_NAMES, &id, system().map(|system| move |id: &u32| (system.user_name)(*id)))
}

/// The name that the system has for the group of that number.
pub fn group_name(id: u32) -> Option<Vec<u8>> {
    answer(&GROUP_NAMES, &id, system().map(|system| move |id: &u32| (system.group_name)(*id)))
}

/// The number that the system has for the user of that name.
pub fn user_number(name: &[u8]) -> Option<u32> {
    number_of(&USER_NUMBERS, name, system().map(|system| system.user_number))
}

/// The number that the system has for the group of that name.
pub fn group_number(name: &[u8]) -> Option<u32> {
    number_of(&GROUP_NUMBERS, name, system().map(|system| system.group_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_and_nobody_is_asked_when_that_is_over() {
        let lisa = System {
            user_name: |id| (id == 7).then(|| b"lisa".to_vec()),
            group_name: |_| None,
            user_number: |name| (name == b"lisa").then_some(7),
            group_number: |_| panic!("nobody asks for groups"),
        };
        assert_eq!(user_number(b"lisa"), None);
        ask(Some(lisa));
        assert_eq!(user_number(b"lisa"), Some(7));
        assert_eq!(user_name(7).as_deref(), Some(&b"lisa"[..]));
        assert_eq!((user_name(8), group_name(7)), (None, None));
        assert_eq!((group_number(b""), group_number(&[b'x'; 300])), (None, None));
        for id in 100..100 + 2 * MOST as u32 {
            assert_eq!(user_name(id), None);
        }
        assert!(USER_NAMES.lock().unwrap().len() <= MOST);
        ask(None);
        assert_eq!((user_number(b"lisa"), user_name(7)), (Some(7), None));
    }
}
