//! The strategy: programs by chance, and how a failing one becomes small.
//!
//! Operations are left out, many at once at first, then one by one. The rest is made simpler: fewer threads, smaller
//! memory, other streams. A candidate that is executed as the one before is not tried.

use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::draw::{self, Aspect};
use super::program::{From, Operation, Program, To, What, Where};
use super::script::{Script, TOUCHES, WaitBy};

/// Random programs with some aspects and without others.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The aspects that every program has.
    pub with: Vec<Aspect>,
    /// The aspects that no program has.
    pub without: Vec<Aspect>,
}

impl Strategy for Programs {
    type Tree = Tree;
    type Value = Program;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let seed = proptest::num::u64::ANY.new_tree(runner)?.current();
        Ok(Tree::new(draw::program(seed, &self.with, &self.without)))
    }
}

/// A program that becomes smaller.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The smallest one that is known to fail.
    program: Program,
    script: Script,
    candidate: Option<(Program, Script)>,
    stage: Stage,
    /// True if something was left out since they were last gone through one by one.
    shrunk: bool,
}

/// The next attempt to make a program smaller.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// To leave out so many operations, the last of which is the one before this place.
    Leave {
        count: usize,
        end: usize,
    },
    /// The variant of this number of the operation at this place.
    Simplify {
        at: usize,
        variant: usize,
    },
    Over,
}

impl Tree {
    /// With nothing left out yet.
    pub fn new(program: Program) -> Self {
        let (script, program) = program.script("");
        let length = program.operations.len();
        Self {
            program,
            script,
            candidate: None,
            stage: Stage::Leave { count: length.div_ceil(2), end: length },
            shrunk: false,
        }
    }

    /// The next candidate, if there is one.
    fn next(&mut self) -> bool {
        loop {
            let candidate = match self.stage {
                Stage::Leave { count, end } => {
                    let end = end.min(self.program.operations.len());
                    if end == 0 {
                        let again = std::mem::take(&mut self.shrunk);
                        self.stage = match count {
                            0 | 1 if again => Stage::Leave { count: 1, end: usize::MAX },
                            0 | 1 => Stage::Simplify { at: 0, variant: 0 },
                            _ => Stage::Leave { count: count / 2, end: usize::MAX },
                        };
                        continue;
                    }
                    let start = end.saturating_sub(count);
                    self.stage = Stage::Leave { count, end: start };
                    let mut candidate = self.program.clone();
                    candidate.operations.drain(start..end);
                    candidate
                }
                Stage::Simplify { at, variant } => {
                    if at > self.program.operations.len() {
                        self.stage = Stage::Over;
                        continue;
                    }
                    let simpler = simpler(&self.program, at, variant);
                    self.stage = match simpler {
                        Some(_) => Stage::Simplify { at, variant: variant + 1 },
                        None => Stage::Simplify { at: at + 1, variant: 0 },
                    };
                    let Some(candidate) = simpler else { continue };
                    candidate
                }
                Stage::Over => return false,
            };
            let (script, candidate) = candidate.script("");
            if script != self.script {
                self.candidate = Some((candidate, script));
                return true;
            }
        }
    }
}

impl ValueTree for Tree {
    type Value = Program;

    fn current(&self) -> Program {
        self.candidate.as_ref().map_or(&self.program, |(program, _)| program).clone()
    }

    fn simplify(&mut self) -> bool {
        if let Some((program, script)) = self.candidate.take() {
            (self.program, self.script) = (program, script);
            self.shrunk = true;
        }
        self.next()
    }

    fn complicate(&mut self) -> bool {
        self.candidate = None;
        self.next()
    }
}

/// The program with a simpler operation at a place, by the number of the variant; behind the last, a thread less. None: there
/// are no more variants.
fn simpler(program: &Program, at: usize, variant: usize) -> Option<Program> {
    let mut simpler = program.clone();
    let Some(operation) = simpler.operations.get_mut(at) else {
        let last = program.threads - 1;
        if last == 0 || variant > 0 {
            return None;
        }
        simpler.threads = last;
        for operation in simpler.operations.iter_mut().filter(|operation| operation.thread == last) {
            operation.thread = 0;
        }
        return Some(simpler);
    };
    let variants = variants(operation);
    *operation = variants.into_iter().nth(variant)?;
    Some(simpler)
}

/// Simpler operations than this one, those that differ from it.
fn variants(operation: &Operation) -> Vec<Operation> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Operation)| {
        let mut other = operation.clone();
        change(&mut other);
        if other != *operation {
            all.push(other);
        }
    };
    add(&|operation| operation.thread = 0);
    add(&|operation| {
        if let Some(to) = stream_of(&mut operation.what) {
            to.stream = Where::Made(0);
        }
    });
    add(&|operation| {
        if let Some(to) = stream_of(&mut operation.what) {
            to.twin = false;
        }
    });
    add(&|operation| match &mut operation.what {
        What::Alloc { size, .. } | What::HostAlloc { size, .. } => *size = 0,
        What::Map { mem, context, on, .. } | What::Variable { mem, context, on } => {
            operation.what = What::Alloc { mem: *mem, context: *context, size: 0, on: *on };
        }
        What::PoolAlloc { size, .. } => *size = 2,
        What::Late { by, .. } => *by = WaitBy::Value,
        What::Work { times, .. } => *times = 1,
        What::Build { kinds, .. } if kinds.len() > 1 => kinds.truncate(1),
        What::Read { twin, .. } | What::WorkAndWait { twin, .. } => *twin = false,
        What::Rest { idle } => *idle = true,
        What::Sleep { milliseconds } | What::Fork { milliseconds } => *milliseconds = 1,
        _ => {}
    });
    add(&|operation| {
        if let What::Build { kinds, .. } = &mut operation.what
            && kinds.len() > 1
        {
            kinds.remove(0);
        }
    });
    add(&|operation| match &mut operation.what {
        What::PoolAlloc { pool, .. } => *pool = None,
        What::PoolAsk { pool, .. } | What::PoolSet { pool, .. } | What::PoolTrim { pool, .. } => *pool = From::Default,
        _ => {}
    });
    for bit in 0..TOUCHES.len() {
        add(&|operation| {
            if let What::ForkTouch { touches, .. } = &mut operation.what {
                *touches = 1 << bit;
            }
        });
    }
    add(&|operation| {
        if let What::Build { child, .. } = &mut operation.what {
            *child = None;
        }
    });
    all
}

fn stream_of(what: &mut What) -> Option<&mut To> {
    match what {
        What::StreamSynchronize { on }
        | What::StreamQuery { on }
        | What::EventRecord { on, .. }
        | What::EventWait { on, .. }
        | What::Alloc { on, .. }
        | What::Map { on, .. }
        | What::Variable { on, .. }
        | What::Upload { on, .. }
        | What::FreeAsync { on, .. }
        | What::PoolAlloc { on, .. }
        | What::Work { on, .. }
        | What::Wait { on, .. }
        | What::Late { on, .. }
        | What::BeginCapture { on, .. }
        | What::EndCapture { on, .. }
        | What::Launch { on, .. } => Some(on),
        _ => None,
    }
}
