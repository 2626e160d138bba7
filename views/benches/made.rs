//! Histories as coordinators tell them, made up: programs that take turns, are preempted, evicted, and answer requests.

use baton_report::event::{Event, History};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// The programs' names.
const NAMES: [&str; 7] = [
    "train-bert",
    "serve-llama",
    "tune",
    "notebook",
    "embed",
    "a very long name of a program that nobody can read at once",
    "<b>\"'&",
];

struct Story {
    events: Vec<Event>,
    now: u64,
    names: Vec<String>,
    seed: u64,
    /// When the last turn began.
    granted: u64,
}

impl Story {
    fn tell(&mut self, what: &str, id: u32) -> &mut Event {
        let (n, tenant) = (self.events.len() as u64, Some(self.names[id as usize].clone()));
        let event = Event { n, ns: self.now, id: Some(id), tenant, what: what.into(), ..Event::default() };
        self.events.push(event);
        self.events.last_mut().expect("just now")
    }

    /// A number below that, the same ones in each run.
    fn any(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below.max(1)
    }

    /// It had the GPU since then.
    fn worked(&mut self, id: u32, from: u64) {
        let gpu_ns = self.now - from;
        let event = self.tell("worked", id);
        (event.from_ns, event.gpu_ns) = (Some(from), Some(gpu_ns));
    }

    fn copy(&mut self, what: &str, id: u32, bytes: u64) {
        let from = self.now;
        // 25 GB/s.
        self.now += bytes / 25;
        let event = self.tell(what, id);
        (event.from_ns, event.bytes) = (Some(from), Some(bytes));
    }

    /// A program gets the GPU, which has to make room for it, and leaves it again.
    fn turn(&mut self, id: u32, before: Option<u32>, bytes: u64, length: u64) {
        let asked = self.now;
        self.tell("asked", id);
        self.now += 2 * MS + self.any(4 * MS);
        if let Some(before) = before {
            self.worked(before, self.granted);
            let is_preempted = self.any(3) > 0;
            self.tell(if is_preempted { "preempted" } else { "drained" }, before);
            if is_preempted {
                self.tell("drained", before);
            }
        }
        self.tell("chosen", id);
        let parts = (bytes / (64 * MIB)).max(1);
        for part in 0..parts {
            if let Some(before) = before {
                let event = self.tell("leaves", before);
                (event.bytes, event.uncopied_bytes) = (Some(64 * MIB), Some(32 * MIB));
                self.copy("copied_out", before, 32 * MIB);
                self.tell("unmapped", before).resident_bytes = Some((parts - part - 1) * 64 * MIB);
            }
            self.tell("comes", id).bytes = Some(64 * MIB);
            self.copy("copied_in", id, 64 * MIB);
            self.tell("mapped", id).resident_bytes = Some((part + 1) * 64 * MIB);
            if part == parts / 2 {
                let event = self.tell("granted", id);
                (event.arriving, event.from_ns) = (Some(true), Some(asked));
                self.tell("opened", id);
                self.granted = self.now;
            }
        }
        let launched = self.now - MS / 2;
        self.tell("arrived", id).first_launch_ns = Some(launched);
        self.now += length;
    }
}

/// So many programs in turns, until there are so many events.
pub fn turns(programs: u32, events: usize) -> History {
    let name = |id: u32| {
        let name = NAMES[id as usize % NAMES.len()];
        if (id as usize) < NAMES.len() { name.to_owned() } else { format!("{name}-{id}") }
    };
    let names = (0..programs).map(name).collect();
    let mut story = Story { events: Vec::new(), now: MS, names, seed: 7, granted: MS };
    for id in 0..programs {
        let class = ["batch", "latency", "normal"][id as usize % 3];
        story.tell("joined", id).class = Some(class.to_owned());
        story.now += 100_000;
    }
    let mut before = None;
    while story.events.len() < events {
        // Some are there more often than others.
        let id = story.any(u64::from(programs)) * if programs > 10 { story.any(100) } else { 99 } / 99;
        let id = id.min(u64::from(programs) - 1) as u32;
        if before == Some(id) {
            story.now += 5 * MS;
            continue;
        }
        let (bytes, length) = ((1 + story.any(24)) * 64 * MIB, 20 * MS + story.any(150 * MS));
        story.turn(id, before, bytes, length);
        if id % 3 == 1 {
            for _ in 0..3 {
                let from = story.now;
                story.now += 3 * MS;
                story.tell("request", id).from_ns = Some(from);
                story.now += 6 * MS;
            }
        }
        if story.any(10) == 0 && story.any(2) == 0 {
            story.tell("suspended", id);
        }
        before = Some(id);
    }
    let now_ns = story.now + 10 * MS;
    if let Some(id) = before {
        story.worked(id, story.granted);
    }
    let next = story.events.len() as u64;
    History { gpu: "GPU-made-up".to_owned(), now_ns, next, events: story.events, ..History::default() }
}

/// Programs that co-run: one always at work in the gaps of requests.
pub fn together(events: usize) -> History {
    let names = vec!["train".to_owned(), "serve".to_owned()];
    let mut story = Story { events: Vec::new(), now: MS, names, seed: 3, granted: MS };
    story.tell("joined", 0).class = Some("batch".to_owned());
    story.tell("joined", 1).class = Some("latency".to_owned());
    for (id, what) in [(0, "granted"), (0, "opened"), (1, "opened")] {
        story.tell(what, id);
    }
    while story.events.len() < events {
        story.now += 10 * MS + story.any(40 * MS);
        let from = story.now;
        story.worked(0, story.granted);
        story.now += MS / 4;
        story.tell("descheduled", 0);
        story.now += MS + story.any(4 * MS);
        story.tell("request", 1).from_ns = Some(from);
        story.worked(1, from);
        story.tell("rescheduled", 0);
        story.granted = story.now;
    }
    let next = story.events.len() as u64;
    History { gpu: "GPU-made-up".to_owned(), now_ns: story.now + MS, next, events: story.events, ..History::default() }
}
