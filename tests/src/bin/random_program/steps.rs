//! The kinds of steps that a random program is made of.

use crate::lane::{Lane, Public};
use crate::pointers::WAYS;
use crate::work::{Copy, End, Fill, Kernel, Work};
use baton_tests::driver::{Failure, Outcome};

/// A kind of step: its name, how often it comes, and what it does.
type Step = (&'static str, usize, fn(&mut Lane) -> Outcome);

const STEPS: &[Step] = &[
    ("hash", 2, |lane| lane.hash()),
    ("upload", 3, |lane| lane.upload()),
    ("fill", 3, |lane| lane.fill_some()),
    ("elements", 4, |lane| lane.elements()),
    ("matmul", 1, |lane| lane.matmul()),
    ("copy", 3, |lane| lane.copy_some()),
    ("gather", 4, |lane| lane.gather(false)),
    ("deep", 3, |lane| lane.gather(true)),
    ("again", 4, |lane| lane.gather_again()),
    ("scatter", 3, |lane| lane.scatter()),
    ("chase", 3, |lane| lane.chase()),
    ("walk", 3, |lane| lane.chase_again()),
    ("graph", 5, |lane| lane.graph_step()),
];

/// Events beside steps: pieces are freed and others made; tables lie in pinned memory and in modules'
/// variables; tables are cleared after some rounds.
const OTHERS: [&str; 6] = ["replace", "in-pinned", "in-global", "in-mapping", "clean", "by-host-function"];

/// The names of all kinds: of steps, of ways to upload pointers, and of other things.
pub(crate) fn kinds() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.0).chain(WAYS).chain(OTHERS).collect()
}

