//! What is written is read back, and nothing that a peer can send does harm.
//!
//! A new variant of a message belongs into its strategy and into its list of `variants!`. The compiler demands the
//! second; the test that all variants are drawn demands the first.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use baton_contract::class::Class;
use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{
    ArrivalStory, Channels, DriverKind, ExtentId, FromCoordinator, FromTenant, Full, MAX_CHANNELS, MAX_EXTENTS,
    MAX_LISTED, MAX_NAME, MAX_TEXT, Refusal,
};
use baton_contract::resource_manager::Objects;
use baton_contract::scheduling::{Change, MAX_SLO_MICROS, MAX_WEIGHT, Scheduling};
use baton_contract::wire::{MAX_MESSAGE, Malformed, VERSION};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// The name of a value's variant, and the names of all: what is missing in the list does not compile.
macro_rules! variants {
    ($type:ident: $($variant:ident),* $(,)?) => {
        impl Variants for $type {
            const ALL: &[&str] = &[$(stringify!($variant)),*];

            fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    };
}

trait Variants {
    const ALL: &[&str];

    fn variant(&self) -> &'static str;
}

variants! {
    FromTenant:
    Hello,
    Demand,
    Opened,
    Closed,
    Busy,
    Done,
    Failed,
    Allocate,
    Free,
    Room,
    Status,
    Used,
    Arrived,
    Evict,
    Channels,
    Held,
    Probed,
    AtWork,
    Set,
    Expect,
}

variants! {
    FromCoordinator:
    Welcome,
    Beside,
    Board,
    Refused,
    Grant,
    Revoke,
    Hold,
    Contend,
    Probe,
    Alone,
    Map,
    Prepare,
    Unmap,
    Lent,
    Denied,
    Freed,
    Later,
    Room,
    Pointers,
    KeepShort,
    Text,
    Queued,
    Offer,
    End,
}

variants!(Refusal: Version, OtherGpu, Busy, Failed, Malformed);
variants!(DriverKind: System, Simulated, File);
variants!(Full: Arena, HostPool, Held);
variants!(Channels: None, Simulated, ResourceManager);

/// What a strategy draws.
fn drawn<T>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..1000).map(|_| strategy.new_tree(&mut runner).expect("nothing is filtered").current()).collect()
}

#[track_caller]
fn all_are_drawn<'a, T: Variants + 'a>(drawn: impl IntoIterator<Item = &'a T>) {
    let drawn: BTreeSet<&str> = drawn.into_iter().map(Variants::variant).collect();
    let missing: Vec<_> = T::ALL.iter().filter(|variant| !drawn.contains(*variant)).collect();
    assert!(missing.is_empty(), "{} never draws {missing:?}", std::any::type_name::<T>());
}

#[test]
fn every_variant_of_every_message_is_drawn() {
    let (tenants, coordinators) = (drawn(from_tenant()), drawn(from_coordinator()));
    all_are_drawn(&tenants);
    all_are_drawn(&coordinators);
    all_are_drawn(coordinators.iter().filter_map(|message| match message {
        FromCoordinator::Refused { reason, .. } => Some(reason),
        _ => None,
    }));
    all_are_drawn(coordinators.iter().filter_map(|message| match message {
        FromCoordinator::Denied { full } => Some(full),
        _ => None,
    }));
    all_are_drawn(coordinators.iter().filter_map(|message| match message {
        FromCoordinator::Offer { driver, .. } => Some(driver),
        _ => None,
    }));
    all_are_drawn(tenants.iter().filter_map(|message| match message {
        FromTenant::Channels { channels } => Some(channels),
        _ => None,
    }));
}

/// The numbers that messages of all kinds have on the wire, and some more.
static KINDS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let (tenants, coordinators) = (drawn(from_tenant()), drawn(from_coordinator()));
    let messages = tenants.iter().map(FromTenant::encode).chain(coordinators.iter().map(FromCoordinator::encode));
    let kind = |message: Vec<u8>| u32::from_le_bytes(message[4..8].try_into().expect("every message has a kind"));
    let kinds: BTreeSet<u32> = messages.map(kind).collect();
    let most = *kinds.last().expect("there are messages");
    kinds.into_iter().chain([0, most + 1, u32::MAX]).collect()
});

fn extents() -> impl Strategy<Value = Vec<ExtentId>> {
    vec(any::<u32>().prop_map(ExtentId), 0..=MAX_EXTENTS)
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(&Class::ALL[..])
}

fn scheduling() -> impl Strategy<Value = Scheduling> {
    (class(), 1..=MAX_WEIGHT, 0..=MAX_SLO_MICROS).prop_map(|(class, weight, slo_micros)| match class {
        Class::Latency => Scheduling { class, weight: 1, slo_micros },
        Class::Normal | Class::Batch => Scheduling { class, weight, slo_micros: 0 },
    })
}

