//! Words that streams write, and copies that cut words: as calls, and as nodes of graphs.

use std::time::Duration;

use baton_tests::generated::script::{Buf, CopyBy, On, Wide, WordsBy};

use crate::machine::{Done, Machine, call, made};
use crate::work::{DEVICE, HOST};
use baton_tests::driver::{Copy2D, Copy3D, FillNode, Handle, HostNode, WordOp, WordsNode};

/// A host function's data.
struct Store {
    to: usize,
    words: Vec<u64>,
}

/// How long a host function takes: a thread that queues work behind it has returned by then, mostly.
const WHILE: Duration = Duration::from_millis(3);

extern "C" fn store(data: usize) {
    // SAFETY: leaked when it was submitted; a graph may do it again and again.
    let Store { to, words } = unsafe { &*(data as *const Store) };
    std::thread::sleep(WHILE);
    for (at, word) in words.iter().enumerate() {
        // SAFETY: host memory of the script's, which by the script no other call uses now; a page is aligned for this.
        unsafe { (*to as *mut u64).add(at).write(*word) };
    }
}

/// A part of a copy, `offset` behind both beginnings: rows side by side, of planes side by side, without the first ones.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    width: usize,
    height: usize,
    depth: usize,
    skipped: [usize; 2],
}

impl Part {
    fn line(from: usize, to: usize) -> Self {
        Self { offset: from, width: to - from, height: 1, depth: 1, skipped: [0, 0] }
    }

    fn copy(self, (to, to_type): (u64, u32), (from, from_type): (u64, u32)) -> Copy3D {
        let Self { offset, width, height, depth, skipped: [y, z] } = self;
        let (to, from) = (to + offset as u64, from + offset as u64);
        let rows = y + height;
        let mut copy = Copy3D { width, height, depth, to_type, from_type, ..Copy3D::default() };
        (copy.to_corner, copy.from_corner) = ([0, y, z, 0], [0, y, z, 0]);
        (copy.to_pitch, copy.from_pitch, copy.to_height, copy.from_height) = (width, width, rows, rows);
        match to_type {
            HOST => copy.to_host = to as usize,
            _ => copy.to_device = to,
        }
        match from_type {
            HOST => copy.from_host = from as usize,
            _ => copy.from_device = from,
        }
        copy
    }
}

/// The parts of a copy of so many bytes.
fn parts(by: CopyBy, bytes: usize) -> Vec<Part> {
    let shape = |width, height, depth, skipped| Part { offset: 0, width, height, depth, skipped };
    match by {
        CopyBy::Flat => {
            let (width, rows) = (5, 40);
            let cut = width * rows;
            vec![shape(width, 1, 1, [0, 0]), shape(width, rows - 1, 1, [1, 0]), Part::line(cut, bytes)]
        }
        CopyBy::Solid => {
            let (width, rows, planes) = (7, 3, 4);
            let cut = width * rows * planes;
            vec![shape(width, rows, 1, [0, 0]), shape(width, rows, planes - 1, [0, 1]), Part::line(cut, bytes)]
        }
        _ => {
            let cuts = [0, 3, 13, 22, 41, bytes];
            cuts.windows(2).map(|ends| Part::line(ends[0], ends[1])).collect()
        }
    }
}

/// Words as smaller elements: where each is, and what.
fn elements(at: u64, words: &[u64], unit: u32) -> impl Iterator<Item = (u64, u32)> {
    let (unit, each) = (u64::from(unit), 8 / u64::from(unit));
    (0..words.len() as u64 * each).map(move |number| {
        let word = words[(number / each) as usize] >> (8 * unit * (number % each));
        let mask = if unit == 4 { u64::from(u32::MAX) } else { (1 << (8 * unit)) - 1 };
        (at + unit * number, (word & mask) as u32)
    })
}

fn halves(at: u64, words: &[u64]) -> Vec<WordOp> {
    elements(at, words, 4).map(|(at, half)| WordOp::new(WordOp::WRITE_32, at, half.into())).collect()
}

