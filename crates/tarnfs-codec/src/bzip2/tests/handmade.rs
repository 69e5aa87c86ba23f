use tarnfs_source::Cancel;

use super::super::finder::Finder;
use super::encoder::Recipe;
use super::*;

/// Decodes the recipe's stream here and with bzip2: both must give the same.
fn agrees_with_bzip2(what: &str, recipe: &Recipe) -> Outcome {
    let stream = recipe.stream();
    let (whole, expected) = pipe("bzip2", &["-dc"], &stream);
    let outcome = first_pass(&stream);
    assert_eq!(whole, outcome.error.is_none() && outcome.damage.is_empty(), "{what}: bzip2 says {whole}, {outcome:?}");
    if whole {
        assert!(outcome.bytes == expected && expected == recipe.plain(), "{what}");
        check_whole(what, &stream, &expected);
    }
    outcome
}

#[test]
fn a_block_made_by_hand_is_one_of_bzip2() {
    let recipe = Recipe::new(&prose(3000));
    assert!(agrees_with_bzip2("prose", &recipe).error.is_none());
    let recipe = Recipe { more_selectors: 20_000, ..recipe };
    assert!(agrees_with_bzip2("more selectors than a block can need", &recipe).error.is_none());
}

#[test]
fn randomised_blocks_are_restored() {
    // Long enough that several bits were inverted, one of them in each of the first stretches.
    for length in [1, 617, 618, 619, 1337, 1338, 5000] {
        let recipe = Recipe { is_randomised: true, ..Recipe::new(&prose(length)) };
        assert!(agrees_with_bzip2(&format!("{length} bytes, randomised"), &recipe).error.is_none());
    }
}

/// Each of these blocks would be whole if that check were missing, and is none to bzip2 either.
#[test]
fn blocks_that_no_checksum_gives_away_are_refused() {
    let long = noise(100_001, 3);
    let unused = vec![20; Recipe::new(b"abc").alphabet()];
    for (message, recipe) in [
        // A run of 2^32 and 3 bytes.
        ("a run is longer", Recipe { run_off_by: 1 << 32, ..Recipe::new(b"aaa") }),
        // It ends in no run, which would be checked by itself.
        ("longer than its level", Recipe { level: 1, ..Recipe::new(&long) }),
        ("no Huffman code", Recipe { lengths: unused, ends_in_ones: true, ..Recipe::new(b"abc") }),
        ("uses no bytes", Recipe { uses_nothing: true, ..Recipe::new(b"\0") }),
        ("no selectors", Recipe { has_no_selectors: true, ..Recipe::new(b"abc") }),
    ] {
        let outcome = agrees_with_bzip2(message, &recipe);
        assert_eq!((outcome.bytes.len(), outcome.error), (0, Some(io::ErrorKind::InvalidData)), "{message}");
        assert!(outcome.message.contains(message), "{message}: {}", outcome.message);
    }
}

/// The bits of a block that could also be selectors.
fn block_of_selectors() -> Vec<bool> {
    let bits = |seed| {
        let stream = Recipe::new(&noise(3, seed)).stream();
        let points = first_pass(&stream).points;
        let bits: Vec<_> = (0..stream.len() as u64 * 8).map(|bit| bit_of(&stream, bit)).collect();
        let end: Vec<_> = (0..48).rev().map(|bit| END_MAGIC >> bit & 1 == 1).collect();
        let end = bits.windows(48).position(|window| window == end).unwrap();
        bits[points[0].compressed_bit as usize..end].to_vec()
    };
    (1..1000).map(bits).find(|bits| bits.windows(6).all(|six| six.contains(&false))).unwrap()
}

#[test]
fn blocks_inside_of_blocks_are_not_blocks() {
    let hidden = block_of_selectors().repeat(3);
    let parts = [prose(3000), prose(200), noise(4000, 8)];
    let recipes = parts.each_ref().map(|part| Recipe { hidden: hidden.clone(), codes: 6, ..Recipe::new(part) });
    assert!(recipes.iter().all(|recipe| agrees_with_bzip2("hidden blocks", recipe).is_whole()));
    let stream = recipes.each_ref().map(Recipe::stream).concat();
    let mut finder = Finder::new(memory(&stream), 0);
    let found = std::iter::from_fn(|| finder.next(&Cancel::default()).unwrap());
    assert_eq!(found.count(), 3 * 4);
    assert_eq!(check_whole("hidden blocks", &stream, &recipes.each_ref().map(Recipe::plain).concat()).len(), 3);
    // Where the block around them cannot be read, they are all that is there; on any number of threads.
    let mut damaged = stream.clone();
    damaged[18..21].fill(0xff);
    let outcome = first_pass(&damaged);
    assert_eq!(outcome.points.len(), 7, "{:?}", outcome.damage);
}

