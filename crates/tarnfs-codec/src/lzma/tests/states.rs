//! States as an index may hold them: each is right but for one thing.

use crate::lzma::Lzma2;
use crate::lzma::checkpoint::Checkpoint;
use crate::lzma::lzma1::Lzma1;
use crate::lzma::model::{Model, Properties};

const PROPERTIES: Properties = Properties { literal_context: 3, literal_position: 0, position: 2 };
const DICTIONARY: usize = 1 << 16;

/// A state of a decoder that has made 1000 bytes, of which the last 100 are kept.
fn state(owner: &[u8], change: impl FnOnce(&mut Model)) -> Vec<u8> {
    let mut model = Model::new(PROPERTIES);
    change(&mut model);
    let mut state = Checkpoint::new(owner.to_vec(), &mut model, 0);
    state.skip(900);
    state.keep(&[b'k'; 100]);
    state.pack().unwrap()
}

/// What is in a state, changed.
fn repacked(state: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut plain = vec![0; u32::from_le_bytes(*state.first_chunk().unwrap()) as usize];
    zstd_safe::decompress(&mut plain[..], &state[4..]).unwrap();
    change(&mut plain);
    let mut packed = vec![0; zstd_safe::compress_bound(plain.len())];
    let length = zstd_safe::compress(&mut packed[..], &plain, 1).unwrap();
    [&(plain.len() as u32).to_le_bytes(), &packed[..length]].concat()
}

#[test]
fn what_a_state_says_is_checked() {
    // Range and code.
    let owner = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
    let good = state(&owner, |_| {});
    let at =
        |decoded| move |state: &[u8]| Lzma1::new(PROPERTIES, DICTIONARY, Some(5000)).unwrap().resume(state, decoded);
    let mut too_long = good.clone();
    too_long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    for (state, decoded, refused) in [
        (good.clone(), 1000, None),
        (good.clone(), 5000, None),
        (good.clone(), 999, Some("has a history of another length than it can have")),
        (good.clone(), 5001, Some("lies behind the end of its data")),
        (too_long, 1000, Some("is too long")),
        (repacked(&good, |plain| plain[0] = 2), 1000, Some("has an unknown version")),
        (repacked(&good, |plain| plain.push(0)), 1000, Some("has a history of another length than it can have")),
        (state(&[0; 9], |_| {}), 1000, Some("is not one of LZMA")),
        (state(&[5, 0, 0, 0, 5, 0, 0, 0], |_| {}), 1000, Some("has a range decoder that cannot be")),
        // A literal behind a match is decoded with the byte at the last distance.
        (state(&owner, |model| (model.state, model.distances[0]) = (7, 999)), 1000, None),
        (
            state(&owner, |model| (model.state, model.distances[0]) = (7, 1000)),
            1000,
            Some("refers to what lies before its history"),
        ),
        (state(&owner, |model| (model.state, model.distances[0]) = (6, 1000)), 1000, None),
    ] {
        assert_eq!(at(decoded)(&state).err(), refused, "{decoded} bytes");
    }
    let small = Lzma1::new(PROPERTIES, 4096, None).unwrap().resume(&repacked(&good, |_| {}), 1000);
    assert_eq!(small, Ok(()));

    // LZMA2 owns a byte, and allows fewer contexts.
    let many = Properties { literal_context: 4, literal_position: 1, position: 0 };
    for (state, refused) in [
        (state(&[0], |_| {}), None),
        (state(&[1], |_| {}), None),
        (state(&[2], |_| {}), Some("is not one of LZMA2")),
        (state(&[0], |model| *model = Model::new(many)), Some("has a model that cannot be")),
    ] {
        assert_eq!(Lzma2::new(DICTIONARY).unwrap().resume(&state, 1000).err(), refused);
    }
}
