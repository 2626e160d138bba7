//! One pass over pages on the device.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::slice;

use super::found::{Scan, TO_HOST};
use super::mix::Key;
use crate::device::gpu::{Gpu, GpuError, Kernel, Mark, Stream};
use baton_books::extents::Page;

/// The kernel's text.
const PTX: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("pages.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a text has no zeros"),
};
const ENTRY: &CStr = c"baton_pages";

/// Threads of a block, as the kernel was compiled.
const THREADS: u32 = 256;
/// Blocks that share a page.
const PARTS: u32 = 8;
/// Maximum number of pairs of page and granule that can be listed.
const MOST_PAIRS: u32 = 1 << 17;
/// Slots of the table that finds repeated pairs.
const SLOTS: u32 = 2 * MOST_PAIRS;
/// In larger ranges granules have no numbers.
const LARGEST_RANGE: u64 = 1 << 52;
/// Pages with room from the start: 8 GiB.
const FIRST_ROOM: usize = 4096;

/// The kernel's output: `struct Found`, followed by a `struct Digest` for each page.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    count: u32,
    overflow: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Digest {
    sums: [u64; 2],
    flags: u64,
}

/// A page's flags.
const IS_SET: u64 = 1;
const HAS_HOST_WORDS: u64 = 2;

/// The kernel's parameters, in order.
struct Parameters {
    pages: u64,
    count: u32,
    parts: u32,
    key: [u64; 2],
    start: u64,
    bytes: u64,
    digests: u64,
    found: u64,
    pairs: u64,
    room: u32,
    table: u64,
    slots: u32,
    host: u32,
    host_span: u32,
}

impl Parameters {
    /// Returns their addresses, with their sizes.
    fn list(&self) -> [(*const c_void, usize); 15] {
        fn one<T>(value: &T) -> (*const c_void, usize) {
            ((&raw const *value).cast(), size_of::<T>())
        }
        [
            one(&self.pages),
            one(&self.count),
            one(&self.parts),
            one(&self.key[0]),
            one(&self.key[1]),
            one(&self.start),
            one(&self.bytes),
            one(&self.digests),
            one(&self.found),
            one(&self.pairs),
            one(&self.room),
            one(&self.table),
            one(&self.slots),
            one(&self.host),
            one(&self.host_span),
        ]
    }
}

/// Memory on the device, and pinned memory that mirrors it except for the table, which comes first and only the device uses. Then come
/// the pairs, the findings of all pages and of each, and the pages' addresses.
struct Memory {
    device: u64,
    host: *mut c_void,
    /// The number of pages that it has room for.
    room: usize,
}

// SAFETY: the host's part has no other owner, and the driver's memory may be used from every thread.
unsafe impl Send for Memory {}

const PAIRS: u64 = SLOTS as u64 * 8;
const FOUND: u64 = PAIRS + MOST_PAIRS as u64 * 8;
const DIGESTS: u64 = FOUND + size_of::<Found>() as u64;

impl Memory {
    fn make(gpu: &Gpu, room: usize) -> Result<Self, GpuError> {
        let empty = Self { device: 0, host: std::ptr::null_mut(), room };
        let device = gpu.allocate(empty.end())?;
        match gpu.allocate_host((empty.end() - PAIRS) as usize) {
            Ok(host) => Ok(Self { device, host, room }),
            Err(error) => {
                // SAFETY: just allocated.
                let _ = unsafe { gpu.free(device) };
                Err(error)
            }
        }
    }

    fn addresses(&self) -> u64 {
        DIGESTS + (self.room * size_of::<Digest>()) as u64
    }

    fn end(&self) -> u64 {
        self.addresses() + (self.room * size_of::<u64>()) as u64
    }

    fn host(&self, offset: u64) -> *mut c_void {
        self.host.wrapping_byte_add((offset - PAIRS) as usize)
    }

    /// # Safety
    ///
    /// The offset is that of this many values which the device wrote and is done with.
    unsafe fn read<T: Copy>(&self, offset: u64, count: usize) -> &[T] {
        // SAFETY: inside the pinned memory and aligned: all offsets are multiples of 8; the rest by this function's contract.
        unsafe { slice::from_raw_parts(self.host(offset).cast_const().cast(), count) }
    }
}

