//! `baton status`: how a coordinator and its tenants stand.

use std::fmt::Write as _;
use std::path::PathBuf;

use baton_contract::memory::size;
use baton_coordinator::endpoint;
use baton_harness::client;
use baton_harness::install::Install;
use baton_workbench::table::{plain_table, trimmed};
use clap::Args;
use serde_json::Value;

use super::{CliError, DriverChoice, named_socket, open_gpu, usual_socket};

/// `baton status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The coordinator's socket, if it is not at the usual place.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
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
    let socket = match arguments.socket.or_else(named_socket) {
        Some(socket) => socket,
        None => only_socket()?,
    };
    let text = client::status(&socket)?;
    if arguments.json {
        println!("{}", String::from_utf8_lossy(&text));
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&text)
        .map_err(|error| CliError::Told(format!("the coordinator's answer cannot be read: {error}")))?;
    print!("{}", table(&status));
    Ok(())
}

/// The one coordinator's socket in the user's folder; if there are several, the first GPU's.
pub(super) fn only_socket() -> Result<PathBuf, CliError> {
    let folder = endpoint::own_folder();
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sock");
    let mut sockets: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_socket).collect())
        .unwrap_or_default();
    match sockets.len() {
        0 => Err(CliError::Told(format!(
            "there is no coordinator's socket in {}; `baton serve` starts one, --socket names another place",
            folder.display()
        ))),
        1 => Ok(sockets.remove(0)),
        _ => {
            let answers = |path: &PathBuf| client::open(path).is_ok_and(|connection| connection.is_some());
            sockets.retain(answers);
            if let [one] = sockets.as_slice() {
                return Ok(one.clone());
            }
            first_gpus().filter(|first| sockets.is_empty() || sockets.contains(first)).ok_or_else(|| {
                let sockets: Vec<_> = sockets.iter().map(|path| format!("\n  --socket {}", path.display())).collect();
                CliError::Told(format!("there are several coordinators; say which one:{}", sockets.concat()))
            })
        }
    }
}

/// The usual socket for the first GPU, if there is one.
fn first_gpus() -> Option<PathBuf> {
    let install = Install::of_this_program().ok()?;
    let library = DriverChoice::System.library(&install).ok()?;
    Some(usual_socket(open_gpu(library.as_deref(), 0).ok()?.uuid))
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
        let _ = writeln!(out, "no tenants");
    } else {
        let mut table = plain_table(&[
            "tenant",
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
                text(&tenant["state"]),
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
        let _ = writeln!(out, "\n{}\nno more than {most} share the GPU at once (--max-tenants)", trimmed(&table));
    }
    let drained = tenants.iter().filter(|tenant| tenant["preemptible"] == false).map(|tenant| text(&tenant["name"]));
    let drained: Vec<String> = drained.collect();
    if !drained.is_empty() {
        let _ = writeln!(out, "\ncannot be preempted, so a switch waits for their work: {}", drained.join(", "));
    }
    out
}
