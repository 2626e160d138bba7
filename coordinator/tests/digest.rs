//! The page digest on the simulated driver, beside what the CPU finds out about the same bytes.

use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};

use baton_coordinator::device::digest::{
    PAGE, Page, Scan, ScanId, Scanned, Scanner, TO_HOST, granules_in, has_host_words, of_page,
};
use baton_coordinator::device::gpu::{Gpu, Memory};
use baton_coordinator::device::wake::Waker;
use baton_tests::Driver;

/// The addresses of some tenant.
const RANGE: Range<u64> = 0x10_0000_0000_0000..0x10_0100_0000_0000;
/// Where pinned memory would lie.
const HOST: Range<u64> = 0x7F12_3000_0000..0x7F15_0800_0000;

/// A scanner, and memory for it to look at.
struct Bench {
    gpu: Gpu,
    scanner: Scanner,
    reports: Receiver<Scanned>,
    memory: Vec<Memory>,
}

impl Bench {
    fn new() -> Self {
        let gpu = Gpu::open(Driver::simulated().library(), 0).expect("the simulated driver was built");
        let (sender, reports) = channel();
        let scanner = Scanner::start(&gpu, &sender, &Waker::new().expect("a descriptor")).expect("a scanner");
        Self { gpu, scanner, reports, memory: Vec::new() }
    }

    /// The address of a new page with these contents.
    fn page(&mut self, contents: &[u8]) -> u64 {
        assert_eq!(contents.len() as u64, PAGE);
        let memory = self.gpu.make(PAGE).expect("the simulated GPU has room");
        let (stream, mark) = (self.gpu.stream().expect("a stream"), self.gpu.mark().expect("a mark"));
        // SAFETY: a new page that no other code has; both live until the copy was waited for.
        unsafe { self.gpu.copy_in(memory.address, contents.as_ptr().cast(), PAGE, stream).expect("a copy") };
        self.gpu.set(&mark, stream).and_then(|()| self.gpu.wait(&mark)).expect("a copy");
        let address = memory.address;
        self.memory.push(memory);
        address
    }

    fn submit(&mut self, pages: &[u64], range: Range<u64>) -> ScanId {
        // SAFETY: the pages live as long as the bench.
        unsafe { self.scanner.scan(pages.to_vec(), range, HOST) }
    }

    #[track_caller]
    fn scan(&mut self, pages: &[u64], range: Range<u64>) -> Scan {
        let id = self.submit(pages, range);
        let report = self.reports.recv().expect("a report");
        assert_eq!(report.id, id);
        assert!(report.time.start <= report.time.end);
        report.result.expect("a scan")
    }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
    };
    (0..PAGE / 8).flat_map(|_| next().to_le_bytes()).collect()
}

