//! `baton status`: how a coordinator and its tenants stand.

use std::fmt::Write as _;

use baton_contract::memory::{Unmanaged, size};
use baton_harness::client;
use baton_views::quota::Met;
use baton_views::snapshot::Tenant;
use baton_workbench::output::print;
use baton_workbench::table::{plain_table, trimmed};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::CliError;
use super::place::Place;

/// `baton status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shows it.
///
/// # Errors
///
/// When no coordinator answers.
pub fn run(arguments: StatusArgs) -> Result<(), CliError> {
    let text = client::status(&arguments.place.find()?)?;
    if arguments.json {
        return Ok(print(&(String::from_utf8_lossy(&text) + "\n"))?);
    }
    let status: Value = serde_json::from_slice(&text)
        .map_err(|error| CliError::Told(format!("the coordinator's answer cannot be read: {error}")))?;
    Ok(print(&table(&status))?)
}

/// The line about memory beside the arena: what it is used for, and what is free.
fn beside(lines: &Value) -> String {
    let bytes = |value: &Value| value.as_u64().unwrap_or(0);
    let unmanaged = lines["unmanaged"].as_object().map_or(0, |kinds| kinds.values().map(bytes).sum());
    let parts = [
        (unmanaged, "unmanaged"),
        (bytes(&lines["contexts_bytes"]), "contexts"),
        (bytes(&lines["own_bytes"]), "the coordinator's"),
        (bytes(&lines["hidden_bytes"]), "hidden"),
        (bytes(&lines["promised_bytes"]), "promised"),
        (bytes(&lines["beside_bytes"]), "free"),
    ];
    let parts = parts.into_iter().filter(|(bytes, what)| *bytes > 0 || *what == "free");
    let parts: Vec<String> = parts.map(|(bytes, what)| format!("{what} {}", size(bytes))).collect();
    format!("beside it  {}", parts.join(", "))
}

/// A line for each reason why memory of tenants stays on the GPU, with whose it is.
fn unmoved(tenants: &[Value]) -> String {
    let of = |why: &str, bytes: &dyn Fn(&Value) -> u64| {
        let whose = tenants.iter().map(|tenant| (tenant["name"].as_str().unwrap_or("-"), bytes(tenant)));
        let whose: Vec<String> =
            whose.filter(|(_, bytes)| *bytes > 0).map(|(name, bytes)| format!("{name} {}", size(bytes))).collect();
        if whose.is_empty() { String::new() } else { format!("\nnot moved, because {why}: {}\n", whose.join(", ")) }
    };
    let of_kind = |kind: Unmanaged| of(kind.reason(), &|tenant| tenant["unmanaged"][kind.word()].as_u64().unwrap_or(0));
    let immovable = of("others can reach it", &|tenant| tenant["immovable_bytes"].as_u64().unwrap_or(0));
    Unmanaged::ALL.into_iter().map(of_kind).chain([immovable]).collect()
}

/// Lines about processes on the GPU that are no tenants.
pub(crate) fn outsiders(status: &Value) -> String {
    let Some(all) = status["outsiders"].as_array() else {
        let why = status["outsiders_unknown"].as_str().unwrap_or("the coordinator does not say");
        return format!("\nwho else uses the GPU is not known: {why}\n");
    };
    let name = |outsider: &Value| {
        let name = outsider["name"].as_str().unwrap_or("a process that cannot be seen from here");
        let number = outsider["pid"].as_i64().map_or(String::new(), |pid| format!(" (process {pid})"));
        let bytes = outsider["bytes"].as_u64().map_or(String::new(), |bytes| format!(" {}", size(bytes)));
        format!("{name}{number}{bytes}")
    };
    let list = |is_from_baton: bool| {
        let of = all.iter().filter(|outsider| (outsider["from_baton"] == true) == is_from_baton);
        of.map(name).collect::<Vec<_>>().join(", ")
    };
    let (others, lost) = (list(false), list(true));
    let mut out = String::new();
    if !others.is_empty() {
        let _ = writeln!(out, "\non the GPU without Baton: {others}");
    }
    if !lost.is_empty() {
        let _ = writeln!(
            out,
            "\nstarted by a program under Baton, and on the GPU without it (has it lost its environment?): {lost}"
        );
    }
    out
}

