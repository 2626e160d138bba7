//! `baton doctor`: the abilities of this machine, and what is missing, a line each.

mod functions;
pub mod trial;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use baton_client as client;
use baton_client::driver::Choice;
use baton_client::install::Install;
use baton_contract::memory::size;
use baton_contract::socket_path;
use baton_coordinator::device::gpu::Gpu;
use baton_coordinator::device::holders::Holder;
use baton_coordinator::endpoint::Folder;
use baton_report::status::Status;
use baton_report::tenant::Outsider;
use baton_workbench::output::Meanwhile;
use clap::Args;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{CliError, DriverChoice, folder, host_memory, named_socket, open_gpu, status, usual_socket};

/// `baton doctor`.
#[derive(Clone, Debug, Args)]
pub struct Doctor {
    /// The driver to check: `gpu` (the system's), `sim` (simulated), or a file.
    #[arg(long, value_name = "gpu|sim|PATH", default_value = "gpu")]
    driver: String,
    /// The GPU to check, counted from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: usize,
}

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Works, with less.
    Less,
    Missing,
}

#[derive(Default)]
struct Findings {
    serious: bool,
    printed: Meanwhile,
}

impl Findings {
    fn say(&mut self, verdict: Verdict, what: &str, found: &str) {
        let mark = match verdict {
            Verdict::Good => "ok     ",
            Verdict::Less => "less   ",
            Verdict::Missing => "MISSING",
        };
        self.serious |= verdict == Verdict::Missing;
        self.printed.print(&format!("{mark} {what:<16} {found}\n"));
    }

    fn check<T>(&mut self, what: &str, found: Result<T, impl Display>, good: impl FnOnce(T) -> String) {
        match found {
            Ok(found) => self.say(Verdict::Good, what, &good(found)),
            Err(why) => self.say(Verdict::Missing, what, &why.to_string()),
        }
    }
}

/// Checks everything; false if Baton cannot work here.
///
/// # Errors
///
/// When the system does not even tell this program's file.
pub fn run(arguments: &Doctor) -> Result<bool, CliError> {
    let install = Install::of_this_program()?;
    let mut findings = Findings::default();
    findings.check("library", install.shim(), |path| path.display().to_string());

    let choice: DriverChoice = arguments.driver.parse().unwrap_or(DriverChoice::System);
    for (name, value) in choice.settings()? {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(name, value) };
    }
    let library = choice.library(&install)?;
    let gpu = open_gpu(library.as_deref(), arguments.gpu);
    if gpu.is_ok() {
        functions(&mut findings, library.as_deref());
    }
    match &gpu {
        Ok(gpu) => {
            let (major, minor) = (gpu.driver_version / 1000, gpu.driver_version % 1000 / 10);
            findings.say(Verdict::Good, "driver", &format!("CUDA {major}.{minor}"));
            findings.say(
                Verdict::Good,
                "GPU",
                &format!("{}, {}, {}", gpu.name, size(gpu.memory), baton_contract::socket_path::gpu_name(gpu.uuid)),
            );
            let made = gpu.make(2 << 20).and_then(|memory| gpu.unmake(memory));
            findings.check("shared memory", made.map_err(baton_messages::cannot_export_memory), |()| {
                baton_messages::CAN_LEND_MEMORY.to_owned()
            });
        }
        Err(error) => findings.say(Verdict::Missing, "driver", &CliError::from(error.clone()).to_string()),
    }
    system(&mut findings);
    let free = host_memory::free()?;
    findings.say(
        if free < 4 << 30 { Verdict::Less } else { Verdict::Good },
        "host memory",
        &baton_messages::host_memory_is_free(size(free)),
    );
    large_pages(&mut findings);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    findings.say(
        if threads < 4 { Verdict::Less } else { Verdict::Good },
        "processors",
        &baton_messages::has_processors(threads),
    );
    if gpu.is_ok() {
        preemption(&mut findings, &choice, arguments.gpu);
    }
    findings.say(Verdict::Good, "trust", baton_messages::TRUST);
    let socket = coordinator(&mut findings, gpu.as_ref().ok().map(|gpu| gpu.uuid));
    outsiders(&mut findings, socket, gpu.ok());
    findings.printed.went()?;
    Ok(!findings.serious)
}

/// Reports whether the driver has functions that are newer than this Baton.
fn functions(findings: &mut Findings, library: Option<&Path>) {
    match functions::unknown(library) {
        Ok(unknown) if unknown.is_empty() => {
            findings.say(Verdict::Good, "functions", baton_messages::KNOWS_ALL_FUNCTIONS);
        }
        Ok(unknown) => findings.say(
            Verdict::Less,
            "functions",
            &baton_messages::functions_are_unknown(unknown.len(), unknown.join(", ")).to_string(),
        ),
        Err(error) => {
            let unreadable = baton_messages::driver_file_is_unreadable(error).to_string();
            findings.say(Verdict::Less, "functions", &unreadable);
        }
    }
}

