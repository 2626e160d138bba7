//! `baton status`: the state of each GPU and its tenants.

use std::fmt::Write as _;

use baton_client as client;
use baton_contract::memory::{Unmanaged, size};
use baton_report::status::Status;
use baton_report::tenant::{Outsider, Tenant};
use baton_views::standing;
use baton_workbench::output::print;
use baton_workbench::table::{plain_table, trimmed};
use clap::Args;

use super::CliError;
use super::named::read;
use super::place::Place;

/// `baton status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object for each GPU, a line each.
    #[arg(long)]
    json: bool,
}

/// Prints the status.
///
/// # Errors
///
/// When no coordinator answers.
pub fn run(arguments: StatusArgs) -> Result<(), CliError> {
    let mut shown = Vec::new();
    for socket in arguments.place.all()? {
        let text = client::status(&socket)?;
        shown.push(if arguments.json {
            String::from_utf8_lossy(&text).into_owned() + "\n"
        } else {
            table(&read(&text)?)
        });
    }
    Ok(print(&shown.join(if arguments.json { "" } else { "\n" }))?)
}

/// Returns a line for each reason why memory of programs stays on the GPU, with the programs' names.
fn unmoved(tenants: &[Tenant]) -> String {
    let of = |why: &str, bytes: &dyn Fn(&Tenant) -> u64| {
        let whose = named(tenants, bytes);
        if whose.is_empty() { String::new() } else { format!("\n{}\n", baton_messages::is_not_moved(why, whose)) }
    };
    let of_kind = |kind: Unmanaged| of(kind.reason(), &|tenant| tenant.unmanaged.of(kind));
    let immovable = of(baton_messages::REACHABLE_MEMORY, &|tenant| tenant.immovable_bytes);
    Unmanaged::ALL.into_iter().map(of_kind).chain([immovable]).collect()
}

/// Names the tenants that have any of these bytes, with the amount.
fn named(tenants: &[Tenant], bytes: &dyn Fn(&Tenant) -> u64) -> String {
    let has_any = tenants.iter().filter(|tenant| bytes(tenant) > 0);
    has_any.map(|tenant| format!("{} {}", tenant.name, size(bytes(tenant)))).collect::<Vec<_>>().join(", ")
}

/// Returns lines about processes on the GPU that are no tenants.
pub(crate) fn outsiders(status: &Status) -> String {
    let Some(all) = &status.outsiders else {
        let why = status.outsiders_unknown.as_deref().unwrap_or(baton_messages::NOT_SAID);
        return format!("\n{}\n", baton_messages::others_are_unknown(why));
    };
    let name = |outsider: &Outsider| {
        let name = outsider.name.as_deref().unwrap_or(baton_messages::UNSEEN_PROCESS);
        let number = outsider.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
        let bytes = outsider.bytes.map_or(String::new(), |bytes| format!(" {}", size(bytes)));
        format!("{name}{number}{bytes}")
    };
    let list = |is_from_baton: bool| {
        let of = all.iter().filter(|outsider| (outsider.from_baton == Some(true)) == is_from_baton);
        of.map(name).collect::<Vec<_>>().join(", ")
    };
    let (others, lost) = (list(false), list(true));
    let mut out = String::new();
    if !others.is_empty() {
        let _ = writeln!(out, "\n{}", baton_messages::on_the_gpu_without_baton(others));
    }
    if !lost.is_empty() {
        let _ = writeln!(out, "\n{}", baton_messages::lost_programs(lost));
    }
    out
}

/// Returns the lines about the GPU, its memory, the host pool, and copies.
fn head(status: &Status) -> String {
    let mut out = String::new();
    let Status { gpu, arena, host_pool: pool, times, .. } = status;
    let _ = writeln!(out, "{} ({}), {}", gpu.name, gpu.uuid, size(gpu.memory_bytes));
    let free = arena.bytes.saturating_sub(arena.lent_bytes);
    let _ = writeln!(out, "arena      {}, lent {}, free {}", size(arena.bytes), size(arena.lent_bytes), size(free));
    if arena.bytes != arena.configured_bytes {
        let asked = size(arena.configured_bytes);
        let _ = writeln!(out, "           {}", baton_messages::smaller_than_asked(asked));
    }
    let _ = writeln!(out, "beside it  {}", standing::outside_arena(&status.ledger.lines));
    let ready = match pool.unprepared_bytes() {
        0 => String::new(),
        _ => baton_messages::being_prepared(size(pool.ready_bytes)),
    };
    let _ = writeln!(out, "host pool  {}, used {}{ready}", size(pool.bytes), size(pool.used_bytes));
    let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    let _ = writeln!(
        out,
        "switches   {}, {} in, {} out, median {}, longest {}",
        status.switches,
        size(status.counters.bytes_in),
        size(status.counters.bytes_out),
        ms(times.switch.p50),
        ms(times.switch.max)
    );
    let _ = writeln!(out, "on the GPU {}", standing::on_gpu(status));
    if status.ending {
        let _ = writeln!(out, "ending     no new programs share the GPU, and the coordinator ends after the last one");
    }
    out
}