fn table(status: &Value) -> String {
    let bytes = |value: &Value| size(value.as_u64().unwrap_or(0));
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |number| number.to_string());
    let mut out = String::new();
    let (gpu, arena, pool) = (&status["gpu"], &status["arena"], &status["host_pool"]);
    let _ = writeln!(out, "{} ({}), {}", text(&gpu["name"]), text(&gpu["uuid"]), bytes(&gpu["memory_bytes"]));
    let _ = writeln!(
        out,
        "arena      {}, lent {}, free {}",
        bytes(&arena["bytes"]),
        bytes(&arena["lent_bytes"]),
        size(arena["bytes"].as_u64().unwrap_or(0).saturating_sub(arena["lent_bytes"].as_u64().unwrap_or(0)))
    );
    if arena["bytes"] != arena["configured_bytes"] {
        let _ = writeln!(
            out,
            "           (smaller than the {} asked for: others use the GPU's memory)",
            bytes(&arena["configured_bytes"])
        );
    }
    let _ = writeln!(out, "{}", beside(&status["ledger"]["lines"]));
    let ready = if pool["ready_bytes"] == pool["bytes"] {
        String::new()
    } else {
        format!(", being prepared: {} ready", bytes(&pool["ready_bytes"]))
    };
    let _ = writeln!(out, "host pool  {}, used {}{ready}", bytes(&pool["bytes"]), bytes(&pool["used_bytes"]));
    let ms = |value: &Value| value.as_f64().map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    let _ = writeln!(
        out,
        "switches   {}, {} in, {} out, median {}, longest {}",
        status["switches"],
        bytes(&status["bytes_in"]),
        bytes(&status["bytes_out"]),
        ms(&status["times"]["switch"]["p50"]),
        ms(&status["times"]["switch"]["max"])
    );
    let list = |name: &str| status[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (tenants, newcomers) = (list("tenants"), list("newcomers"));
    if tenants.is_empty() {
        let _ = writeln!(out, "no programs");
    } else {
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
                text(&tenant["name"]),
                number(&tenant["pid"]),
                text(&tenant["class"]),
                number(&tenant["weight"]),
                tenant["slo_ms"].as_f64().map_or("-".to_owned(), |ms| format!("{ms} ms")),
                Tenant::deserialize(tenant).map_or_else(|_| text(&tenant["state"]), |tenant| tenant.standing()),
                bytes(&tenant["resident_bytes"]),
                bytes(&tenant["evicted_bytes"]),
                bytes(&tenant["unmanaged_bytes"]),
                number(&tenant["switches"]),
                format!("{:.2} s", tenant["gpu_seconds"].as_f64().unwrap_or(0.0)),
            ]);
        }
        let _ = writeln!(out, "\n{}", trimmed(&table));
    }
    if !newcomers.is_empty() {
        let most = &status["max_tenants"];
        let mut table = plain_table(&["waiting to join", ">pid", ">for"]);
        for newcomer in newcomers {
            let waited = newcomer["waited_seconds"].as_f64().unwrap_or(0.0);
            table.add_row([text(&newcomer["name"]), number(&newcomer["pid"]), format!("{waited:.0} s")]);
        }
        let _ = writeln!(out, "\n{}\nno more than {most} share the GPU at once (--max-programs)", trimmed(&table));
    }
    for one in tenants.iter().chain(newcomers) {
        let met: Vec<Met> = Deserialize::deserialize(&one["quotas"]).unwrap_or_default();
        for met in met {
            let _ = writeln!(out, "\n{} is held by a quota: {met}", text(&one["name"]));
        }
    }
    out.push_str(&outsiders(status));
    out.push_str(&unmoved(tenants));
    let spare = tenants.iter().filter(|tenant| tenant["spare_bytes"].as_u64() > Some(0));
    let spare: Vec<String> =
        spare.map(|tenant| format!("{} {}", text(&tenant["name"]), bytes(&tenant["spare_bytes"]))).collect();
    if !spare.is_empty() {
        let _ = writeln!(out, "\nfreed, and kept until its program next leaves the GPU: {}", spare.join(", "));
    }
    let drained = tenants.iter().filter(|tenant| tenant["preemptible"] == false).map(|tenant| text(&tenant["name"]));
    let drained: Vec<String> = drained.collect();
    if !drained.is_empty() {
        let _ = writeln!(out, "\ncannot be preempted, so a switch waits for their work: {}", drained.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_moved_is_shown_with_the_reason() {
        let tenants = [
            json!({"name": "a", "unmanaged": {"array": 3 << 20, "pool": 1 << 20}, "immovable_bytes": 0}),
            json!({"name": "b", "unmanaged": {"array": 1 << 20}, "immovable_bytes": 2 << 20}),
        ];
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
        let text = outsiders(&status);
        assert!(text.contains("Baton: games (process 13), a process that cannot be seen from here 1 MiB\n"), "{text}");
        assert!(text.contains("environment?): python3 (process 12) 3 MiB\n"), "{text}");
        assert_eq!(outsiders(&json!({"outsiders": []})), "");
        let unknown = outsiders(&json!({"outsiders": null, "outsiders_unknown": "no library"}));
        assert_eq!(unknown, "\nwho else uses the GPU is not known: no library\n");
    }

    #[test]
    fn lines_of_nothing_are_left_out_but_for_what_is_free() {
        let lines = json!({
            "unmanaged": {"array": 1 << 20, "graph": 2 << 20}, "contexts_bytes": 0, "own_bytes": 1 << 30, "beside_bytes": 0,
        });
        assert_eq!(beside(&lines), "beside it  unmanaged 3 MiB, the coordinator's 1 GiB, free 0 B");
    }
}
