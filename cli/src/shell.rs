//! `baton completions` and `baton man`, generated from the command line's definition.

use std::path::PathBuf;

use baton_client as client;
use baton_report::status::Status;
use baton_workbench::output::{print, print_with};
use clap::{Args, Command};
use clap_complete::Shell;

use super::CliError;
use super::named::read;
use super::place::Place;

/// `baton completions`.
#[derive(Clone, Debug, Args)]
pub struct Completions {
    /// The shell that is to complete words.
    shell: Shell,
}

/// `baton man`.
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// The folder for the pages, one for each command. Otherwise the first is printed.
    folder: Option<PathBuf>,
}

/// `baton names`.
#[derive(Clone, Debug, Args)]
pub struct Names {
    #[command(flatten)]
    place: Place,
}

/// The commands that take names of programs.
const NAMING: [&str; 6] = ["why", "evict", "prefetch", "set", "suspend", "resume"];

/// Prints the script that a shell reads.
///
/// # Errors
///
/// When the output cannot be written.
pub fn completions(mut command: Command, Completions { shell }: &Completions) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut command, "baton", &mut script);
    let script = with_names(*shell, String::from_utf8_lossy(&script).into_owned());
    Ok(print(&script)?)
}

/// Makes a shell offer the names of programs too, if its way to do so is known here.
fn with_names(shell: Shell, script: String) -> String {
    let commands = NAMING.join("|");
    match shell {
        Shell::Bash => format!(
            "{script}
_baton_with_names() {{
    _baton \"$@\"
    case \"${{COMP_WORDS[1]}}\" in
        {commands})
            [[ $COMP_CWORD -lt 2 || \"${{COMP_WORDS[COMP_CWORD]}}\" == -* ]] && return
            [[ \"${{COMP_WORDS[COMP_CWORD-1]}}\" == --@(gpu|socket|timeout|record) ]] && return
            local IFS=$'\\n'
            COMPREPLY+=($(compgen -W \"$(\"${{COMP_WORDS[0]}}\" names 2> /dev/null)\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))
            ;;
    esac
}}
complete -F _baton_with_names -o nosort -o bashdefault -o default baton
"
        ),
        Shell::Fish => {
            let each = |command: &&str| format!("complete -c baton -n '__fish_seen_subcommand_from {command}' -f -a '(baton names 2> /dev/null)'\n");
            script + "\n" + &NAMING.iter().map(each).collect::<String>()
        }
        // Zsh has the words of each argument in one place, which our help names.
        Shell::Zsh => script
            .replace("process ids:_default", "process ids:_baton_names")
            .replace("process id:_default", "process id:_baton_names")
            .replacen('\n', "\n_baton_names() { compadd -- ${(f)\"$(baton names 2> /dev/null)\"} }\n", 1),
        _ => script,
    }
}

/// Prints the names of the present programs, a line each.
///
/// # Errors
///
/// When no coordinator answers.
pub fn names(Names { place }: Names) -> Result<(), CliError> {
    let status: Status = read(&client::status(&place.find()?)?)?;
    let names: String = status.tenants.into_iter().map(|tenant| tenant.name + "\n").collect();
    Ok(print(&names)?)
}

/// Writes the manual.
///
/// # Errors
///
/// When a page cannot be written.
pub fn man(command: Command, Man { folder }: &Man) -> Result<(), CliError> {
    let Some(folder) = folder else {
        return Ok(print_with(|mut out| clap_mangen::Man::new(command).render(&mut out))?);
    };
    std::fs::create_dir_all(folder)?;
    Ok(clap_mangen::generate_to(command, folder)?)
}
