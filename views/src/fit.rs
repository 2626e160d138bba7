//! Tells, before programs start, whether they fit a GPU: the memory on the GPU, the cost of a switch, and the host memory that they take.

use serde::Serialize;

/// Memory of a program that is asked for, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Program {
    /// The program's name.
    pub name: String,
    /// The most memory that it has.
    pub bytes: u64,
}

/// The memory that programs are to fit in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Place {
    /// GPU memory that is lent to programs, in bytes.
    pub arena: u64,
    /// Host memory for the memory that is not on the GPU, in bytes.
    pub host_pool: u64,
    /// Bytes copied to the GPU in a second.
    pub bytes_per_second: f64,
}

/// The outcome for these programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All programs are on the GPU at once.
    Together,
    /// They take turns, and the host pool has room for all memory off the GPU.
    InTurns,
    /// There is too little host memory: one of them runs out of memory.
    TooLittleHostMemory,
    /// One program alone is larger than the arena.
    TooLarge,
}

/// A program's cost beside the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fares {
    /// The program.
    #[serde(flatten)]
    pub program: Program,
    /// The most bytes copied to the GPU when the program gets it.
    pub comes_bytes: u64,
    /// The duration of that copy, in seconds.
    pub comes_seconds: f64,
}

/// The answer for a set of programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The outcome.
    pub verdict: Verdict,
    /// The place that was asked about.
    #[serde(flatten)]
    pub place: Place,
    /// Memory of all programs together, in bytes.
    pub bytes: u64,
    /// Bytes of it in host memory at any time.
    pub away_bytes: u64,
    /// Each program's cost.
    pub programs: Vec<Fares>,
}

impl Fit {
    /// Computes the answer for these programs in this place.
    pub fn of(programs: Vec<Program>, place: Place) -> Self {
        let bytes = programs.iter().fold(0u64, |sum, program| sum.saturating_add(program.bytes));
        let away = bytes.saturating_sub(place.arena);
        let verdict = match () {
            () if programs.iter().any(|program| program.bytes > place.arena) => Verdict::TooLarge,
            () if away == 0 => Verdict::Together,
            () if away <= place.host_pool => Verdict::InTurns,
            () => Verdict::TooLittleHostMemory,
        };
        let fares = |program: Program| {
            // At worst all memory that finds no room beside the others belongs to this program.
            let comes_bytes = program.bytes.min(away);
            Fares { program, comes_bytes, comes_seconds: comes_bytes as f64 / place.bytes_per_second }
        };
        let programs = programs.into_iter().map(fares).collect();
        Self { verdict, place, bytes, away_bytes: away, programs }
    }

    /// True if all programs can run.
    pub fn is_good(&self) -> bool {
        matches!(self.verdict, Verdict::Together | Verdict::InTurns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn fit(sizes: &[u64], host_pool: u64) -> Fit {
        let programs = sizes.iter().map(|gib| Program { name: format!("{gib}"), bytes: gib * GIB }).collect();
        Fit::of(programs, Place { arena: 70 * GIB, host_pool: host_pool * GIB, bytes_per_second: 10.0 * GIB as f64 })
    }

    #[test]
    fn those_that_fit_together_move_nothing() {
        let fit = fit(&[40, 30], 0);
        assert_eq!((fit.verdict, fit.away_bytes), (Verdict::Together, 0));
        assert!(fit.programs.iter().all(|one| one.comes_bytes == 0));
    }

    #[test]
    fn those_that_take_turns_need_room_on_the_host_for_what_is_away() {
        for (pool, verdict) in [(30, Verdict::InTurns), (29, Verdict::TooLittleHostMemory)] {
            let fit = fit(&[60, 40], pool);
            assert_eq!((fit.verdict, fit.away_bytes, fit.is_good()), (verdict, 30 * GIB, pool == 30));
            // 30 GiB of each program have no room beside the other.
            assert!(
                fit.programs.iter().all(|one| one.comes_bytes == 30 * GIB && (one.comes_seconds - 3.0).abs() < 1e-9)
            );
        }
        // A small program is copied whole at most.
        assert_eq!(fit(&[60, 40, 5], 90).programs[2].comes_bytes, 5 * GIB);
    }

    #[test]
    fn one_that_is_larger_than_the_arena_never_fits() {
        let fit = fit(&[71, 1], 1000);
        assert_eq!((fit.verdict, fit.is_good()), (Verdict::TooLarge, false));
    }
}