fn put(page: &mut [u8], word: usize, value: u64) {
    page[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn every_page_has_the_digest_that_the_cpu_computes() {
    let mut bench = Bench::new();
    let zeros = vec![0; PAGE as usize];
    let mut last_bit = zeros.clone();
    *last_bit.last_mut().expect("a page has bytes") = 0x80;
    let (a, b) = (noise(1), noise(2));
    let contents = [&b, &zeros, &a, &last_bit, &a, &zeros];
    let pages: Vec<u64> = contents.iter().map(|contents| bench.page(contents)).collect();
    let found = bench.scan(&pages, RANGE);
    let key = bench.scanner.key();
    let expected: Vec<Page> = contents.iter().map(|contents| of_page(contents, key)).collect();
    assert_eq!(found.pages, expected);
    assert_eq!(found.pages.iter().map(|page| page.zero).collect::<Vec<_>>(), [false, true, false, false, false, true]);
    assert_eq!(found.pages[2], found.pages[4], "equal pages have equal digests, wherever they lie");
    assert_eq!(found.pointers, Some(Vec::new()));

    let again = bench.scan(&[pages[3], pages[3], pages[0]], RANGE);
    assert_eq!(again.pages, [expected[3], expected[3], expected[0]]);
}

#[test]
fn two_scanners_have_different_keys() {
    let (mut one, mut other) = (Bench::new(), Bench::new());
    let (a, b) = (one.page(&noise(3)), other.page(&noise(3)));
    assert_ne!(one.scan(&[a], 0..0).pages, other.scan(&[b], 0..0).pages);
}

#[test]
fn pointers_are_listed_once_and_in_order() {
    let mut bench = Bench::new();
    let mut first = noise(4);
    let mut second = vec![0; PAGE as usize];
    for word in (0..100_000).step_by(3) {
        put(&mut first, word, RANGE.start + (word as u64 * 977 * 4096) % (40 * PAGE));
    }
    put(&mut second, 0, RANGE.end - 1);
    put(&mut second, 1, RANGE.end);
    put(&mut second, 2, RANGE.start - 1);
    put(&mut second, 262_143, RANGE.start);
    // No pointer: it is not where one could lie.
    second[20..28].copy_from_slice(&(RANGE.start + 7 * PAGE).to_le_bytes());
    let pages = [bench.page(&second), bench.page(&noise(5)), bench.page(&first)];
    let expected: Vec<(u32, u32)> = [(0, &second), (2, &first)]
        .iter()
        .flat_map(|(page, contents)| granules_in(contents, &RANGE).into_iter().map(move |granule| (*page, granule)))
        .collect();
    assert_eq!(expected.len(), 42);
    // Each scan reports all pointers, also those of the scan before.
    for _ in 0..3 {
        assert_eq!(bench.scan(&pages, RANGE).pointers, Some(expected.clone()));
    }
    let shifted = RANGE.start + 8..RANGE.start + PAGE;
    let found = bench.scan(&pages[..1], shifted).pointers;
    assert_eq!(found, Some(Vec::new()), "the range's start is not in the shifted one");
    assert_eq!(bench.scan(&pages, 5..5).pointers, Some(Vec::new()));
}

#[test]
fn words_that_look_like_addresses_of_the_host_are_told() {
    let mut bench = Bench::new();
    let page = |word: u64| {
        let mut page = noise(8);
        put(&mut page, 1000, word);
        page
    };
    let near = [HOST.start, HOST.end - 1, HOST.start & !0xFFFF_FFFF, (HOST.end - 1) | 0xFFFF_FFFF];
    let far = [(HOST.start & !0xFFFF_FFFF) - 1, ((HOST.end - 1) | 0xFFFF_FFFF) + 1, RANGE.start, 7];
    let contents: Vec<_> = near.iter().chain(&far).map(|word| page(*word)).collect();
    let pages: Vec<u64> = contents.iter().map(|page| bench.page(page)).collect();
    let expected = [(0, TO_HOST), (1, TO_HOST), (2, TO_HOST), (3, TO_HOST), (6, 0)];
    assert_eq!(bench.scan(&pages, RANGE).pointers, Some(expected.to_vec()));
    // The range may lie right beside.
    let beside = [HOST.end - 1, HOST.end].map(|word| bench.page(&page(word)));
    assert_eq!(bench.scan(&beside, HOST.end..HOST.end + PAGE).pointers, Some(vec![(0, TO_HOST), (1, 0)]));
    let told = contents.iter().map(|page| has_host_words(page, &RANGE, &HOST));
    assert!(told.eq([true, true, true, true, false, false, false, false]));
    assert_eq!(
        bench.scan(&pages[..1], HOST).pointers,
        Some(vec![(0, 0)]),
        "an address of the range is none of the host's"
    );
}

#[test]
fn too_many_pointers_are_not_listed_and_the_next_scan_is_right_again() {
    let mut bench = Bench::new();
    let mut full = vec![0; PAGE as usize];
    for word in 0..262_144 {
        put(&mut full, word, RANGE.start + word as u64 * PAGE);
    }
    let full_at = bench.page(&full);
    let mut one = noise(6);
    put(&mut one, 77, RANGE.start + 3 * PAGE + 1);
    let one_at = bench.page(&one);
    let found = bench.scan(&[full_at, one_at], RANGE);
    assert_eq!(found.pointers, None);
    let key = bench.scanner.key();
    assert_eq!(found.pages, [of_page(&full, key), of_page(&one, key)]);
    assert_eq!(bench.scan(&[one_at], RANGE).pointers, Some(vec![(0, 3)]));
    // Part of them can be listed.
    let expected: Vec<(u32, u32)> = (0..100_000).map(|granule| (0, granule)).collect();
    assert_eq!(bench.scan(&[full_at], RANGE.start..RANGE.start + 100_000 * PAGE).pointers, Some(expected));
    // A range whose granules have no numbers.
    assert_eq!(bench.scan(&[one_at], 0..u64::MAX).pointers, None);
}

#[test]
fn many_pages_need_more_room() {
    let mut bench = Bench::new();
    let mut contents = vec![0; PAGE as usize];
    let zeros = bench.page(&contents);
    put(&mut contents, 5, RANGE.start + PAGE);
    let other = bench.page(&contents);
    let mut pages = vec![zeros; 4097];
    pages[4096] = other;
    let key = bench.scanner.key();
    assert_eq!(bench.scan(&[other], RANGE).pointers, Some(vec![(0, 1)]));
    let found = bench.scan(&pages, RANGE);
    assert_eq!(found.pages.len(), 4097);
    let zero = of_page(&vec![0; PAGE as usize], key);
    assert!(found.pages[..4096].iter().all(|page| *page == zero));
    assert_eq!(found.pages[4096], of_page(&contents, key));
    assert_eq!(found.pointers, Some(vec![(4096, 1)]));
}

#[test]
fn scans_are_reported_in_order_and_one_of_nothing_too() {
    let mut bench = Bench::new();
    let page = bench.page(&noise(7));
    let ids = [&[page][..], &[], &[page, page]].map(|pages| bench.submit(pages, RANGE));
    let reports = ids.map(|_| bench.reports.recv().expect("a report"));
    assert_eq!(reports.each_ref().map(|report| report.id), ids);
    let counts = reports.map(|report| report.result.expect("a scan").pages.len());
    assert_eq!(counts, [1, 0, 2]);
}
