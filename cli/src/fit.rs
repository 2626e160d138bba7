//! `baton fit`: tells whether programs fit a GPU, before they start.

use std::fmt::Write as _;

use baton_client as client;
use baton_client::install::Install;
use baton_coordinator::device::gpu::Gpu;
use baton_coordinator::records;
use baton_messages::Message;
use baton_report::status::Status;
use baton_views::fit::{Fit, Place, Program, Verdict};
use baton_views::format;
use baton_workbench::output::print;
use baton_workbench::table::{plain_table, trimmed};
use clap::Args;

use super::settings::{Settings, arena, headroom, host_pool};
use super::units::{Amount, NoAmount};
use super::{CliError, DriverChoice, host_memory, named, open_gpu, place};

/// The assumed speed of the bus if no coordinator has measured one: that of PCIe 4, in GB/s.
const USUAL_BUS: f64 = 25.0;

/// `baton fit`.
#[derive(Clone, Debug, Args)]
pub struct FitArgs {
    /// Programs that run now, or that have ended here, by name: they count with the most memory that they had. It is remembered, also
    /// where no coordinator runs.
    #[arg(required_unless_present = "sizes", value_name = "NAME")]
    names: Vec<String>,
    /// A program that has yet to come, by the memory that it will have; once for each. A server that takes a fraction of the GPU has
    /// that much of the arena.
    #[arg(long = "size", value_name = "14GB|90%", value_parser = sized)]
    sizes: Vec<Size>,
    /// Plan for a GPU with this much memory, instead of the coordinator's GPU or the one that is here.
    #[arg(long, value_name = "80GB", conflicts_with_all = ["gpu", "socket"])]
    gpu_memory: Option<Amount>,
    /// GPU memory that is lent to programs. [default: the coordinator's, else 90%]
    #[arg(long, value_name = "90%|70GiB")]
    arena: Option<Amount>,
    /// Host memory for the memory that is not on the GPU. [default: the coordinator's, else half of the free memory, at most twice the
    /// arena]
    #[arg(long, value_name = "64GiB")]
    host_pool: Option<Amount>,
    /// Speed of copies to the GPU, in GB/s. [default: as the coordinator has measured, else 25, as PCIe 4 gives]
    #[arg(long, value_name = "GB/S", value_parser = rate)]
    bus: Option<f64>,
    /// The driver, where there is no coordinator: `gpu` (the system's), `sim` (simulated), or a file.
    #[arg(long, default_value = "gpu", value_name = "gpu|sim|PATH")]
    driver: DriverChoice,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: place::Place,
}

/// A size, and the user's spelling of it.
#[derive(Clone, Debug)]
struct Size {
    word: String,
    amount: Amount,
}

fn sized(word: &str) -> Result<Size, NoAmount> {
    Ok(Size { word: word.to_owned(), amount: word.parse()? })
}

fn rate(word: &str) -> Result<f64, Message> {
    let gigabytes: f64 = word.parse().map_err(|_| baton_messages::no_rate(word))?;
    if gigabytes > 0.0 && gigabytes.is_finite() { Ok(gigabytes) } else { Err(baton_messages::rate_is_too_low()) }
}

/// Prints whether they fit; false if they do not.
///
/// # Errors
///
/// When there is neither a coordinator nor a GPU to plan for, or no program of a name is known.
pub fn run(arguments: FitArgs) -> Result<bool, CliError> {
    let FitArgs { names, sizes, gpu_memory, arena, host_pool, bus, driver, json, place } = arguments;
    let seen: Option<Status> = match gpu_memory {
        Some(_) => None,
        None => match place.running() {
            Ok(socket) => Some(named::read(&client::status(&socket)?)?),
            // Without a coordinator, the GPU is asked.
            Err(CliError::NoCoordinator(_)) => None,
            Err(error) => return Err(error),
        },
    };
    let mut programs = Vec::new();
    let before = records::state_folder().map(|state| records::seen(&state)).unwrap_or_default();
    for name in names {
        let bytes = seen.as_ref().and_then(|seen| seen.peak(&name)).or_else(|| before.peak(&name));
        let bytes = bytes.ok_or_else(|| baton_messages::has_not_run_lately(&name))?;
        programs.push(Program { name, bytes });
    }
    let (arena, pool) = match &seen {
        Some(seen) => {
            let all = seen.arena.bytes;
            (arena.map_or(all.saturating_sub(seen.arena.headroom_bytes), |asked| asked.of(all)), seen.host_pool.bytes)
        }
        None => planned(gpu_memory, arena, host_pool, &driver)?,
    };
    let pool = host_pool.map_or(pool, |asked| asked.of(pool));
    let bytes_per_second =
        bus.map(|gigabytes| gigabytes * 1e9).or_else(|| seen.as_ref()?.bytes_per_second()).unwrap_or(USUAL_BUS * 1e9);
    programs.extend(sizes.into_iter().map(|Size { word, amount }| Program { name: word, bytes: amount.of(arena) }));
    let fit = Fit::of(programs, Place { arena, host_pool: pool, bytes_per_second });
    let text = if json { serde_json::to_string_pretty(&fit).expect("numbers and names") + "\n" } else { shown(&fit) };
    print(&text)?;
    Ok(fit.is_good())
}

