//! `baton ps`: a line for each program on each GPU, readable by scripts too.

use baton_client as client;
use baton_report::status::Status;
use clap::Args;

use super::CliError;
use super::place::Place;
use baton_workbench::output::print;
use baton_workbench::table::{plain_table, trimmed};

/// `baton ps`.
#[derive(Clone, Debug, Args)]
pub struct Ps {
    #[command(flatten)]
    place: Place,
}

/// Prints the list.
///
/// # Errors
///
/// When no coordinator answers.
pub fn run(Ps { place }: Ps) -> Result<(), CliError> {
    let mut all = Vec::new();
    for socket in place.all()? {
        all.push(super::named::read(&client::status(&socket)?)?);
    }
    Ok(print(&(lines(&all) + "\n"))?)
}

/// The columns never change. The name is the last, because it may have spaces.
fn lines(all: &[Status]) -> String {
    let mut table = plain_table(&[">PID", "CLASS", "STATE", ">RESIDENT_MIB", ">EVICTED_MIB", ">UNMANAGED_MIB", "NAME"]);
    let pid = |pid: Option<i32>| pid.map_or("-".to_owned(), |pid| pid.to_string());
    let mib = |bytes: u64| (bytes >> 20).to_string();
    for tenant in all.iter().flat_map(|status| &status.tenants) {
        table.add_row([
            pid(tenant.pid),
            tenant.class.clone(),
            tenant.state.to_string(),
            mib(tenant.resident_bytes),
            mib(tenant.evicted_bytes),
            mib(tenant.unmanaged_bytes),
            tenant.name.clone(),
        ]);
    }
    for newcomer in all.iter().flat_map(|status| &status.newcomers) {
        let nothing = || "-".to_owned();
        let name = newcomer.name.clone();
        table.add_row([pid(newcomer.pid), nothing(), "joining".to_owned(), nothing(), nothing(), nothing(), name]);
    }
    trimmed(&table)
}

#[cfg(test)]
mod tests {
    use baton_report::tenant::{Newcomer, State, Tenant};

    use super::*;

    #[test]
    fn every_line_has_as_many_words_as_there_are_columns_before_the_name() {
        let tenant = Tenant {
            name: "a name with spaces".to_owned(),
            pid: Some(41),
            class: "batch".to_owned(),
            state: State::Idle,
            resident_bytes: 48 << 20,
            ..Tenant::default()
        };
        let newcomer = Newcomer { name: "late".to_owned(), ..Newcomer::default() };
        let lines = lines(&[Status { tenants: vec![tenant], newcomers: vec![newcomer], ..Status::default() }]);
        let words: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["PID", "CLASS", "STATE", "RESIDENT_MIB", "EVICTED_MIB", "UNMANAGED_MIB", "NAME"]);
        assert_eq!(words[1], ["41", "batch", "idle", "48", "0", "0", "a", "name", "with", "spaces"]);
        assert_eq!(words[2], ["-", "-", "joining", "-", "-", "-", "late"]);
    }
}