fn change() -> impl Strategy<Value = Change> {
    use prop::option::of;
    (of(class()), of(any::<u32>()), of(any::<u64>()), of(any::<bool>()))
        .prop_map(|(class, weight, slo_micros, suspended)| Change { class, weight, slo_micros, suspended })
}

fn from_tenant() -> impl Strategy<Value = FromTenant> {
    let name = vec(any::<char>(), 0..=MAX_NAME / 4).prop_map(|name| name.into_iter().collect::<String>());
    prop_oneof![
        (name, scheduling(), any::<[u8; 16]>()).prop_map(|(name, scheduling, gpu)| FromTenant::Hello {
            name,
            scheduling,
            gpu
        }),
        Just(FromTenant::Demand),
        any::<u64>().prop_map(|grant| FromTenant::Opened { grant }),
        any::<(u64, u64)>().prop_map(|(grant, drain_micros)| FromTenant::Closed { grant, drain_micros }),
        any::<u64>().prop_map(|grant| FromTenant::Busy { grant }),
        any::<(u32, u64)>().prop_map(|(batch, micros)| FromTenant::Done { batch, micros }),
        any::<(u32, u32)>().prop_map(|(batch, code)| FromTenant::Failed { batch, code }),
        any::<u64>().prop_map(|bytes| FromTenant::Allocate { bytes }),
        extents().prop_map(|extents| FromTenant::Free { extents }),
        any::<u64>().prop_map(|bytes| FromTenant::Room { bytes }),
        Just(FromTenant::Status),
        (any::<u64>(), vec(any::<(u32, u32)>(), 0..=MAX_LISTED)).prop_map(|(grant, used)| {
            let extents = used.into_iter().map(|(extent, micros)| (ExtentId(extent), micros)).collect();
            FromTenant::Used { grant, extents }
        }),
        any::<(u64, [u64; 5])>().prop_map(|(grant, [a, b, c, d, e])| {
            let story = ArrivalStory {
                first_extent_micros: a,
                first_call_micros: b,
                end_micros: c,
                waits: d,
                waited_micros: e,
            };
            FromTenant::Arrived { grant, story }
        }),
        "[a-z]{0,64}".prop_map(|name| FromTenant::Evict { name }),
        Just(FromTenant::Channels { channels: Channels::None }),
        any::<u32>().prop_map(|process| FromTenant::Channels { channels: Channels::Simulated { process } }),
        (any::<u32>(), any::<u32>(), vec(any::<u32>(), 0..=MAX_CHANNELS), vec(any::<u32>(), 0..=MAX_CHANNELS))
            .prop_map(|(client, subdevice, channels, groups)| {
                let compute = groups.clone();
                let objects = Objects { client, subdevice, channels, compute, groups };
                FromTenant::Channels { channels: Channels::ResourceManager(objects) }
            }),
        any::<u64>().prop_map(|grant| FromTenant::Held { grant }),
        any::<u32>().prop_map(|number| FromTenant::Probed { number }),
        Just(FromTenant::AtWork),
        ("[a-z]{0,64}", change()).prop_map(|(name, change)| FromTenant::Set { name, change }),
        Just(FromTenant::Expect),
    ]
}