impl Lane<'_> {
    /// A phase's steps.
    pub(crate) fn steps(&mut self, round: usize, phase: usize) -> Outcome {
        if phase == 0 && self.has_kind("replace") && self.dice.once_in(2) {
            let what = format!("lane {}, round {round}: replace", self.index);
            self.replace_pieces().map_err(|Failure(why)| Failure(format!("{what}: {why}")))?;
        }
        let steps: Vec<&Step> = STEPS.iter().filter(|step| self.has_kind(step.0)).collect();
        let all: usize = steps.iter().map(|step| step.1).sum();
        for number in 0..if all == 0 { 0 } else { self.shared.steps } {
            let mut chosen = self.dice.roll(all);
            let step = steps.iter().find(|step| {
                let found = chosen < step.1;
                chosen = chosen.wrapping_sub(step.1);
                found
            });
            let (name, _, work) = *step.expect("the weights add up");
            let what = format!("lane {}, round {round}, phase {phase}, step {number}: {name}", self.index);
            if self.shared.verbose {
                eprintln!("{what}");
            }
            let mut done = work(self);
            if self.shared.sync {
                done = done.and_then(|()| self.wait_plainly());
            }
            done.map_err(|Failure(why)| Failure(format!("{what}: {why}")))?;
        }
        Ok(())
    }

    /// A length in words that fits in a piece, and where it begins.
    fn part(&mut self, row: &Public) -> (u64, usize) {
        let words = self.dice.size(1, row.piece.words());
        (row.piece.body() + 4 * self.dice.roll(row.piece.words() - words + 1) as u64, words)
    }

    /// A piece to write, as a row of one.
    fn written(&mut self) -> Public {
        let own = self.own_writable();
        Public { lane: self.index, piece: self.dice.of(&own) }
    }

    fn hash(&mut self) -> Outcome {
        let out = self.written();
        let (at, words) = if self.dice.once_in(2) { (out.piece.body(), out.piece.words()) } else { self.part(&out) };
        let kernel = Kernel::new(c"fill_hash").pointer(at).number(self.dice.next() as usize).number(words);
        self.submit(Work::Kernel(kernel), &[], &[out.piece.key])
    }

    /// Numbers from the host, by any way that pointers come too.
    fn upload(&mut self) -> Outcome {
        let out = self.written();
        let (at, words) = self.part(&out);
        let (at, words) = (at.next_multiple_of(8), words.min(1 << 14) / 2);
        // Rounding up may have gone past the end.
        let room = (out.piece.at + out.piece.bytes as u64).saturating_sub(at) / 8;
        let words = words.min(room as usize);
        if words == 0 {
            return Ok(());
        }
        let numbers: Vec<u64> = (0..words).map(|_| self.dice.next()).collect();
        self.put_on_device(out.piece.key, at, &numbers)
    }

    fn fill_some(&mut self) -> Outcome {
        let out = self.written();
        let (at, words) = self.part(&out);
        let element = 1 << self.dice.roll(3);
        let value = self.dice.next() as u32;
        let bytes = words * 4;
        let rows = self.dice.size(1, words.min(64));
        let pitch = bytes / rows / 4 * 4;
        let fill = if pitch >= 4 && self.dice.once_in(2) {
            let width = 1 + self.dice.roll(pitch / element);
            Fill { at, pitch, value, element, width, height: rows }
        } else {
            Fill::line(at, element, value, bytes / element)
        };
        self.submit(Work::Fill(fill), &[], &[out.piece.key])
    }

    /// Kernels that compute each element from the elements at its place.
    fn elements(&mut self) -> Outcome {
        let out = self.written();
        let sources = self.rows(2, false, &[out.piece.key]);
        let [a, b] = sources[..] else { return Ok(()) };
        let all = [out, a, b];
        let most = all.iter().map(|row| row.piece.words()).min().unwrap_or(0);
        let words = self.dice.size(1, most);
        let places = self.addresses(&all, words);
        let [o, x, y] = places[..] else { return Ok(()) };
        let kernel = match self.dice.roll(6) {
            0 => Kernel::new(c"add").pointer(o).pointer(x).pointer(y).number(words),
            1 => {
                // The words after the count are padding, which may hold anything.
                let count = words as u64 | (self.dice.next() << 32);
                Kernel::new(c"add_struct").block(&[o, x, y, count])
            }
            2 => Kernel::new(c"axpy").pointer(o).pointer(x).float(-0.5).number(words),
            3 => Kernel::new(c"scale").pointer(o).pointer(x).float(0.5).number(words),
            4 => Kernel::new(c"relu").pointer(o).pointer(x).number(words),
            _ => Kernel::new(c"relu_grad").pointer(o).pointer(x).pointer(y).number(words),
        };
        let reads = self.own_keys(&[a, b]);
        self.submit(Work::Kernel(kernel), &reads, &[out.piece.key])
    }

    fn matmul(&mut self) -> Outcome {
        let out = self.written();
        let sources = self.rows(2, false, &[out.piece.key]);
        let [a, b] = sources[..] else { return Ok(()) };
        let side = |words: usize| words.isqrt().min(48);
        let most = side(out.piece.words().min(a.piece.words()).min(b.piece.words()));
        let [m, n, k] = [0; 3].map(|_| self.dice.size(1, most));
        let kernel = Kernel::new(c"matmul").pointer(out.piece.body()).pointer(a.piece.body()).pointer(b.piece.body());
        let kernel = kernel.number(m).number(n).number(k).number(self.dice.roll(4));
        let reads = self.own_keys(&[a, b]);
        self.submit(Work::Kernel(kernel), &reads, &[out.piece.key])
    }

    /// From piece to piece, as a line or as rows with gaps.
    fn copy_some(&mut self) -> Outcome {
        let out = self.written();
        let sources = self.rows(1, false, &[out.piece.key]);
        let [source] = sources[..] else { return Ok(()) };
        let words = self.dice.size(1, out.piece.words().min(source.piece.words()));
        let places = self.addresses(&[out, source], words);
        let (to, from) = (End::Device(places[0]), End::Device(places[1]));
        let bytes = words * 4;
        let height = self.dice.size(1, words.min(64));
        let pitch = bytes / height;
        let copy = if self.dice.once_in(2) {
            Copy::line(to, from, bytes)
        } else {
            let width = 1 + self.dice.roll(pitch);
            let to_pitch = width + self.dice.roll(pitch - width + 1);
            Copy { to, from, width, height, to_pitch, from_pitch: pitch }
        };
        let reads = self.own_keys(&[source]);
        self.submit(Work::Copy(copy), &reads, &[out.piece.key])
    }
}
