use super::super::needs::{Opaque, Part};
use super::*;

const MIB: u64 = 1 << 20;

fn id(number: u32) -> ExtentOf {
    (0, ExtentId(number))
}

/// A block, and extents of 2 MiB each that are behind it alone.
fn place(start: u64, extents: &[(u32, bool)]) -> Layout {
    let extents = (0..).zip(extents).map(|(at, (number, is_mapped))| {
        let start = start + 2 * MIB * at;
        ExtentLayout { id: id(*number), addresses: start..start + 2 * MIB, is_mapped: *is_mapped }
    });
    let extents: Vec<_> = extents.collect();
    let block = start..start + 2 * MIB * extents.len() as u64;
    Layout { blocks: core::iter::once(block).collect(), mapped: Vec::new(), extents }
}

fn layout(places: Vec<Layout>) -> Layout {
    let (blocks, mut extents) =
        places.into_iter().map(|place| (place.blocks, place.extents)).collect::<(Vec<_>, Vec<_>)>();
    extents.sort_by_key(|extents| extents[0].addresses.start);
    Layout { blocks: blocks.concat(), mapped: Vec::new(), extents: extents.concat() }
}

fn arrival(places: Vec<Layout>, edges: &[(u32, u64)], roots: roots::Found) -> Arrival {
    let edges: Vec<_> = edges.iter().map(|(extent, to)| (id(*extent), *to)).collect();
    Arrival::new(layout(places), &edges, roots)
}

fn three() -> Vec<Layout> {
    vec![place(64 * MIB, &[(3, false)]), place(0x1000 * MIB, &[(1, false), (2, true)]), place(8 * MIB, &[(7, false)])]
}

fn these(addresses: &[u64]) -> Needs {
    Needs::These(addresses.to_vec().into())
}

#[test]
fn a_call_lacks_what_it_names_until_all_of_that_is_mapped() {
    let arrival = arrival(three(), &[], roots::Found::default());
    let inside = these(&[0x1000 * MIB + 3 * MIB]);
    assert!(arrival.lacks(&inside), "an address in a mapped part, whose allocation is not all here");
    arrival.mapped(&[id(1)]);
    assert!(!arrival.lacks(&inside));
    assert!(arrival.lacks(&these(&[64 * MIB])));
    assert!(arrival.lacks(&these(&[66 * MIB])), "its end");
    assert!(!arrival.lacks(&these(&[66 * MIB + 8, 0, u64::MAX])), "behind its end, and nowhere");
    assert!(arrival.lacks(&Needs::Everything));
    arrival.mapped(&[id(3), id(7)]);
    assert!(!arrival.lacks(&Needs::Everything));
}

#[test]
fn pointers_are_followed_as_far_as_they_lead() {
    let edges = [(7, 64 * MIB), (3, 0x1000 * MIB + MIB), (2, 8 * MIB), (2, 12345 * MIB)];
    let arrival = arrival(three(), &edges, roots::Found::default());
    arrival.mapped(&[id(7), id(3)]);
    assert!(arrival.lacks(&these(&[8 * MIB])), "7 is here and 3, which it points to, but not what that points to");
    arrival.mapped(&[id(1)]);
    assert!(!arrival.lacks(&these(&[8 * MIB])));
}

#[test]
fn roots_are_needed_by_every_call() {
    let found = roots::Found { addresses: vec![64 * MIB], unreadable: false };
    let with_root = arrival(three(), &[], found);
    assert!(with_root.lacks(&these(&[])));
    with_root.mapped(&[id(3)]);
    assert!(!with_root.lacks(&these(&[])));
    let unreadable = arrival(three(), &[], roots::Found { addresses: vec![], unreadable: true });
    unreadable.mapped(&[id(3)]);
    assert!(unreadable.lacks(&these(&[64 * MIB])));
}

#[test]
fn first_uses_are_remembered_in_order() {
    let arrival = arrival(three(), &[(7, 64 * MIB)], roots::Found::default());
    arrival.lacks(&these(&[0x1000 * MIB]));
    arrival.lacks(&these(&[8 * MIB]));
    arrival.lacks(&these(&[64 * MIB, 0x1000 * MIB]));
    let used: Vec<u32> = arrival.used().into_iter().map(|(extent, _)| extent.1.0).collect();
    assert_eq!(used, [1, 2, 7, 3]);
}