/// Reports whether the system gives large pages to shared memory that asks for them.
fn large_pages(findings: &mut Findings) {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
    // The setting in brackets holds.
    let holds = setting.split_whitespace().find(|word| word.starts_with('[')).unwrap_or("");
    if matches!(holds, "" | "[never]" | "[deny]") {
        let advice = baton_messages::no_large_pages(SETTING).to_string();
        return findings.say(Verdict::Less, "large pages", &advice);
    }
    findings.say(Verdict::Good, "large pages", baton_messages::HAS_LARGE_PAGES);
}

fn preemption(findings: &mut Findings, choice: &DriverChoice, gpu: usize) {
    let driver = match choice {
        DriverChoice::System => Choice::Auto,
        DriverChoice::Simulated => Choice::Simulated,
        DriverChoice::File(path) => Choice::File(path.clone()),
    };
    let why = match trial::why_not(&driver, gpu) {
        Ok(None) => return findings.say(Verdict::Good, "preemption", baton_messages::CAN_PAUSE),
        Ok(Some(why)) => why,
        Err(error) => baton_messages::could_not_be_tried(error.to_string().lines().collect::<Vec<_>>().join(" ")),
    };
    findings.say(Verdict::Less, "preemption", &baton_messages::work_is_waited_for(why).to_string());
}

fn system(findings: &mut Findings) {
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty());
    findings
        .check("pidfd", pidfd.map_err(baton_messages::needs_linux_5_3), |_| baton_messages::NOTICES_ENDS.to_owned());
    // MEMBARRIER_CMD_QUERY, and the bit of MEMBARRIER_CMD_PRIVATE_EXPEDITED.
    let barrier = rustix::thread::membarrier_query();
    let has = barrier.contains(rustix::thread::MembarrierQuery::PRIVATE_EXPEDITED);
    findings.check("membarrier", has.then_some(()).ok_or_else(baton_messages::needs_membarrier), |()| {
        baton_messages::CAN_HOLD_BACK.to_owned()
    });
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let enough = limit.is_none_or(|limit| limit >= 65536);
    let shown = limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    match enough {
        true => findings.say(Verdict::Good, "descriptors", &shown),
        false => findings.say(Verdict::Less, "descriptors", &baton_messages::few_descriptors(shown).to_string()),
    }
    let folder = folder();
    let is_own = folder == socket_path::own_folder();
    match if is_own { Folder::private(&folder) } else { Folder::of_socket(&folder.join("socket")) } {
        Ok(_) => findings.say(Verdict::Good, "socket folder", &folder.display().to_string()),
        Err(error) => findings.say(Verdict::Missing, "socket folder", &error.to_string()),
    }
}

/// Lists programs on the GPU that are no tenants, as the coordinator reports them, or without one, the driver.
fn outsiders(findings: &mut Findings, socket: Option<PathBuf>, gpu: Option<Gpu>) {
    let said = socket.and_then(|socket| client::status(&socket).ok());
    let status = match (said.and_then(|text| serde_json::from_slice(&text).ok()), gpu) {
        (Some(status), _) => status,
        (None, Some(gpu)) => match gpu.census.others(gpu.uuid) {
            Ok(all) => {
                let one = |holder: &Holder| Outsider {
                    pid: (holder.pid != 0).then_some(holder.pid as i32),
                    name: holder.name(),
                    bytes: holder.bytes,
                    from_baton: None,
                };
                Status { outsiders: Some(all.iter().map(one).collect()), ..Status::default() }
            }
            Err(why) => Status { outsiders_unknown: Some(why.to_string()), ..Status::default() },
        },
        (None, None) => return,
    };
    let lines = status::outsiders(&status);
    for line in lines.lines().filter(|line| !line.is_empty()) {
        findings.say(Verdict::Less, "other programs", line);
    }
    if lines.is_empty() {
        findings.say(Verdict::Good, "other programs", baton_messages::NO_OUTSIDERS);
    }
}

/// Returns the socket of a coordinator that answers.
fn coordinator(findings: &mut Findings, uuid: Option<[u8; 16]>) -> Option<PathBuf> {
    let socket: Option<PathBuf> = named_socket().or_else(|| uuid.map(usual_socket));
    let socket = socket?;
    match client::announce(&socket) {
        Ok(Some(_)) => {
            findings.say(Verdict::Good, "coordinator", &baton_messages::coordinator_answers_at(socket.display()));
            return Some(socket);
        }
        Ok(None) => {
            let none = baton_messages::no_coordinator_yet(socket.display());
            findings.say(Verdict::Good, "coordinator", &none);
        }
        Err(error) => findings.say(Verdict::Missing, "coordinator", &error.to_string()),
    }
    None
}
