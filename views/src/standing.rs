//! The state at a moment, in words.
//!
//! All views describe a moment with this module and [`baton_report::status::Status`], so they always agree. The totals of a stretch of
//! time are in [`crate::summary::Summary`].

use baton_report::memory::Lines;
use baton_report::status::Status;
use baton_report::tenant::{State, Tenant};

use crate::format::bytes;

#[cfg(test)]
mod tests;

/// Maximum number of programs named in a line.
const NAMED: usize = 3;

/// The states of programs, in the order in which they are shown.
pub const STATES: [State; 9] = [
    State::Running,
    State::Loading,
    State::Stopping,
    State::Waiting,
    State::Idle,
    State::Evicted,
    State::Preempted,
    State::Suspended,
    State::Unresponsive,
];

/// Describes a program's state in words, with the part of its memory on the GPU while the rest arrives.
pub fn state(tenant: &Tenant) -> String {
    let all = tenant.resident_bytes + tenant.evicted_bytes;
    match &tenant.state {
        State::Loading if all > 0 => format!("loading {} %", 100 * all.saturating_sub(tenant.missing_bytes) / all),
        state => state.word().to_owned(),
    }
}

/// Names the programs on the GPU: those whose calls go to it, which are several where some co-run; else those whose memory arrives, or
/// whose work is being taken off.
pub fn on_gpu(status: &Status) -> String {
    let named = |tenants: Vec<&Tenant>, word: fn(&Tenant) -> String| {
        let shown: Vec<String> = tenants.iter().take(NAMED).map(|tenant| word(tenant)).collect();
        let more = tenants.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", shown.join(", "))
    };
    let running: Vec<&Tenant> = status.tenants.iter().filter(|tenant| tenant.state == State::Running).collect();
    let changes = |tenant: &&Tenant| matches!(tenant.state, State::Loading | State::Stopping);
    let changing: Vec<&Tenant> = status.tenants.iter().filter(changes).collect();
    match (running.is_empty(), changing.is_empty()) {
        (false, _) => named(running, |tenant| tenant.name.clone()),
        (true, false) => named(changing, |tenant| format!("{} ({})", tenant.name, state(tenant))),
        (true, true) => "nobody".to_owned(),
    }
}

/// Describes the memory outside the arena in a line: each use that has any, and the free rest, even if it is 0.
pub fn outside_arena(lines: &Lines) -> String {
    let used = [
        (lines.unmanaged.sum(), "unmanaged"),
        (lines.contexts_bytes, "contexts"),
        (lines.own_bytes, "the coordinator's"),
        (lines.hidden_bytes, "hidden"),
        (lines.promised_bytes, "promised"),
    ];
    let used = used.iter().filter(|(of, _)| *of > 0).map(|(of, what)| format!("{what} {}, ", bytes(*of)));
    format!("{}free {}", used.collect::<String>(), bytes(lines.beside_bytes))
}