#[test]
fn allocations_that_share_an_extent_come_together_and_point_where_it_points() {
    let extent = |number: u32, start: u64, megabytes: u64| ExtentLayout {
        id: id(number),
        addresses: start * MIB..(start + megabytes) * MIB,
        is_mapped: false,
    };
    // The second lies in two of them, and spare memory follows the third.
    let blocks: Vec<_> = [64..66, 66..74, 74..76, 200..202].map(|block| block.start * MIB..block.end * MIB).into();
    let extents = vec![extent(1, 64, 8), extent(2, 72, 8), extent(3, 200, 2)];
    let edges = [(id(1), 200 * MIB)];
    let layout = Layout { blocks, mapped: Vec::new(), extents };
    let arrival = Arrival::new(layout, &edges, roots::Found::default());
    let inside = |block: u64| these(&[block * MIB + 8]);
    assert!([64, 66, 74].iter().all(|block| arrival.lacks(&inside(*block))));
    arrival.mapped(&[id(1)]);
    assert!(arrival.lacks(&inside(64)), "it points to the last one, or its neighbour does");
    arrival.mapped(&[id(3)]);
    assert!(!arrival.lacks(&inside(64)));
    assert!(arrival.lacks(&inside(66)) && arrival.lacks(&inside(74)));
    assert_eq!(arrival.left.load(Ordering::Relaxed), 1);
    arrival.mapped(&[id(2)]);
    assert!(!arrival.lacks(&Needs::Everything));
    let used: Vec<u32> = arrival.used().into_iter().map(|(extent, _)| extent.1.0).collect();
    assert_eq!(used, [1, 3, 2], "each once");
}

#[test]
fn an_address_between_two_may_mean_either() {
    let two = || vec![place(64 * MIB, &[(1, false)]), place(66 * MIB, &[(2, false)])];
    for here in [1, 2] {
        let arrival = arrival(two(), &[], roots::Found::default());
        arrival.mapped(&[id(here)]);
        assert!(arrival.lacks(&these(&[66 * MIB])));
        assert_eq!(arrival.lacks(&these(&[66 * MIB + 1])), here == 1);
        assert!(arrival.lacks(&these(&[66 * MIB - 1])), "right before the second");
        assert_eq!(arrival.lacks(&these(&[66 * MIB - NEAR - 1])), here == 2);
    }
}

#[test]
fn a_parameter_that_lies_in_nothing_means_what_lies_behind_it() {
    let arrival = arrival(three(), &[], roots::Found::default());
    let parameter = |at: u64| Needs::These(Named { parameters: vec![at], ..Named::default() });
    // The block at 64 MiB; the last one is too far away.
    assert!(arrival.lacks(&parameter(20 * MIB)) && !arrival.lacks(&these(&[20 * MIB])));
    arrival.mapped(&[id(3)]);
    assert!(!arrival.lacks(&parameter(20 * MIB)));
    assert!(arrival.lacks(&parameter(0x1000 * MIB - FAR)) && !arrival.lacks(&parameter(0x1000 * MIB - FAR - 1)));
    assert!(!arrival.lacks(&parameter(2 * 0x1000 * MIB)), "behind everything");
}

#[test]
fn a_call_that_has_not_shown_all_of_it_lacks_whatever_is_missing() {
    let arrival = arrival(three(), &[], roots::Found::default());
    let opaque = || Needs::These(Named { opaque: Some(Opaque::LateCopy), ..Named::default() });
    assert!(arrival.lacks(&opaque()) && !arrival.lacks(&these(&[])));
    arrival.mapped(&[id(1), id(3)]);
    assert!(arrival.lacks(&opaque()));
    arrival.mapped(&[id(7)]);
    assert!(!arrival.lacks(&opaque()));
}

#[test]
fn a_part_of_an_address_means_all_blocks_that_may_have_it() {
    let part =
        |first: usize, bytes: &[u8]| Needs::These(Named { parts: vec![Part::new(first, bytes)], ..Named::default() });
    let low = part(0, &((0x1000 * MIB) as u32 + 5).to_le_bytes());
    let high = part(4, &(((0x1000 * MIB) >> 32) as u32).to_le_bytes());
    let arrival = arrival(three(), &[], roots::Found::default());
    for part in [&low, &high] {
        assert!(arrival.lacks(part));
    }
    assert!(!arrival.lacks(&part(0, &0x7777_7777u32.to_le_bytes())), "no block has such an address");
    arrival.mapped(&[id(1)]);
    assert!(!arrival.lacks(&high), "the only one up there is here");
}

#[test]
fn several_addresses_need_what_each_needs_alone_in_any_order() {
    let ends = three().into_iter().flat_map(|place| [place.blocks[0].start, place.blocks[0].end]);
    // Fewer places where each test is slow.
    let step = if cfg!(miri) { 5 } else { 1 };
    let near: Vec<u64> = ends.flat_map(|end| [end - 8, end, end + 8, end + MIB]).step_by(step).collect();
    for first in &near {
        for second in &near {
            for third in &near {
                let all = arrival(three(), &[], roots::Found::default());
                let one_by_one = arrival(three(), &[], roots::Found::default());
                let lack = [first, second, third].map(|address| one_by_one.lacks(&these(&[*address])));
                assert_eq!(all.lacks(&these(&[*first, *second, *third])), lack.contains(&true));
                let of = |arrival: &Arrival| arrival.used().into_iter().map(|(extent, _)| extent).collect::<Vec<_>>();
                assert_eq!(of(&all), of(&one_by_one), "{first:#x} {second:#x} {third:#x}");
            }
        }
    }
}

