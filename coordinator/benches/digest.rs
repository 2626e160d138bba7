//! How fast pages are digested: `cargo bench -p baton-coordinator --bench digest [-- OPTIONS]`.
//!
//! The pages lie in extents as the arena has them. A measurement times a whole scan, from its submission until its result
//! is in the caller's hands; the figure is the median over several. Beside it, the same memory is filled by the
//! driver, which shows what it can do. Some pages of every kind are copied out and digested on the CPU.
//!
//! The built program runs by itself on a machine with a GPU: it needs nothing but the driver.

use std::ffi::c_void;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use baton_coordinator::device::digest::{PAGE, Scan, Scanned, Scanner, TO_HOST, granules_in, has_host_words, of_page};
use baton_coordinator::device::gpu::{Gpu, GpuError, Mark, Memory, Stream};
use baton_coordinator::device::wake::Waker;
use bytesize::ByteSize;
use clap::Parser;

/// Times scans of pages on a GPU.
#[derive(Parser)]
struct Options {
    /// The CUDA driver
    #[arg(long, default_value = "libcuda.so.1", value_name = "PATH")]
    driver: PathBuf,
    /// Which GPU
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    gpu: usize,
    /// How much memory is scanned
    #[arg(long, default_value = "8GiB", value_name = "SIZE")]
    bytes: ByteSize,
    /// Scans of each kind
    #[arg(long, default_value_t = 15, value_name = "COUNT")]
    times: usize,
    /// Write the figures here too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// As cargo says to benchmarks
    #[arg(long, hide = true)]
    bench: bool,
}

/// The addresses that count as pointers: a tenant's window.
const RANGE: Range<u64> = 0x7000_0000_0000..0x7100_0000_0000;
/// Where pinned memory would lie.
const HOST: Range<u64> = 0x7F12_0000_0000..0x7F15_0000_0000;
const EXTENT: u64 = 512 << 20;
/// Pages of each kind that differ; they repeat.
const DIFFERENT: usize = 16;
const WORDS: usize = PAGE as usize / 8;

/// The contents of pages.
#[derive(Clone, Copy)]
enum Kind {
    Zeros,
    Floats,
    /// Floats, and every 4 KiB a pointer, to 16 places a page.
    SomePointers,
    /// Nothing but pointers, to 16 places a page.
    Pointers,
    /// Nothing but pointers, to anywhere: too many to list.
    PointersAnywhere,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Floats, "floats"),
    (Kind::Zeros, "zeros"),
    (Kind::SomePointers, "some pointers"),
    (Kind::Pointers, "all pointers"),
    (Kind::PointersAnywhere, "pointers anywhere"),
];

struct Figure {
    what: String,
    bytes: u64,
    times: Vec<Duration>,
    pairs: Option<usize>,
    right: bool,
}

impl Figure {
    fn at(&self, quantile: f64) -> Duration {
        self.times[((self.times.len() - 1) as f64 * quantile) as usize]
    }

    fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.at(0.5).as_secs_f64() / 1e9
    }
}

struct Machine {
    gpu: Gpu,
    stream: Stream,
    mark: Mark,
    scanner: Scanner,
    reports: Receiver<Scanned>,
    extents: Vec<Memory>,
    pages: Vec<u64>,
    /// Pinned memory for [`DIFFERENT`] pages.
    host: *mut c_void,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, GpuError> {
    let mut machine = Machine::new(options)?;
    println!("{}, {}", machine.gpu.name, ByteSize(machine.bytes()).display().iec());
    println!("{:<26} {:>10} {:>10} {:>10} {:>10} {:>8}", "", "median ms", "p10", "p90", "GB/s", "pairs");
    let mut figures = vec![machine.time_fills(options.times)?];
    print(&figures[0]);
    for (kind, name) in KINDS {
        machine.fill_with(kind)?;
        let all = machine.pages.clone();
        let mut figure = machine.time_scans(&all, name.to_owned(), options.times)?;
        figure.right = machine.is_right()?;
        print(&figure);
        figures.push(figure);
    }
    machine.fill_with(Kind::Floats)?;
    for count in [1, 16, 128, 1024] {
        if count < machine.pages.len() {
            let some = machine.pages[..count].to_vec();
            let figure = machine.time_scans(&some, format!("floats, {} MiB", 2 * count), options.times)?;
            print(&figure);
            figures.push(figure);
        }
    }
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", machine.json(&figures));
        std::fs::write(file, text).unwrap_or_else(|error| eprintln!("{}: {error}", file.display()));
    }
    Ok(figures.iter().all(|figure| figure.right))
}

fn print(figure: &Figure) {
    let ms = |quantile| figure.at(quantile).as_secs_f64() * 1e3;
    let pairs = figure.pairs.map_or("many".to_owned(), |pairs| pairs.to_string());
    let right = if figure.right { "ok" } else { "WRONG" };
    println!(
        "{:<26} {:>10.3} {:>10.3} {:>10.3} {:>10.0} {pairs:>8} {right}",
        figure.what,
        ms(0.5),
        ms(0.1),
        ms(0.9),
        figure.gigabytes_per_second()
    );
}

impl Machine {
    fn new(options: &Options) -> Result<Self, GpuError> {
        let gpu = Gpu::open(&options.driver, options.gpu)?;
        let (sender, reports) = channel();
        let scanner = Scanner::start(&gpu, &sender, &Waker::new().expect("a descriptor"))?;
        // As much as there is, less what others may need meanwhile.
        let most = gpu.free_memory()? / 8 * 7;
        let mut left = options.bytes.0.min(most) / PAGE * PAGE;
        let mut extents = Vec::new();
        while left > 0 {
            let extent = gpu.make(left.min(EXTENT))?;
            left -= extent.bytes;
            extents.push(extent);
        }
        let pages = extents.iter().flat_map(|extent| (0..extent.bytes / PAGE).map(|page| extent.address + page * PAGE));
        let pages = pages.collect();
        let (stream, mark) = (gpu.stream()?, gpu.mark()?);
        let host = gpu.allocate_host(DIFFERENT * PAGE as usize)?;
        Ok(Self { gpu, stream, mark, scanner, reports, extents, pages, host })
    }

