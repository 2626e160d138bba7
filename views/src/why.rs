//! The reason why a program waits, since when, and the change that would help: as data, which the coordinator decides, and in
//! sentences.

use baton_report::quota::Quota;
use baton_report::status::Status;
use baton_report::tenant::{Newcomer, Tenant};
use baton_report::waits::{Bound, Reason, WaitsFor};

use crate::format::{self, duration_ms};

#[cfg(test)]
mod tests;

/// `a`, `a and b`, `a, b and c`; `another program` if no name is known.
fn list(names: &[String]) -> String {
    match names {
        [] => "another program".to_owned(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// `GPU 1`, `GPUs 1 and 2`; `all GPUs` if no number is known.
fn gpus(numbers: &[u32]) -> String {
    match numbers {
        [] => "all GPUs".to_owned(),
        [one] => format!("GPU {one}"),
        many => format!("GPUs {}", list(&many.iter().map(ToString::to_string).collect::<Vec<_>>())),
    }
}

/// A speed for people to read.
fn speed(bytes_per_second: u64) -> String {
    format!("{:.1} GB/s", bytes_per_second as f64 / 1e9)
}

/// Explains in sentences why a program of the status waits; none if there is no such program.
pub fn sentences(status: &Status, name: &str) -> Option<String> {
    if let Some(tenant) = status.tenant(name) {
        return Some(of_tenant(tenant));
    }
    let at = status.newcomers.iter().position(|newcomer| newcomer.name == name)?;
    Some(of_newcomer(status, at, &status.newcomers[at]))
}

fn of_newcomer(status: &Status, at: usize, newcomer: &Newcomer) -> String {
    let ahead = match at {
        0 => "It is the next to join.".to_owned(),
        1 => "One other joins before it.".to_owned(),
        ahead => format!("{ahead} others join before it."),
    };
    let waited = duration_ms(newcomer.waited_seconds * 1e3);
    let name = &newcomer.name;
    match newcomer.quotas.iter().find(|met| met.quota == Quota::Tenants) {
        _ if newcomer.waits_for.bytes > 0 => format!(
            "{name} has waited to join for {waited}: it needs {} of memory, and {} of that are not free. {ahead}\n\
             It joins when others have freed as much or ended; `baton serve --host-pool` allows more.",
            format::bytes(newcomer.needs_bytes.unwrap_or(0)),
            format::bytes(newcomer.waits_for.bytes)
        ),
        Some(met) => format!("{name} has waited to join for {waited}: {met}.\nIt joins when one of those has ended."),
        None => format!(
            "{name} has waited to join for {waited}: no more than {} may share the GPU at once. {ahead}\n\
             It joins when one has ended; `baton serve --max-programs` allows more.",
            status.max_tenants
        ),
    }
}

/// Explains why a tenant waits, and the quotas that hold it back.
pub fn of_tenant(tenant: &Tenant) -> String {
    let met = tenant.quotas.iter().map(|met| format!("\nA quota holds: {met}."));
    std::iter::once(waits(tenant)).chain(met).collect()
}

fn waits(tenant: &Tenant) -> String {
    let Tenant { name, waits_for, .. } = tenant;
    let (whom, bytes) = (list(&waits_for.whom), format::bytes(waits_for.bytes));
    let has_waited = waits_for.since_ms.map_or("waits".to_owned(), |ms| format!("has waited for {}", duration_ms(ms)));
    let since = waits_for.since_ms.map_or(String::new(), |ms| format!(" for {}", duration_ms(ms)));
    match waits_for.reason {
        Reason::Idle if tenant.evicted_bytes > 0 => format!(
            "{name} waits for nothing: it has had nothing to do on the GPU{since}. {} of its memory are on the host and come \
             back when it goes on.\n`baton prefetch {name}` brings them back before.",
            format::bytes(tenant.evicted_bytes)
        ),
        Reason::Idle => format!("{name} waits for nothing: it has had nothing to do on the GPU{since}."),
        Reason::Running => format!("{name} waits for nothing: it has run on the GPU{since}."),
        Reason::Turn => {
            format!("{name} {has_waited} for its turn, behind {whom}.{}\n{}", latest(waits_for), turn_help(tenant))
        }
        Reason::Drain => format!(
            "{name} {has_waited} until the work of {whom} on the GPU has ended: that program cannot be taken off in the middle \
             of it.\nShorter kernels would help, or a coordinator and a driver that preempt (`baton doctor`)."
        ),
        Reason::TooLargeTogether => format!(
            "{name} {has_waited} for its turn, behind {whom}.{} Programs of its class run beside others at any time, but only while \
             all fit the GPU together, and {bytes} too much are in use.\nA larger --arena would help, or to end or shrink a \
             program.",
            latest(waits_for)
        ),
        Reason::OwnMemory => {
            let rate = waits_for.bytes_per_second.filter(|_| waits_for.bytes > 0);
            let left = rate.map_or(String::new(), |per_second| {
                let ms = waits_for.bytes as f64 / per_second.max(1) as f64 * 1e3;
                format!(", at {} about {} more", speed(per_second), duration_ms(ms))
            });
            format!(
                "{name} {has_waited} for its memory: {bytes} are still to come{left}.\nA larger --arena would keep more of it on \
                 the GPU."
            )
        }
        Reason::OthersMemory => format!(
            "{name} {has_waited} for room on the GPU: {bytes} of {whom} are on the way to the host.\nA larger --headroom keeps \
             more room free ahead, and a larger --arena needs less of it."
        ),
        Reason::Suspended => {
            let clock = if tenant.gang.is_some() { TIME_OUTS } else { "" };
            format!(
                "{name} is kept off the GPU{since}, by `baton suspend`.{clock}\n`baton resume {name}` lets it go on."
            )
        }
        Reason::UnitSuspended => format!(
            "{name} is kept off the GPU{since}: it shares memory with {whom}, and that was taken off by `baton suspend`.\n{}",
            resume(&waits_for.whom)
        ),
        Reason::Gang => format!(
            "{name} {has_waited} for its gang: its turn has come here, and not yet on {}. Others go on here until then.{TIME_OUTS}\n`baton why {name} \
             --gpu N` says for what it waits there.",
            gpus(&waits_for.gpus)
        ),
        Reason::Urgent => format!(
            "{name} has made way{since} for {whom}, whose class is more urgent. It goes on when that has answered, or has its \
             share after --max-wait.\nA larger --latency-slack would leave it more of the GPU."
        ),
        Reason::Held => format!(
            "{name} {has_waited} for memory that {whom} has, which does not answer: it may be stopped.\nLet that program go on \
             (`kill -CONT`), or end it."
        ),
        Reason::HostPool => format!(
            "{name} {has_waited} for its memory: other memory has to go to the host for it, and the host pool is full, or still \
             being prepared ({bytes} are missing on the GPU).\nA larger --host-pool would help, or to end a program."
        ),
        Reason::Arena => format!(
            "{name} {has_waited} for its memory: {bytes} of it do not fit beside memory of {whom} that cannot move.\nA larger \
             --arena would help, or to end one of them."
        ),
        Reason::Descriptors => format!(
            "{name} {has_waited} for its memory: its process can open no more descriptors, and {bytes} cannot be handed to it.\n\
             Raise its limit (`ulimit -n`), or have it close files."
        ),
        Reason::Unresponsive => format!(
            "{name} does not answer the coordinator{since}: its process may be stopped, or hang. Others go on with the memory that \
             it does not have.\nLet it go on (`kill -CONT`), or end it."
        ),
        Reason::Disconnected => format!(
            "{name} is no longer connected to the coordinator{since}, and its process still lives. It runs, if it does, without \
             Baton.\nThe coordinator's log says why; to share the GPU again, start it anew."
        ),
        Reason::Join => format!("{name} {has_waited} to join."),
        Reason::Room => format!("{name} {has_waited} to join, until the memory that it needs is free."),
        Reason::Other(ref word) => {
            format!("{name} {has_waited}, for a reason that only a newer Baton can explain: {word}.")
        }
    }
}

fn resume(whom: &[String]) -> String {
    let lines: Vec<String> = whom.iter().map(|name| format!("`baton resume {name}`")).collect();
    if lines.is_empty() {
        "`baton resume` lets it go on.".to_owned()
    } else {
        format!("{} lets it go on.", lines.join(" and "))
    }
}

/// The latest time of its turn, in words.
fn latest(waits_for: &WaitsFor) -> String {
    let Some(ms) = waits_for.within_ms else { return String::new() };
    let time = duration_ms(ms);
    match waits_for.bound {
        Some(Bound::Quantum) => format!(" It is next, in {time} at the latest, when the quantum of the other is over."),
        Some(Bound::MaxWait) => format!(" It has it in {time} at the latest, whatever its class (--max-wait)."),
        Some(Bound::Other(_)) | None => String::new(),
    }
}

/// Of a gang's member, which is off the GPU.
const TIME_OUTS: &str = " Its framework's time-outs go on (`baton explain B0824`).";

fn turn_help(tenant: &Tenant) -> String {
    let name = &tenant.name;
    let others: Vec<String> = tenant.waits_for.whom.iter().map(|other| format!("`baton suspend {other}`")).collect();
    let suspend = if others.is_empty() { String::new() } else { format!(", or {}", others.join(" and ")) };
    match tenant.class.as_str() {
        "latency" => format!("A target would help if it is the most urgent (`baton set {name} slo=20ms`){suspend}."),
        _ => format!("A better class or a larger weight would help (`baton set {name} class=latency`){suspend}."),
    }
}