fn from_coordinator() -> impl Strategy<Value = FromCoordinator> {
    let reason = prop::sample::select(vec![
        Refusal::Version,
        Refusal::OtherGpu,
        Refusal::Busy,
        Refusal::Failed,
        Refusal::Malformed,
    ]);
    let driver = prop::sample::select(vec![DriverKind::System, DriverKind::Simulated, DriverKind::File]);
    let full = prop::sample::select(vec![Full::Arena, Full::HostPool, Full::Held]);
    let lent = vec((any::<u32>().prop_map(ExtentId), prop::sample::select(&SizeClass::ALL[..])), 0..=MAX_EXTENTS);
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(tenant, place)| FromCoordinator::Welcome { tenant, place }),
        any::<bool>().prop_map(|on| FromCoordinator::Beside { on }),
        any::<u32>().prop_map(|place| FromCoordinator::Board { place }),
        (reason, ".{0,200}").prop_map(|(reason, text)| FromCoordinator::Refused { reason, text }),
        any::<(u64, bool)>().prop_map(|(grant, arriving)| FromCoordinator::Grant { grant, arriving }),
        any::<(u64, u64)>().prop_map(|(grant, limit_micros)| FromCoordinator::Revoke { grant, limit_micros }),
        any::<u64>().prop_map(|grant| FromCoordinator::Hold { grant }),
        any::<u64>().prop_map(|patience_micros| FromCoordinator::Contend { patience_micros }),
        any::<u32>().prop_map(|number| FromCoordinator::Probe { number }),
        Just(FromCoordinator::Alone),
        (any::<u32>(), extents()).prop_map(|(batch, extents)| FromCoordinator::Map { batch, extents }),
        (any::<u32>(), extents()).prop_map(|(batch, extents)| FromCoordinator::Prepare { batch, extents }),
        (any::<u32>(), extents()).prop_map(|(batch, extents)| FromCoordinator::Unmap { batch, extents }),
        (lent, any::<bool>()).prop_map(|(extents, more)| FromCoordinator::Lent { extents, more }),
        full.prop_map(|full| FromCoordinator::Denied { full }),
        Just(FromCoordinator::Freed),
        Just(FromCoordinator::Later),
        any::<u64>().prop_map(|bytes| FromCoordinator::Room { bytes }),
        (vec(any::<(u32, u64)>(), 0..=MAX_LISTED), any::<bool>()).prop_map(|(edges, continues)| {
            let edges = edges.into_iter().map(|(extent, address)| (ExtentId(extent), address)).collect();
            FromCoordinator::Pointers { edges, continues }
        }),
        any::<u32>().prop_map(|launches| FromCoordinator::KeepShort { launches }),
        (vec(any::<u8>(), 0..=MAX_TEXT), any::<bool>()).prop_map(|(piece, more)| FromCoordinator::Text { piece, more }),
        any::<u32>().prop_map(|ahead| FromCoordinator::Queued { ahead }),
        (any::<[u8; 16]>(), driver, any::<u64>()).prop_map(|(gpu, driver, bytes)| FromCoordinator::Offer {
            gpu,
            driver,
            bytes
        }),
        ".{0,200}".prop_map(|text| FromCoordinator::End { text }),
    ]
}

proptest! {
    #[test]
    fn what_a_tenant_says_is_what_the_coordinator_reads(message in from_tenant()) {
        let bytes = message.encode();
        prop_assert!(bytes.len() <= MAX_MESSAGE);
        prop_assert_eq!(FromTenant::decode(&bytes), Ok(message));
    }

    #[test]
    fn what_the_coordinator_says_is_what_a_tenant_reads(message in from_coordinator()) {
        let bytes = message.encode();
        prop_assert!(bytes.len() <= MAX_MESSAGE);
        prop_assert_eq!(FromCoordinator::decode(&bytes), Ok(message));
    }

    #[test]
    fn a_message_cut_short_or_made_longer_is_refused(message in from_tenant(), cut in any::<prop::sample::Index>()) {
        let mut bytes = message.encode();
        prop_assert!(FromTenant::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(FromTenant::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), kind in prop::sample::select(&KINDS[..])) {
        let _ = FromTenant::decode(&bytes);
        let _ = FromCoordinator::decode(&bytes);
        // The same behind a good start, so that the fields' checks are reached.
        let good = [VERSION.to_le_bytes().as_slice(), &kind.to_le_bytes(), &bytes].concat();
        if let Ok(read) = FromTenant::decode(&good) {
            prop_assert_eq!(read.encode(), good.clone());
        }
        if let Ok(read) = FromCoordinator::decode(&good) {
            prop_assert_eq!(read.encode(), good);
        }
    }

    #[test]
    fn the_pieces_of_a_size_add_up_to_it(granules in 0u64..100_000, largest in prop::sample::select(&SizeClass::ALL[..])) {
        let pieces: Vec<SizeClass> = SizeClass::cut(granules * GRANULE, largest).collect();
        prop_assert_eq!(pieces.iter().map(|piece| piece.bytes()).sum::<u64>(), granules * GRANULE);
        prop_assert!(pieces.is_sorted_by(|a, b| a >= b) && pieces.iter().all(|piece| *piece <= largest));
        for smaller in SizeClass::ALL.into_iter().filter(|class| *class < largest) {
            prop_assert!(pieces.iter().filter(|piece| **piece == smaller).count() < 4);
        }
    }
}

#[test]
fn another_version_is_told_apart_from_nonsense() {
    let mut bytes = FromTenant::Demand.encode();
    bytes[..4].copy_from_slice(&7u32.to_le_bytes());
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::Version { theirs: 7 }));
    // Also when the rest is of a form that this version does not know.
    bytes.resize(MAX_MESSAGE + 1, 0xEE);
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::Version { theirs: 7 }));
}

#[test]
fn a_list_that_claims_more_than_there_is_costs_nothing() {
    let mut bytes = FromTenant::Free { extents: vec![] }.encode();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&(MAX_EXTENTS as u32).to_le_bytes());
    assert_eq!(FromTenant::decode(&bytes), Err(Malformed::Short));
    bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    let refused = Malformed::OutOfRange { field: "number of extents", value: u32::MAX.into() };
    assert_eq!(FromTenant::decode(&bytes), Err(refused));
}