    fn bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.gpu.set(&self.mark, self.stream)?;
        self.gpu.wait(&self.mark)
    }

    fn fill_with(&mut self, kind: Kind) -> Result<(), GpuError> {
        // SAFETY: pinned memory of that size, which no queued work uses.
        let words = unsafe { std::slice::from_raw_parts_mut(self.host.cast::<u64>(), DIFFERENT * WORDS) };
        let mut state = 1u64;
        for (at, word) in words.iter_mut().enumerate() {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let noise = state ^ state >> 32;
            let pointer = |places: u64| RANGE.start + (at / WORDS) as u64 * PAGE + noise % places * 0x1357 * PAGE;
            *word = match kind {
                Kind::Zeros => 0,
                Kind::SomePointers if at % 512 == 77 => pointer(16),
                Kind::Floats | Kind::SomePointers => {
                    let float = |bits: u32| u64::from(((bits as i32) as f32 / 2f32.powi(32)).to_bits());
                    float(noise as u32) | float((noise >> 32) as u32 ^ noise as u32) << 32
                }
                Kind::Pointers => pointer(16),
                Kind::PointersAnywhere => RANGE.start + state % (RANGE.end - RANGE.start),
            };
        }
        for (at, page) in self.pages.iter().enumerate() {
            let from = self.host.wrapping_byte_add(at % DIFFERENT * PAGE as usize);
            // SAFETY: a page of ours, and pinned memory that is not written before the wait.
            unsafe { self.gpu.copy_in(*page, from, PAGE, self.stream)? };
        }
        self.wait()
    }

    fn time_fills(&mut self, times: usize) -> Result<Figure, GpuError> {
        let mut figure = Figure {
            what: "the driver's fill".to_owned(),
            bytes: self.bytes(),
            times: vec![],
            pairs: Some(0),
            right: true,
        };
        for _ in 0..times.max(1) {
            let start = Instant::now();
            for extent in &self.extents {
                // SAFETY: memory of ours.
                unsafe { self.gpu.fill(extent.address, 0x3C, extent.bytes, self.stream)? };
            }
            self.wait()?;
            figure.times.push(start.elapsed());
        }
        figure.times.sort_unstable();
        Ok(figure)
    }

    fn scan(&mut self, pages: &[u64]) -> Result<(Scan, Duration), GpuError> {
        // SAFETY: memory of ours that stays mapped.
        unsafe { self.scanner.scan(pages.to_vec(), RANGE, HOST) };
        let report = self.reports.recv().expect("every scan is reported");
        let time = report.time.end - report.time.start;
        report.result.map(|scan| (scan, time))
    }

    fn time_scans(&mut self, pages: &[u64], what: String, times: usize) -> Result<Figure, GpuError> {
        let (scan, _) = self.scan(pages)?;
        let pairs = scan.pointers.as_ref().map(Vec::len);
        let mut figure = Figure { what, bytes: pages.len() as u64 * PAGE, times: vec![], pairs, right: true };
        for _ in 0..times.max(1) {
            let (again, time) = self.scan(pages)?;
            figure.right &= again == scan;
            figure.times.push(time);
        }
        figure.times.sort_unstable();
        Ok(figure)
    }

    /// True if a scan finds the same about some pages as the CPU.
    fn is_right(&mut self) -> Result<bool, GpuError> {
        let pages = self.pages.clone();
        let (scan, _) = self.scan(&pages)?;
        let key = self.scanner.key();
        let mut right = scan.pages.len() == pages.len();
        for at in [0, 1, DIFFERENT - 1, pages.len() / 2, pages.len() - 1] {
            let at = at.min(pages.len() - 1);
            // SAFETY: a page of ours, and pinned memory that no other code uses meanwhile.
            unsafe { self.gpu.copy_out(self.host, pages[at], PAGE, self.stream)? };
            self.wait()?;
            // SAFETY: the bytes were just copied, and are not written while they are read.
            let bytes = unsafe { std::slice::from_raw_parts(self.host.cast::<u8>().cast_const(), PAGE as usize) };
            right &= scan.pages[at] == of_page(bytes, key);
            if let Some(pairs) = &scan.pointers {
                let found = pairs.iter().filter(|(page, _)| *page as usize == at).map(|(_, granule)| *granule);
                let to_host = has_host_words(bytes, &RANGE, &HOST).then_some(TO_HOST);
                right &= found.eq(granules_in(bytes, &RANGE).into_iter().chain(to_host));
            }
        }
        // The contents repeat.
        right &= (DIFFERENT..pages.len()).all(|at| scan.pages[at] == scan.pages[at - DIFFERENT]);
        Ok(right)
    }

    fn json(&self, figures: &[Figure]) -> serde_json::Value {
        let rows: Vec<_> = figures
            .iter()
            .map(|figure| {
                serde_json::json!({
                    "what": figure.what,
                    "bytes": figure.bytes,
                    "median_ms": figure.at(0.5).as_secs_f64() * 1e3,
                    "gigabytes_per_second": figure.gigabytes_per_second(),
                    "pairs": figure.pairs,
                    "right": figure.right,
                })
            })
            .collect();
        serde_json::json!({ "kind": "digest", "gpu": self.gpu.name, "driver": self.gpu.driver_version, "figures": rows })
    }
}