fn programs(tenants: &[Tenant]) -> String {
    let mut table = plain_table(&[
        "program",
        ">pid",
        "class",
        ">weight",
        ">slo",
        "state",
        ">resident",
        ">evicted",
        ">unmanaged",
        ">switches",
        ">GPU time",
    ]);
    for tenant in tenants {
        table.add_row([
            tenant.name.clone(),
            number(tenant.pid),
            tenant.class.clone(),
            tenant.weight.to_string(),
            tenant.slo_ms.map_or("-".to_owned(), |ms| format!("{ms} ms")),
            standing::state(tenant),
            size(tenant.resident_bytes),
            size(tenant.evicted_bytes),
            size(tenant.unmanaged_bytes),
            tenant.switches.to_string(),
            format!("{:.2} s", tenant.gpu_seconds),
        ]);
    }
    trimmed(&table)
}

fn number(pid: Option<i32>) -> String {
    pid.map_or("-".to_owned(), |pid| pid.to_string())
}

fn table(status: &Status) -> String {
    let mut out = head(status);
    let Status { tenants, newcomers, max_tenants, .. } = status;
    if tenants.is_empty() {
        let _ = writeln!(out, "no programs");
    } else {
        let _ = writeln!(out, "\n{}", programs(tenants));
    }
    if !newcomers.is_empty() {
        let mut table = plain_table(&["waiting to join", ">pid", ">needs", ">for"]);
        for newcomer in newcomers {
            let needs = newcomer.needs_bytes.map_or("-".to_owned(), size);
            let waited = format!("{:.0} s", newcomer.waited_seconds);
            table.add_row([newcomer.name.clone(), number(newcomer.pid), needs, waited]);
        }
        let _ = writeln!(out, "\n{}", trimmed(&table));
        if newcomers.iter().any(|newcomer| newcomer.needs_bytes.is_none()) {
            let _ = writeln!(out, "{}", baton_messages::no_more_share(max_tenants));
        }
    }
    let here = tenants.iter().map(|one| (&one.name, &one.quotas));
    for (name, quotas) in here.chain(newcomers.iter().map(|one| (&one.name, &one.quotas))) {
        for met in quotas {
            let _ = writeln!(out, "\n{}", baton_messages::is_held_by_a_quota(name, met));
        }
    }
    out.push_str(&outsiders(status));
    out.push_str(&unmoved(tenants));
    let spare = named(tenants, &|tenant| tenant.spare_bytes);
    if !spare.is_empty() {
        let _ = writeln!(out, "\n{}", baton_messages::is_kept_spare(spare));
    }
    let drained: Vec<&str> =
        tenants.iter().filter(|tenant| !tenant.preemptible).map(|tenant| tenant.name.as_str()).collect();
    if !drained.is_empty() {
        let _ = writeln!(out, "\n{}", baton_messages::switches_wait_for(drained.join(", ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of<T: serde::de::DeserializeOwned>(said: Value) -> T {
        serde_json::from_value(said).expect("a part of a status")
    }

    #[test]
    fn what_is_not_moved_is_shown_with_the_reason() {
        let tenants: [Tenant; 2] = of(json!([
            {"name": "a", "unmanaged": {"array": 3 << 20, "pool": 1 << 20}, "immovable_bytes": 0},
            {"name": "b", "unmanaged": {"array": 1 << 20}, "immovable_bytes": 2 << 20},
        ]));
        let text = unmoved(&tenants);
        assert!(text.contains("because arrays have no addresses: a 3 MiB, b 1 MiB\n"), "{text}");
        assert!(text.contains("because it is in a pool of the driver's own: a 1 MiB\n"), "{text}");
        assert!(text.contains("because others can reach it: b 2 MiB\n"), "{text}");
        assert_eq!(text.matches("not moved").count(), 3);
    }

    #[test]
    fn who_is_no_tenant_is_shown_and_what_is_not_known_too() {
        let status = json!({"outsiders": [
            {"pid": 12, "name": "python3", "bytes": 3 << 20, "from_baton": true},
            {"pid": 13, "name": "games", "bytes": null, "from_baton": false},
            {"pid": null, "name": null, "bytes": 1 << 20, "from_baton": null},
        ], "outsiders_unknown": null});
        let text = outsiders(&of(status));
        assert!(text.contains("Baton: games (process 13), a process that cannot be seen from here 1 MiB\n"), "{text}");
        assert!(text.contains("environment?): python3 (process 12) 3 MiB\n"), "{text}");
        assert_eq!(outsiders(&of(json!({"outsiders": []}))), "");
        let unknown = outsiders(&of(json!({"outsiders": null, "outsiders_unknown": "no library"})));
        assert_eq!(unknown, "\nother users of the GPU are not known: no library\n");
    }
}
