//! Programs by chance of two processes that share memory and events.
//!
//! An [`Exchange`] is a list of steps of either process, in one order. `generated_exchange` executes it: the one process tells
//! the other, step by step, what to do. The next step is given the handle or descriptor that a step hands out. So calls come in the
//! same order in every run, and what the device does is ordered by streams, events that both have, and waiting: a step that would
//! touch memory while it is in use elsewhere comes after steps that see to that.

use serde::{Deserialize, Serialize};

use super::dice::Dice;
use super::script::Id;

/// Streams of each process.
pub const STREAMS: u8 = 2;
/// Memory of all kinds at once, at most.
const MOST: usize = 6;
/// Bytes of memory, by class; that of handles comes in whole units of 2 MiB.
const SIZES: [u32; 5] = [512, 4096, 300_000, 2 << 20, (4 << 20) + 512];
const UNIT: u32 = 2 << 20;

/// A program of two processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// For readers.
    pub about: String,
    /// The acts, one after the other, each with the process that does it.
    pub steps: Vec<(u8, Act)>,
}

/// How memory is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// `cuMemAlloc`, `cuIpcGetMemHandle`
    Handle,
    /// `cuMemCreate`, `cuMemExportToShareableHandle`
    Descriptor,
    /// `cuMemAllocFromPoolAsync`, `cuMemPoolExportPointer`
    Pool,
}

/// An act of a process, which has its own names for the objects that it has made or opened.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    Alloc {
        mem: Id,
        way: Way,
        bytes: u32,
    },
    /// Hands it out; of what a handle names, from somewhere inside.
    Export {
        mem: Id,
        inside: u32,
    },
    Open {
        mem: Id,
        way: Way,
        bytes: u32,
    },
    /// Opens once more what is open, which is the same address, and closes that. Prints whether it is.
    OpenAgain {
        mem: Id,
    },
    /// Prints what a call answers that may not be made of what is open.
    Misuse {
        mem: Id,
    },
    /// Of memory that another process made.
    Close {
        mem: Id,
    },
    /// Of its own.
    Free {
        mem: Id,
    },
    /// Writes all of it by a kernel.
    Write {
        mem: Id,
        seed: u32,
        stream: u8,
    },
    /// Adds half of the one to the other.
    Add {
        to: Id,
        from: Id,
        stream: u8,
    },
    /// Reads all of it in a stream, waits, and prints a digest.
    Read {
        mem: Id,
        stream: u8,
    },
    /// Prints where in it an address is, and how large it is.
    Range {
        mem: Id,
    },
    PoolCreate,
    PoolExport,
    PoolImport,
    PoolDestroy,
    EventCreate {
        event: Id,
    },
    EventExport {
        event: Id,
    },
    EventOpen {
        event: Id,
    },
    EventRecord {
        event: Id,
        stream: u8,
    },
    EventWait {
        event: Id,
        stream: u8,
    },
    EventSynchronize {
        event: Id,
    },
    EventDestroy {
        event: Id,
    },
    Synchronize {
        stream: u8,
    },
    Rest,
}

/// Memory that both or one of them have.
#[derive(Clone, Debug)]
struct Shared {
    id: Id,
    way: Way,
    owner: u8,
    /// The processes that have it.
    has: [bool; 2],
    /// The process that has used it last, and in which stream, if that may go on.
    last: Option<(u8, u8)>,
}

struct Drawer {
    dice: Dice,
    steps: Vec<(u8, Act)>,
    memory: Vec<Shared>,
    /// Events that both have.
    events: Vec<Id>,
    /// The processes that have made a pool which the other one has imported too.
    pools: [bool; 2],
    next: Id,
}

/// The program of a seed.
pub fn exchange(seed: u64) -> Exchange {
    let mut drawer = Drawer {
        dice: Dice::new(seed),
        steps: Vec::new(),
        memory: Vec::new(),
        events: Vec::new(),
        pools: [false; 2],
        next: 0,
    };
    let length = 12 + drawer.dice.below(40);
    drawer.share();
    for _ in 0..length {
        drawer.operation();
    }
    drawer.end();
    Exchange { about: format!("exchange of seed {seed}"), steps: drawer.steps }
}

impl Drawer {
    fn step(&mut self, side: u8, act: Act) {
        self.steps.push((side, act));
    }

    fn new_id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    fn operation(&mut self) {
        if self.memory.is_empty() {
            return self.share();
        }
        let at = self.dice.below(self.memory.len());
        let holders: Vec<u8> = (0..2).filter(|side| self.memory[at].has[usize::from(*side)]).collect();
        let side = self.dice.of(&holders);
        let stream = self.dice.slot(STREAMS);
        let id = self.memory[at].id;
        match self.dice.below(100) {
            0..14 => self.share(),
            14..44 => {
                let seed = self.dice.below(1000) as u32;
                self.turn(at, side, stream);
                self.step(side, Act::Write { mem: id, seed, stream });
            }
            44..56 => {
                let other = self.dice.below(self.memory.len());
                if other != at && self.memory[other].has[usize::from(side)] {
                    self.turn(at, side, stream);
                    self.turn(other, side, stream);
                    self.step(side, Act::Add { to: id, from: self.memory[other].id, stream });
                }
            }
            56..80 => {
                self.turn(at, side, stream);
                self.step(side, Act::Read { mem: id, stream });
                self.memory[at].last = None;
            }
            80..84 => self.step(side, Act::Range { mem: id }),
            84..87 if self.is_opened_by_handle(at) => self.step(1 - self.memory[at].owner, Act::OpenAgain { mem: id }),
            87..90 if self.is_opened_by_handle(at) => self.step(1 - self.memory[at].owner, Act::Misuse { mem: id }),
            90..95 => self.let_go(at),
            _ => self.step(side, Act::Rest),
        }
    }