#[test]
fn runs_without_a_count_and_with_every_count() {
    for (block, error) in [
        (b"aaaaa".as_slice(), None),
        (b"aaaa\0aaaa\xff", None),
        (b"aaaa", Some(io::ErrorKind::InvalidData)),
        (b"xaaaa", Some(io::ErrorKind::InvalidData)),
    ] {
        assert_eq!(agrees_with_bzip2(&format!("{block:?}"), &Recipe::new(block)).error, error);
    }
    let every: Vec<u8> = (0..=255).flat_map(|count| [b'n', b'n', b'n', b'n', count, b'-']).collect();
    assert!(agrees_with_bzip2("every count", &Recipe::new(&every)).error.is_none());
}

#[test]
fn the_longest_codes_decode() {
    let block: Vec<u8> = (0..400_usize).map(|n| b'a' + (n * n / 7 % 19) as u8).collect();
    let mut recipe = Recipe::new(&block);
    assert_eq!(recipe.alphabet(), 21);
    recipe.lengths = (1..=19).chain([20, 20]).collect();
    assert!(agrees_with_bzip2("lengths 1 to 20", &recipe).error.is_none());
    recipe.lengths.reverse();
    assert!(agrees_with_bzip2("lengths 20 to 1", &recipe).error.is_none());
    recipe.lengths.fill(20);
    assert!(agrees_with_bzip2("all of 20 bits, most of them unused", &recipe).error.is_none());
    recipe.lengths = vec![11; 21];
    assert!(agrees_with_bzip2("one bit longer than the first table", &recipe).error.is_none());
}

#[test]
fn codes_with_too_many_symbols_are_refused() {
    let mut recipe = Recipe::new(b"one of these codes cannot be told from another");
    for length in [1, 2, 3] {
        recipe.lengths = vec![length; recipe.alphabet()];
        assert_eq!(first_pass(&recipe.stream()).error, Some(io::ErrorKind::InvalidData), "{length}");
    }
    // All of one bit: more codes than 20 bits can hold many times over.
    let mut recipe = Recipe::new(&(0..=255).collect::<Vec<u8>>());
    recipe.lengths = vec![1; recipe.alphabet()];
    assert_eq!(first_pass(&recipe.stream()).error, Some(io::ErrorKind::InvalidData));
}

#[test]
fn headers_that_lie_are_refused() {
    let good = Recipe::new(&prose(200));
    for (what, recipe) in [
        ("a selector of a code that is not there", Recipe { hidden: vec![true; 2], ..good.clone() }),
        ("one code", Recipe { codes: 1, ..good.clone() }),
        ("seven codes", Recipe { codes: 7, ..good.clone() }),
        ("origin behind the block", Recipe { origin_off_by: 200, ..good.clone() }),
        ("another origin", Recipe { origin_off_by: 1, block: b"ab".to_vec(), ..good.clone() }),
    ] {
        let outcome = agrees_with_bzip2(what, &recipe);
        assert!(outcome.error == Some(io::ErrorKind::InvalidData) || outcome.damage.len() == 1, "{what}: {outcome:?}");
    }
    // Rows that make several closed walks, of which the origin is on one: the text repeats that, as in bzip2.
    let twins = Recipe::new(&b"abcabcabc"[..]);
    assert!(agrees_with_bzip2("closed walks", &twins).error.is_none());
    // Long enough for marks in it, and its end is not that of the walk.
    let repeated = Recipe { beside: noise(8000, 5), ..Recipe::new(&noise(20_000, 9)) };
    assert!(agrees_with_bzip2("a long walk that is repeated in part", &repeated).error.is_none());
}

#[test]
fn a_block_longer_than_its_level_is_refused() {
    let plain = prose(200_000);
    let mut compressed = compress("bzip2", &["-2"], &plain);
    compressed[3] = b'1';
    // It is left out; there is a short one behind it.
    let outcome = first_pass(&compressed);
    assert_eq!((outcome.damage[0].decoded.clone(), outcome.points.len()), (0..512, 2));
    assert!(plain.ends_with(&outcome.bytes[512..]));
    // Nor is one that was decoded ahead, when nobody knew the level yet.
    let streams = [compress("bzip2", &["-1", "-c"], &prose(99_000)), compressed].concat().repeat(4);
    let damage = first_pass(&streams).damage;
    assert_eq!(damage.iter().filter(|damage| !damage.decoded.is_empty()).count(), 4, "{damage:?}");
    // A run alone, as zeros make it, must not go past the end either.
    let mut compressed = compress("bzip2", &["-9"], &b"ab".repeat(400_000));
    assert!(first_pass(&compressed).error.is_none());
    compressed[3] = b'7';
    assert_eq!(first_pass(&compressed).error, Some(io::ErrorKind::InvalidData));
}