/// Such a call may queue work before the program is taken off the GPU.
#[test]
#[cfg_attr(miri, ignore = "membarrier is a system call that miri does not know")]
fn a_call_inside_goes_on_waiting_for_memory_when_the_gate_is_closed_over_it() {
    let _turn = gate::tests::TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(gate::prepare());
    static IS_MAPPED: AtomicBool = AtomicBool::new(false);
    begin(place(64 * MIB, &[(3, false)]), &[], roots::Found::default(), None);
    gate::arriving(false);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            // A call inside of a call does not step out to wait.
            let _outer = gate::pass().expect("not broken");
            let inner = gate::pass().expect("not broken");
            wait(&inner, these(&[64 * MIB])).expect("not broken");
            IS_MAPPED.load(Ordering::Acquire)
        });
        while !is_waited_for() {
            std::thread::yield_now();
        }
        assert_eq!(gate::hold(Instant::now()), gate::Held::WithCalls);
        assert!(stats(0).is_some());
        wake();
        // Time in which an error would show.
        std::thread::sleep(Duration::from_millis(50));
        IS_MAPPED.store(true, Ordering::Release);
        end();
        gate::open(false);
        wake();
        assert!(call.join().expect("it does not panic"), "it went on without the memory");
    });
}

#[test]
fn a_mapping_waits_for_what_is_mapped_there_whatever_that_is_called() {
    // Two handles side by side, the second of which is mapped elsewhere too; each is at home far above.
    let home = |at: u64, megabytes: u64| (at << 50)..(at << 50) + megabytes * MIB;
    let extent = |number, addresses| ExtentLayout { id: id(number), addresses, is_mapped: false };
    let extents = vec![extent(1, home(1, 2)), extent(2, home(2, 8)), extent(3, home(2, 8).end..home(2, 10).end)];
    let mapped = vec![(64 * MIB..76 * MIB, vec![home(2, 10), home(1, 2)]), (200 * MIB..210 * MIB, vec![home(2, 10)])];
    let edges = [(id(1), 200 * MIB)];
    let blocks = core::iter::once(8 * MIB..10 * MIB).collect();
    let arrival = Arrival::new(Layout { blocks, mapped, extents }, &edges, roots::Found::default());
    let inside = |at: u64| these(&[at * MIB]);
    assert!(!arrival.lacks(&inside(9)), "nothing is behind it");
    arrival.mapped(&[id(2)]);
    assert!(arrival.lacks(&inside(64)) && arrival.lacks(&inside(75)) && arrival.lacks(&inside(200)));
    arrival.mapped(&[id(3)]);
    assert!(arrival.lacks(&inside(64)), "the other handle may be reached from there");
    assert!(!arrival.lacks(&inside(200)));
    let used: Vec<u32> = arrival.used().into_iter().map(|(extent, _)| extent.1.0).collect();
    assert_eq!(used, [1, 2, 3]);
    arrival.mapped(&[id(1)]);
    assert!(!arrival.lacks(&inside(64)));
}

#[test]
fn what_a_call_lacks_is_measured_in_bytes_each_once() {
    let extent = |number: u32, start: u64, megabytes: u64| ExtentLayout {
        id: id(number),
        addresses: start * MIB..(start + megabytes) * MIB,
        is_mapped: false,
    };
    // The first two share an extent, and the second has another one; the third points to the last.
    let blocks: Vec<_> = [64..66, 66..80, 100..102, 200..232].map(|block| block.start * MIB..block.end * MIB).into();
    let extents = vec![extent(1, 64, 8), extent(2, 72, 8), extent(3, 100, 2), extent(4, 200, 32)];
    let layout = Layout { blocks, mapped: Vec::new(), extents };
    let arrival = Arrival { number: Some(7), ..Arrival::new(layout, &[(id(3), 200 * MIB)], roots::Found::default()) };
    let lack = |addresses: &[u64]| arrival.lack(&these(&addresses.iter().map(|at| at * MIB + 8).collect::<Vec<_>>()));
    let lacks = |bytes: u64, missing: u64| Some(Lack { bytes: bytes * MIB, missing: missing * MIB, arrival: Some(7) });
    assert_eq!(lack(&[64]), lacks(8, 50));
    assert_eq!(lack(&[64, 66]), lacks(16, 50), "one of its two is that of its neighbour");
    assert_eq!(lack(&[100]), lacks(34, 50));
    arrival.mapped(&[id(1), id(3)]);
    assert_eq!(lack(&[64]), None);
    assert_eq!(lack(&[64, 66]), lacks(8, 40));
    assert_eq!(lack(&[100]), lacks(32, 40));
    assert_eq!(arrival.lack(&Needs::Everything), lacks(40, 40));
    assert_eq!(arrival.lack(&Needs::Nothing), None);
    arrival.mapped(&[id(2), id(4)]);
    assert_eq!(arrival.lack(&Needs::Everything), None);
}
