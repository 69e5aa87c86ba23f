use super::{CODERS, coder_by_name};
use crate::CODECS;

#[test]
fn coders_have_names_of_their_own_and_never_bid() {
    let mut names: Vec<_> = CODECS.iter().chain(CODERS).map(|codec| codec.name()).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    for coder in CODERS {
        assert!(coder.suffixes().is_empty() && coder.bid(&[0; 1024]) == 0 && !coder.is_known_by_name_only());
        assert_eq!(coder_by_name(coder.name()).unwrap().name(), coder.name());
    }
    assert!(coder_by_name("gzip").is_some() && coder_by_name("").is_none());
}