impl Machine {
    fn wide(&self, words: &Wide) -> Vec<u64> {
        match words {
            Wide::Addresses(mems) => mems.iter().map(|mem| self.all.row(*mem)).collect(),
            Wide::Node(next, value) => {
                let value = u64::from(*value).wrapping_mul(0xE703_7ED1_A0B4_28DB);
                vec![next.map_or(0, |next| self.all.address(next)), value]
            }
            Wide::Data(seed, count) => {
                (1..=u64::from(*count)).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(*seed)).collect()
            }
        }
    }

    fn store(&self, out: Buf, words: Vec<u64>) -> usize {
        let data = Box::leak(Box::new(Store { to: self.at(out) as usize, words }));
        std::ptr::from_mut(data).expose_provenance()
    }

    pub(crate) fn write_words(&self, on: On, out: Buf, words: &Wide, by: WordsBy) -> Done {
        let (driver, stream, twin, at) = (&self.driver, self.stream(on), on.twin, self.at(out));
        let words = self.wide(words);
        match by {
            WordsBy::Wide => words
                .iter()
                .zip((at..).step_by(8))
                .try_for_each(|(word, at)| call!(driver, cuStreamWriteValue64_v2(twin, stream, at, *word, 0))),
            WordsBy::Halves => elements(at, &words, 4)
                .try_for_each(|(at, half)| call!(driver, cuStreamWriteValue32_v2(twin, stream, at, half, 0))),
            WordsBy::Batch => {
                let halves = halves(at, &words);
                call!(driver, cuStreamBatchMemOp_v2(twin, stream, halves.len() as u32, halves.as_ptr(), 0))
            }
            WordsBy::Fill(unit) => elements(at, &words, unit).try_for_each(|(at, value)| match unit {
                1 => call!(driver, cuMemsetD8Async(twin, at, value as u8, 1, stream)),
                2 => call!(driver, cuMemsetD16Async(twin, at, value as u16, 1, stream)),
                _ => call!(driver, cuMemsetD32Async(twin, at, value, 1, stream)),
            }),
            WordsBy::HostFunction => call!(driver, cuLaunchHostFunc(twin, stream, store, self.store(out, words))),
        }
    }

    /// The same as nodes, one behind the other; the last of them.
    pub(crate) fn add_words(
        &self,
        graph: Handle,
        after: &[Handle],
        out: Buf,
        words: &Wide,
        by: WordsBy,
    ) -> Done<Handle> {
        let (driver, context, at) = (&self.driver, self.current()?, self.at(out));
        let (words, list, count) = (self.wide(words), after.as_ptr(), after.len());
        let batch = |words: Vec<WordOp>| {
            let node = WordsNode { context, count: words.len() as u32, words: words.as_ptr(), flags: 0 };
            made(|out| call!(driver, cuGraphAddBatchMemOpNode(out, graph, list, count, &node)))
        };
        match by {
            WordsBy::Wide => {
                let all = words.iter().zip((at..).step_by(8));
                batch(all.map(|(word, at)| WordOp::new(WordOp::WRITE_64, at, *word)).collect())
            }
            WordsBy::Halves | WordsBy::Batch => batch(halves(at, &words)),
            WordsBy::Fill(element) => {
                let nodes = elements(at, &words, element).map(|(at, value)| {
                    let node = FillNode { at, pitch: 0, value, element, width: 1, height: 1 };
                    move |out: &mut Handle, list, count| {
                        call!(driver, cuGraphAddMemsetNode(out, graph, list, count, &node, context))
                    }
                });
                in_a_row(after, nodes)
            }
            WordsBy::HostFunction => {
                let node = HostNode { function: store, data: self.store(out, words) };
                made(|out| call!(driver, cuGraphAddHostNode(out, graph, list, count, &node)))
            }
        }
    }

    fn end_of(&self, buf: Buf) -> (u64, u32) {
        (self.at(buf), if matches!(buf, Buf::Host(_)) { HOST } else { DEVICE })
    }

    pub(crate) fn copy_cut(&self, on: On, to: Buf, from: Buf, bytes: u32, by: CopyBy) -> Done {
        let (driver, stream, twin) = (&self.driver, self.stream(on), on.twin);
        let (to, from) = (self.end_of(to), self.end_of(from));
        parts(by, bytes as usize).into_iter().try_for_each(|part| {
            let copy = part.copy(to, from);
            match (by, to.1, from.1) {
                (CopyBy::Solid, ..) => call!(driver, cuMemcpy3DAsync_v2(twin, &copy, stream)),
                (CopyBy::Flat, ..) => call!(driver, cuMemcpy2DAsync_v2(twin, &flat(&copy), stream)),
                (_, HOST, _) => {
                    call!(driver, cuMemcpyDtoHAsync_v2(twin, copy.to_host, copy.from_device, copy.width, stream))
                }
                (_, _, HOST) => {
                    call!(driver, cuMemcpyHtoDAsync_v2(twin, copy.to_device, copy.from_host, copy.width, stream))
                }
                _ => call!(driver, cuMemcpyDtoDAsync_v2(twin, copy.to_device, copy.from_device, copy.width, stream)),
            }
        })
    }

    /// The same as nodes, one behind the other; the last of them.
    pub(crate) fn add_copy_cut(
        &self,
        graph: Handle,
        after: &[Handle],
        to: Buf,
        from: Buf,
        bytes: u32,
        by: CopyBy,
    ) -> Done<Handle> {
        let (driver, context) = (&self.driver, self.current()?);
        let (to, from) = (self.end_of(to), self.end_of(from));
        let nodes = parts(by, bytes as usize).into_iter().map(|part| {
            let copy = part.copy(to, from);
            move |out: &mut Handle, list, count| {
                call!(driver, cuGraphAddMemcpyNode(out, graph, list, count, &copy, context))
            }
        });
        in_a_row(after, nodes)
    }
}

/// A copy of one plane.
fn flat(copy: &Copy3D) -> Copy2D {
    let corner = |[x, y, ..]: [usize; 4]| [x, y];
    Copy2D {
        from_corner: corner(copy.from_corner),
        from_type: copy.from_type,
        from_host: copy.from_host,
        from_device: copy.from_device,
        from_array: 0,
        from_pitch: copy.from_pitch,
        to_corner: corner(copy.to_corner),
        to_type: copy.to_type,
        to_host: copy.to_host,
        to_device: copy.to_device,
        to_array: 0,
        to_pitch: copy.to_pitch,
        width: copy.width,
        height: copy.height,
    }
}

/// Adds nodes, each behind the one before; the last.
fn in_a_row<F>(after: &[Handle], nodes: impl Iterator<Item = F>) -> Done<Handle>
where
    F: FnOnce(&mut Handle, *const Handle, usize) -> Done,
{
    let (mut last, mut is_first) = (0, true);
    for add in nodes {
        let before = if is_first { after.to_vec() } else { vec![last] };
        last = made(|out| add(out, before.as_ptr(), before.len()))?;
        is_first = false;
    }
    Ok(last)
}