/// The resources of passes.
pub(super) struct Pass {
    gpu: Gpu,
    kernel: Kernel,
    stream: Stream,
    mark: Mark,
    key: Key,
    memory: Memory,
    /// True if the table is not empty.
    used: bool,
}

impl Pass {
    /// Prepares everything, so that the first pass is as fast as the others.
    pub(super) fn new(gpu: &Gpu, key: Key) -> Result<Self, GpuError> {
        let (kernel, stream, mark) = (gpu.kernel(PTX, ENTRY)?, gpu.stream()?, gpu.mark()?);
        let memory = Memory::make(gpu, FIRST_ROOM)?;
        let mut pass = Self { gpu: gpu.clone(), kernel, stream, mark, key, memory, used: true };
        // SAFETY: of no pages.
        unsafe { pass.submit(0, 0..0, 0..0)? };
        pass.wait()?;
        pass.used = false;
        Ok(pass)
    }

    /// Scans pages.
    ///
    /// # Safety
    ///
    /// The conditions of [`super::Scanner::scan`] hold.
    pub(super) unsafe fn run(
        &mut self,
        pages: &[u64],
        range: &Range<u64>,
        host: &Range<u64>,
    ) -> Result<Scan, GpuError> {
        if pages.is_empty() {
            return Ok(Scan { pages: Vec::new(), pointers: Some(Vec::new()) });
        }
        self.grow(pages.len())?;
        let can_number = range.end.saturating_sub(range.start) <= LARGEST_RANGE;
        let addresses = self.memory.host(self.memory.addresses()).cast::<u64>();
        // SAFETY: there is room for this many, and no work that reads them is queued.
        unsafe { addresses.copy_from_nonoverlapping(pages.as_ptr(), pages.len()) };
        // SAFETY: by this function's contract.
        unsafe { self.submit(pages.len(), if can_number { range.clone() } else { 0..0 }, host.clone())? };
        self.wait()?;
        // SAFETY: the device wrote this, and was waited for.
        let (found, digests) =
            unsafe { (self.memory.read::<Found>(FOUND, 1)[0], self.memory.read::<Digest>(DIGESTS, pages.len())) };
        let pages = digests.iter().map(|page| Page { digest: page.sums, zero: page.flags & IS_SET == 0 }).collect();
        let has_host = (0u32..).zip(digests).filter(|(_, page)| page.flags & HAS_HOST_WORDS != 0);
        let to_host: Vec<(u32, u32)> = has_host.map(|(at, _)| (at, TO_HOST)).collect();
        self.used = found.count > 0;
        let mut pointers = if can_number && found.overflow == 0 { Some(self.pairs(found.count)?) } else { None };
        if let Some(pointers) = pointers.as_mut().filter(|_| !to_host.is_empty()) {
            pointers.extend(to_host);
            pointers.sort_unstable();
        }
        Ok(Scan { pages, pointers })
    }

