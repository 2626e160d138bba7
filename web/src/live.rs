//! The content of a page, made from a status and from events: first all of it, then the changes.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use baton_report::event::{Event, History, Kind};
use baton_report::status::Status;
use baton_report::switch::Switch;
use baton_report::tenant::Tenant;
use baton_report::times::Times;
use baton_views::standing;
use baton_views::timeline::Timeline;
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use crate::lanes::{COLUMN_NS, COLUMNS, Lanes};

/// The time for which a page shows the GPU's owners.
const WINDOW_NS: u64 = COLUMN_NS * COLUMNS as u64;
/// Maximum number of log entries that are kept, of each kind.
const LOGGED: usize = 200;
/// Maximum number of switches that are shown.
const SWITCHES: usize = 50;
/// Maximum number of newcomers that are named.
const NEWCOMERS: usize = 20;

/// The events in the log that happen once or twice in a program's life, and those that concern turns.
const RARE: [Kind; 6] =
    [Kind::Joined, Kind::Departed, Kind::Refused, Kind::Suspended, Kind::Unsuspended, Kind::UnmapTimedOut];
const TURNS: [Kind; 5] = [Kind::Granted, Kind::Drained, Kind::Preempted, Kind::Resumed, Kind::Descheduled];

/// A program, as a row of the table.
#[derive(Serialize)]
struct Row<'a> {
    id: u32,
    name: &'a str,
    class: &'a str,
    weight: u32,
    slo_ms: Option<f64>,
    state: &'a str,
    /// The state in words, with the part of its memory that has arrived.
    standing: String,
    suspended: bool,
    resident_bytes: u64,
    evicted_bytes: u64,
    unmanaged_bytes: u64,
    /// The part of the shown time in which it had the GPU.
    share: f64,
    gpu_seconds: f64,
    switches: u64,
    waits: Option<&'a Times>,
    requests: Option<&'a Times>,
    slo_misses: u64,
    container: Option<&'a str>,
    pod: Option<&'a str>,
}

#[derive(Serialize)]
struct Entry<'a> {
    n: u64,
    /// In milliseconds since the coordinator began.
    ms: u64,
    tenant: Option<&'a str>,
    what: &'a str,
    bytes: Option<u64>,
    took_ms: Option<f64>,
}

/// A list that keeps its newest entries, as JSON texts.
#[derive(Debug, Default)]
struct Kept {
    texts: VecDeque<String>,
    /// The number of new entries.
    new: usize,
}

impl Kept {
    fn add(&mut self, text: String, most: usize) {
        if self.texts.len() == most {
            self.texts.pop_front();
        }
        self.texts.push_back(text);
        self.new = (self.new + 1).min(most);
    }

    fn news(&self) -> impl Iterator<Item = &String> {
        self.texts.iter().skip(self.texts.len() - self.new)
    }
}

/// The content that was shown, and the news.
#[derive(Debug, Default)]
pub(crate) struct Live {
    control: bool,
    timeline: Timeline,
    lanes: Lanes,
    /// Each row as it was shown last, by tenant.
    rows: HashMap<u32, String>,
    rare: Kept,
    turns: Kept,
    switches: Kept,
    last_switch: u64,
}

impl Live {
    /// Makes one that has shown nothing. `control`: the page is told that its buttons work.
    pub(crate) fn new(control: bool) -> Self {
        Self { control, ..Self::default() }
    }

    /// The number of the next event to ask for.
    pub(crate) fn next(&self) -> u64 {
        self.timeline.next()
    }

    /// Reads more events.
    pub(crate) fn hear(&mut self, history: &History) {
        self.timeline.see(history);
        self.timeline.forget_before(self.timeline.now.saturating_sub(WINDOW_NS));
        for event in &history.events {
            if RARE.contains(&event.what) {
                self.rare.add(entry(event), LOGGED);
            } else if TURNS.contains(&event.what) {
                self.turns.add(entry(event), LOGGED);
            }
        }
    }

    /// Returns everything to show, and the part of it that is new.
    pub(crate) fn show(&mut self, status: &Status) -> (Bytes, Bytes) {
        for switch in status.recent.iter().filter(|switch| switch.n > self.last_switch) {
            self.switches.add(of_switch(switch), SWITCHES);
        }
        self.last_switch = status.recent.last().map_or(self.last_switch, |switch| switch.n);
        let (changed, gone) = self.changed_rows(status);
        let from = self.lanes.advance(&self.timeline);
        let top = self.top(status);
        let all = message(
            &top,
            true,
            [
                ("tenants", list(status.tenants.iter().filter_map(|tenant| self.rows.get(&tenant.id)))),
                ("gone", "[]".to_owned()),
                ("lanes", self.lanes.all(&self.timeline)),
                ("switches", list(self.switches.texts.iter())),
                ("log", list(self.rare.texts.iter().chain(&self.turns.texts))),
            ],
        );
        let news = message(
            &top,
            false,
            [
                ("tenants", list(changed.iter().filter_map(|id| self.rows.get(id)))),
                ("gone", serde_json::to_string(&gone).unwrap_or_default()),
                ("lanes", self.lanes.since(from, &self.timeline)),
                ("switches", list(self.switches.news())),
                ("log", list(self.rare.news().chain(self.turns.news()))),
            ],
        );
        for kept in [&mut self.switches, &mut self.rare, &mut self.turns] {
            kept.new = 0;
        }
        (all, news)
    }

