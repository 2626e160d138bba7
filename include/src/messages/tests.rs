//! Written messages are read back unchanged, and no bytes of a peer do harm.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::wire::{OLDEST, VERSION};

/// A large number, so that it is not taken for another field.
const GPU: GpuNumber = GpuNumber(0x0102_0304);

/// A direction's messages, as tests draw them. The declaration of the messages implements this.
pub(super) trait Drawn: Sized {
    /// The numbers of all kinds.
    const KINDS: &[u32];

    /// Draws any message.
    fn any() -> BoxedStrategy<Self>;
}

fn kind(message: &impl Message) -> u32 {
    u32::from_le_bytes(message.encode(GPU)[4..8].try_into().expect("every message has a kind"))
}

#[test]
fn every_kind_of_message_is_drawn() {
    fn kinds<T: Drawn + Message>() -> BTreeSet<u32> {
        let (strategy, mut runner) = (T::any(), TestRunner::deterministic());
        let mut next = || strategy.new_tree(&mut runner).expect("nothing is filtered").current();
        (0..1000).map(|_| kind(&next())).collect()
    }
    assert_eq!(kinds::<FromTenant>(), BTreeSet::from_iter(FromTenant::KINDS.iter().copied()));
    assert_eq!(kinds::<FromCoordinator>(), BTreeSet::from_iter(FromCoordinator::KINDS.iter().copied()));
}

/// The numbers that messages of all kinds have on the wire, and some more.
static KINDS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let known = FromTenant::KINDS.iter().chain(FromCoordinator::KINDS).copied();
    let most = known.clone().max().expect("there are messages");
    known.chain([0, most + 1, u32::MAX]).collect()
});

proptest! {
    #[test]
    fn what_a_tenant_says_is_what_the_coordinator_reads(message in FromTenant::any()) {
        let bytes = message.encode(GPU);
        prop_assert!(bytes.len() <= MAX_MESSAGE);
        prop_assert!(message.descriptors() <= MAX_DESCRIPTORS);
        prop_assert_eq!(FromTenant::decode(&bytes), Ok((GPU, message)));
    }

    #[test]
    fn what_the_coordinator_says_is_what_a_tenant_reads(message in FromCoordinator::any()) {
        let bytes = message.encode(GPU);
        prop_assert!(bytes.len() <= MAX_MESSAGE);
        prop_assert!(message.descriptors() <= MAX_DESCRIPTORS);
        prop_assert_eq!(FromCoordinator::decode(&bytes), Ok((GPU, message)));
    }

    #[test]
    fn a_message_cut_short_or_made_longer_is_refused(message in FromTenant::any(), cut in any::<prop::sample::Index>()) {
        let mut bytes = message.encode(GPU);
        prop_assert!(FromTenant::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(FromTenant::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(&KINDS[..]),
    ) {
        let _ = FromTenant::decode(&bytes);
        let _ = FromCoordinator::decode(&bytes);
        // Checks the same behind a valid header, so that the fields' checks are reached.
        let good = [VERSION.to_le_bytes().as_slice(), &kind.to_le_bytes(), &bytes].concat();
        if let Ok((gpu, read)) = FromTenant::decode(&good) {
            prop_assert_eq!(read.encode(gpu), good.clone());
        }
        if let Ok((gpu, read)) = FromCoordinator::decode(&good) {
            prop_assert_eq!(read.encode(gpu), good);
        }
        let good = [OLDEST.to_le_bytes().as_slice(), &kind.to_le_bytes(), &bytes].concat();
        if let Ok((gpu, read)) = FromTenant::decode_in(&good, Version::BEFORE) {
            prop_assert_eq!(read.encode_in(gpu, Version::BEFORE), good);
        }
    }
}

/// Messages of the version before, two of each kind, as that version wrote them: the side that says it, and its bytes.
const OF_BEFORE: &str = include_str!("version_21.txt");

#[test]
fn messages_of_the_version_before_are_read_and_written_as_they_were() {
    for line in OF_BEFORE.lines() {
        let (side, digits) = line.split_once(' ').expect("a side and bytes");
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        assert_eq!(Version::of(&bytes), Ok(Version::BEFORE), "bytes of the version before are kept here");
        let written = match side {
            "tenant" => {
                FromTenant::decode_in(&bytes, Version::BEFORE).map(|(gpu, it)| it.encode_in(gpu, Version::BEFORE))
            }
            _ => {
                FromCoordinator::decode_in(&bytes, Version::BEFORE).map(|(gpu, it)| it.encode_in(gpu, Version::BEFORE))
            }
        };
        assert_eq!(written, Ok(bytes), "{line}");
    }
    let kinds: BTreeSet<&str> = OF_BEFORE.lines().map(|line| &line[..line.find(' ').expect("a space") + 17]).collect();
    assert!(kinds.len() >= 80, "of each kind that it had: {}", kinds.len());
}

#[test]
fn a_message_of_one_version_is_refused_in_the_other() {
    let (name, scheduling) = ("one".to_owned(), Scheduling::default());
    let hello = Opening::Hello { name, scheduling, gpu: [7; 16], needs: 0, run: 1, gang: 0 };
    let [before, now] = [Version::BEFORE, Version::NOW].map(|version| hello.encode_in(GPU, version));
    // A field that a version lacks has the value that stands for it.
    assert_eq!(FromTenant::decode_in(&before, Version::BEFORE), Ok((GPU, hello.clone().into())));
    assert_eq!(FromTenant::decode(&now), Ok((GPU, hello.into())));
    assert!(before.len() < now.len());
    assert_eq!(FromTenant::decode(&before), Err(Malformed::Version { theirs: OLDEST }));
    assert_eq!(FromTenant::decode_in(&now, Version::BEFORE), Err(Malformed::Version { theirs: VERSION }));
}

#[test]
fn another_version_is_told_apart_from_nonsense() {
    let mut bytes = TurnReport::Demand.encode(GPU);
    let other = VERSION + 1;
    bytes[..4].copy_from_slice(&other.to_le_bytes());
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::Version { theirs: other }));
    // The rest may have a form that this version does not know.
    bytes.resize(MAX_MESSAGE + 1, 0xEE);
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::Version { theirs: other }));
}

#[test]
fn a_list_that_claims_more_than_there_is_costs_nothing() {
    let mut bytes = Request::Free { extents: vec![] }.encode(GPU);
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&(MAX_LISTED as u32).to_le_bytes());
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::Short));
    bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::TooLong { field: "extents", length: u32::MAX }));
}

#[test]
fn a_text_that_is_too_long_is_cut_at_a_character() {
    let text = "é".repeat(MAX_TEXT);
    let bytes = TurnCommand::End { text: text.clone() }.encode(GPU);
    let cut = text[..MAX_TEXT].to_owned();
    assert_eq!(FromCoordinator::decode(&bytes), Ok((GPU, TurnCommand::End { text: cut }.into())));
    let named = |name: &str| Opening::Evict { name: name.to_owned() };
    let odd = format!("{}é", "x".repeat(MAX_NAME - 1));
    assert_eq!(FromTenant::decode(&named(&odd).encode(GPU)), Ok((GPU, named(&odd[..MAX_NAME - 1]).into())));
}