    /// Fetches the pairs of pages and targets.
    fn pairs(&self, count: u32) -> Result<Vec<(u32, u32)>, GpuError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let count = count.min(MOST_PAIRS) as usize;
        // SAFETY: memory of this value, which nothing else uses now.
        unsafe { self.fetch(PAIRS, count * size_of::<u64>())? };
        self.wait()?;
        // SAFETY: this was just fetched.
        let mut pairs = unsafe { self.memory.read::<u64>(PAIRS, count) }.to_vec();
        pairs.sort_unstable();
        Ok(pairs.iter().map(|pair| ((pair >> 32) as u32, *pair as u32)).collect())
    }

    /// Queues a pass.
    ///
    /// # Safety
    ///
    /// The pages' addresses lie in the pinned memory, and meet the conditions of [`super::Scanner::scan`].
    unsafe fn submit(&mut self, count: usize, range: Range<u64>, host: Range<u64>) -> Result<(), GpuError> {
        let (device, addresses) = (self.memory.device, self.memory.addresses());
        let answers = (size_of::<Found>() + count * size_of::<Digest>()) as u64;
        let parameters = Parameters {
            pages: device + addresses,
            count: count as u32,
            parts: PARTS,
            key: self.key.0,
            start: range.start,
            bytes: range.end.saturating_sub(range.start),
            digests: device + DIGESTS,
            found: device + FOUND,
            pairs: device + PAIRS,
            room: MOST_PAIRS,
            table: device,
            slots: SLOTS,
            host: (host.start >> 32) as u32,
            host_span: if host.is_empty() { 0 } else { (((host.end - 1) >> 32) - (host.start >> 32) + 1) as u32 },
        };
        let arguments = parameters.list().map(|(address, _)| address.cast_mut());
        let blocks = (count as u32).max(1) * PARTS;
        // SAFETY: memory of this value with room for all of this, which no other code touches until the stream was waited for; the
        // pages by this function's contract; the kernel's own parameters, as a test compares.
        unsafe {
            if self.used {
                self.gpu.fill(device, 0xFF, PAIRS, self.stream)?;
            }
            self.used = true;
            if count > 0 {
                let from = self.memory.host(addresses);
                self.gpu.copy_in(device + addresses, from, count as u64 * 8, self.stream)?;
            }
            self.gpu.fill(device + FOUND, 0, answers, self.stream)?;
            self.gpu.launch(self.kernel, blocks, THREADS, &arguments, self.stream)?;
            self.fetch(FOUND, answers as usize)
        }
    }

    /// Queues a copy to the pinned memory.
    ///
    /// # Safety
    ///
    /// The device's memory has this many bytes there, and the copy is not read before it was waited for.
    unsafe fn fetch(&self, offset: u64, bytes: usize) -> Result<(), GpuError> {
        let (to, from) = (self.memory.host(offset), self.memory.device + offset);
        // SAFETY: by this function's contract.
        unsafe { self.gpu.copy_out(to, from, bytes as u64, self.stream) }
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.gpu.set(&self.mark, self.stream)?;
        self.gpu.wait(&self.mark)
    }

    fn grow(&mut self, pages: usize) -> Result<(), GpuError> {
        if pages > self.memory.room {
            let larger = Memory::make(&self.gpu, pages.next_power_of_two())?;
            std::mem::replace(&mut self.memory, larger).give_back(&self.gpu);
            self.used = true;
        }
        Ok(())
    }
}

impl Memory {
    fn give_back(self, gpu: &Gpu) {
        // SAFETY: allocated by `make`, and by value; the driver waits for work that still uses it.
        unsafe {
            let _ = gpu.free(self.device);
            let _ = gpu.free_host(self.host);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let gone = Memory { device: self.memory.device, host: self.memory.host, room: 0 };
        gone.give_back(&self.gpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_the_parameters_that_it_is_given() {
        let text = PTX.to_str().unwrap();
        let (_, entry) = text.split_once(&format!(".visible .entry {}(", ENTRY.to_str().unwrap())).unwrap();
        let (parameters, rest) = entry.split_once(')').unwrap();
        let sizes: Vec<usize> = parameters
            .split(',')
            .map(|parameter| match parameter.split_whitespace().collect::<Vec<_>>()[..] {
                [".param", ".u64", _] => 8,
                [".param", ".u32", _] => 4,
                _ => panic!("{parameter} is not a number"),
            })
            .collect();
        let all = Parameters {
            pages: 0,
            count: 0,
            parts: 0,
            key: [0; 2],
            start: 0,
            bytes: 0,
            digests: 0,
            found: 0,
            pairs: 0,
            room: 0,
            table: 0,
            slots: 0,
            host: 0,
            host_span: 0,
        };
        assert_eq!(sizes, all.list().map(|(_, size)| size));
        assert!(rest.trim_start().starts_with(&format!(".maxntid {THREADS}, 1, 1")), "{}", &rest[..40]);
    }

    #[test]
    fn the_kernel_can_be_compiled_for_any_gpu_since_turing_and_by_any_driver_since_cuda_11() {
        let text = PTX.to_str().unwrap();
        assert!(text.contains("\n.version 7.0\n") && text.contains("\n.target sm_75\n"));
    }

    #[test]
    fn the_numbers_are_those_that_the_kernel_wants() {
        assert!(SLOTS.is_power_of_two() && PARTS.is_power_of_two() && PARTS <= 128);
        assert_eq!((PAIRS % 8, FOUND % 8, DIGESTS % 8, size_of::<Digest>()), (0, 0, 0, 24));
    }
}