    /// Returns the tenants whose rows have changed, and those that have left.
    fn changed_rows(&mut self, status: &Status) -> (Vec<u32>, Vec<u32>) {
        let time = self.timeline.now.saturating_sub(WINDOW_NS).max(self.timeline.since)..self.timeline.now;
        let shares = self.timeline.shares(&time);
        let mut changed = Vec::new();
        let mut before = std::mem::take(&mut self.rows);
        for tenant in &status.tenants {
            let text = of_tenant(tenant, shares.get(&tenant.id).copied().unwrap_or(0.0));
            if before.remove(&tenant.id).as_ref() != Some(&text) {
                changed.push(tenant.id);
            }
            self.rows.insert(tenant.id, text);
        }
        (changed, before.into_keys().collect())
    }

    /// Returns the part that concerns no single tenant.
    fn top(&self, status: &Status) -> String {
        let newcomers: Vec<&str> = status.newcomers.iter().take(NEWCOMERS).map(|one| one.name.as_str()).collect();
        let Status { gpu, host_pool: pool, .. } = status;
        let lines = status.ledger.lines.all();
        json!({
            "version": status.version,
            "gpu": { "name": gpu.name, "uuid": gpu.uuid, "memory_bytes": gpu.memory_bytes },
            "driver": status.driver,
            "started_unix_ms": status.started_unix_ms,
            "now_ms": self.timeline.now / 1_000_000,
            "control": self.control,
            "on_gpu": standing::on_gpu(status),
            "ending": status.ending,
            "count": status.tenants.len(),
            "max_tenants": status.max_tenants,
            "newcomers": { "count": status.newcomers.len(), "names": newcomers },
            "switches": status.switches,
            "bytes_in": status.counters.bytes_in,
            "bytes_out": status.counters.bytes_out,
            "preemptions": status.counters.preemptions,
            "refused": status.counters.refused(),
            "departed": status.departed_totals.tenants,
            "arena": { "bytes": status.arena.bytes, "lent_bytes": status.arena.lent_bytes },
            "host_pool": { "bytes": pool.bytes, "ready_bytes": pool.ready_bytes, "used_bytes": pool.used_bytes },
            "ledger": { "total_bytes": status.ledger.total_bytes, "lines": lines },
        })
        .to_string()
    }
}

/// Makes a message: an object of these parts, which are JSON already.
fn message(top: &str, is_all: bool, parts: [(&str, String); 5]) -> Bytes {
    let mut text = format!("{{\"all\":{is_all},\"top\":{top}");
    for (key, part) in parts {
        let _ = write!(text, ",\"{key}\":{part}");
    }
    text.push('}');
    text.into()
}

fn list<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let mut text = String::from("[");
    for one in texts {
        if text.len() > 1 {
            text.push(',');
        }
        text += one;
    }
    text.push(']');
    text
}

fn of_tenant(tenant: &Tenant, share: f64) -> String {
    let row = Row {
        id: tenant.id,
        name: &tenant.name,
        class: &tenant.class,
        weight: tenant.weight,
        slo_ms: tenant.slo_ms,
        state: tenant.state.word(),
        standing: standing::state(tenant),
        suspended: tenant.standing.suspended,
        resident_bytes: tenant.resident_bytes,
        evicted_bytes: tenant.evicted_bytes,
        unmanaged_bytes: tenant.unmanaged_bytes,
        share: (share * 1e3).round() / 1e3,
        gpu_seconds: tenant.gpu_seconds,
        switches: tenant.switches,
        waits: tenant.waits.as_ref(),
        requests: tenant.requests.as_ref(),
        slo_misses: tenant.totals.slo_misses,
        container: tenant.container.as_deref(),
        pod: tenant.pod.as_deref(),
    };
    serde_json::to_string(&row).unwrap_or_default()
}

fn of_switch(switch: &Switch) -> String {
    serde_json::to_string(switch).unwrap_or_default()
}

fn entry(event: &Event) -> String {
    let took = event.from_ns.map(|from| event.to_ns.unwrap_or(event.ns).saturating_sub(from) as f64 / 1e6);
    let entry = Entry {
        n: event.n,
        ms: event.ns / 1_000_000,
        tenant: event.tenant.as_deref(),
        what: event.what.word(),
        bytes: event.bytes,
        took_ms: took,
    };
    serde_json::to_string(&entry).unwrap_or_default()
}