    fn is_opened_by_handle(&self, at: usize) -> bool {
        let Shared { way, has, .. } = self.memory[at];
        way == Way::Handle && has == [true; 2]
    }

    /// Has memory come from one to the other.
    fn share(&mut self) {
        if self.memory.len() >= MOST {
            return;
        }
        let (owner, way) = (self.dice.slot(2), self.dice.of(&[Way::Handle, Way::Handle, Way::Descriptor, Way::Pool]));
        let drawn = self.dice.of(&SIZES);
        let bytes = if way == Way::Descriptor { drawn.next_multiple_of(UNIT) } else { drawn };
        if way == Way::Pool && !self.pools[usize::from(owner)] {
            self.pools[usize::from(owner)] = true;
            self.step(owner, Act::PoolCreate);
            self.step(owner, Act::PoolExport);
            self.step(1 - owner, Act::PoolImport);
        }
        let mem = self.new_id();
        self.step(owner, Act::Alloc { mem, way, bytes });
        let (seed, stream) = (mem, self.dice.slot(STREAMS));
        self.step(owner, Act::Write { mem, seed, stream });
        // Half of all first work is over before it is shared.
        let last = if self.dice.percent(50) {
            self.step(owner, Act::Synchronize { stream });
            None
        } else {
            Some((owner, stream))
        };
        let inside = if way == Way::Handle { self.dice.below(bytes as usize) as u32 } else { 0 };
        self.step(owner, Act::Export { mem, inside });
        self.step(1 - owner, Act::Open { mem, way, bytes });
        self.memory.push(Shared { id: mem, way, owner, has: [true; 2], last });
    }

    /// Sees that a stream of a process may use memory: its last user is done by then.
    fn turn(&mut self, at: usize, side: u8, stream: u8) {
        let me = (side, stream);
        if let Some(last) = self.memory[at].last.filter(|last| *last != me) {
            self.order(last, me);
        }
        self.memory[at].last = Some(me);
    }

    fn order(&mut self, (from, from_stream): (u8, u8), (to, to_stream): (u8, u8)) {
        if self.dice.percent(30) {
            return self.step(from, Act::Synchronize { stream: from_stream });
        }
        let event = self.event();
        self.step(from, Act::EventRecord { event, stream: from_stream });
        let wait = if self.dice.percent(80) {
            Act::EventWait { event, stream: to_stream }
        } else {
            Act::EventSynchronize { event }
        };
        self.step(to, wait);
    }

    /// An event that both have.
    fn event(&mut self) -> Id {
        if self.events.len() >= 2 && !self.dice.percent(10) {
            return self.dice.of(&self.events.clone());
        }
        let (event, maker) = (self.new_id(), self.dice.slot(2));
        self.step(maker, Act::EventCreate { event });
        self.step(maker, Act::EventExport { event });
        self.step(1 - maker, Act::EventOpen { event });
        self.events.push(event);
        event
    }

    /// One of them, or both, give memory up.
    fn let_go(&mut self, at: usize) {
        let Shared { id, way, owner, has, .. } = self.memory[at].clone();
        if let Some((side, stream)) = self.memory[at].last.take() {
            self.step(side, Act::Synchronize { stream });
        }
        let other = 1 - owner;
        let both = has == [true; 2];
        // A descriptor's memory is there as long as a process has it. Of the other kinds nothing is known once the owner has freed it.
        let owner_first = way == Way::Descriptor && both && self.dice.percent(50);
        let free_open = way == Way::Handle && both && self.dice.percent(15);
        let mut go = |who: u8, act: Act| {
            self.steps.push((who, act));
            self.memory[at].has[usize::from(who)] = false;
        };
        if owner_first || free_open {
            go(owner, Act::Free { mem: id });
            if free_open {
                go(other, Act::Close { mem: id });
            }
        } else if has[usize::from(other)] {
            go(other, Act::Close { mem: id });
        } else {
            go(owner, Act::Free { mem: id });
        }
        self.memory.retain(|one| one.has != [false; 2]);
    }

    /// Each process reads all that it has left, and gives it up.
    fn end(&mut self) {
        for at in 0..self.memory.len() {
            for side in 0..2 {
                if self.memory[at].has[usize::from(side)] {
                    self.turn(at, side, 0);
                    let mem = self.memory[at].id;
                    self.step(side, Act::Read { mem, stream: 0 });
                    self.memory[at].last = None;
                }
            }
        }
        while !self.memory.is_empty() {
            self.let_go(0);
        }
        for event in std::mem::take(&mut self.events) {
            self.step(0, Act::EventDestroy { event });
            self.step(1, Act::EventDestroy { event });
        }
        for owner in 0..2 {
            if self.pools[usize::from(owner)] {
                // The importer's first.
                self.step(1 - owner, Act::PoolDestroy);
                self.step(owner, Act::PoolDestroy);
            }
        }
    }
}

impl Exchange {
    /// From JSON.
    ///
    /// # Errors
    ///
    /// The fault of the text.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// As JSON, with a line for each step.
    pub fn to_text(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(super::script::json).collect();
        format!("{{\"about\": {},\n \"steps\": [\n  {}\n]}}\n", super::script::json(&self.about), steps.join(",\n  "))
    }
}