fn gpu_of(driver: &DriverChoice) -> Result<Gpu, CliError> {
    let library = driver.library(&Install::of_this_program()?)?;
    driver.set()?;
    Ok(open_gpu(library.as_deref(), 0)?)
}

/// Returns the arena without its headroom, and the host pool that `baton serve` would take.
fn planned(
    memory: Option<Amount>,
    wanted: Option<Amount>,
    pool: Option<Amount>,
    driver: &DriverChoice,
) -> Result<(u64, u64), CliError> {
    let usual = Settings::usual();
    let wanted = wanted.or(usual.arena).expect("it is usual");
    let (memory, name) = match memory {
        Some(memory) => (memory.of(0), "that GPU".to_owned()),
        None => {
            let gpu = gpu_of(driver).map_err(baton_messages::plans_without_a_gpu)?;
            (gpu.memory, gpu.name)
        }
    };
    let arena = arena(wanted, memory, &name)?;
    let kept_free = headroom(usual.headroom.expect("it is usual"), arena)?;
    // A planned machine may have more free memory than this one.
    let pool = host_pool(pool, arena, host_memory::free()?, true)?;
    Ok((arena - kept_free, pool))
}

fn shown(fit: &Fit) -> String {
    let size = format::bytes;
    let Place { arena, host_pool, bytes_per_second } = fit.place;
    let (all, away) = (size(fit.bytes), size(fit.away_bytes));
    let mut text = match fit.verdict {
        Verdict::Together => baton_messages::fit_together(all, size(arena)),
        Verdict::InTurns => baton_messages::fit_in_turns(all, size(arena), away, size(host_pool)),
        Verdict::TooLittleHostMemory => {
            baton_messages::need_more_host_memory(all, size(arena), away, size(host_pool), gibibytes(fit.away_bytes))
        }
        Verdict::TooLarge => {
            let large =
                fit.programs.iter().filter(|one| one.program.bytes > arena).map(|one| one.program.name.as_str());
            baton_messages::one_is_too_large(size(arena), large.collect::<Vec<_>>().join(", "))
        }
    };
    text.push('\n');
    let mut table = plain_table(&["program", ">memory", ">comes at most", ">in"]);
    for one in &fit.programs {
        let (comes, time) = match one.comes_bytes {
            0 => ("nothing".to_owned(), "-".to_owned()),
            bytes => (size(bytes), format::duration_ms(1e3 * one.comes_seconds)),
        };
        table.add_row([one.program.name.clone(), size(one.program.bytes), comes, time]);
    }
    let _ = writeln!(text, "\n{}", trimmed(&table));
    if fit.verdict == Verdict::InTurns {
        let _ = writeln!(
            text,
            "\n*comes*: what is copied when it gets the GPU, if others have needed all of theirs; at {:.0} GB/s. What is zero, or has \
             stayed, is not.",
            bytes_per_second / 1e9
        );
    }
    text
}

/// A size for a command line, rounded up.
fn gibibytes(bytes: u64) -> String {
    format!("{}GiB", bytes.div_ceil(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_above_zero() {
        assert_eq!(rate("55.5"), Ok(55.5));
        assert!(["0", "-1", "inf", "NaN", "fast"].iter().all(|word| rate(word).is_err()));
    }
}
