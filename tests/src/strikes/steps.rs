//! Deaths at points that the programs of a state reach seldom, in programs that reach them.

use std::time::Duration;

use baton_faults::{Role, Strike, Victim};

use super::with_board;
use crate::LIMIT;
use crate::coordinator::{Coordinator, EndsWhatServes, Serving};
use crate::generated::hunt::number;
use crate::running::Running;

/// A process dies at each of these points, `STRIKES_COUNT` times (once): the coordinator, its keeper, or the program that acts, which begins
/// with others. Unless it was hit itself, the program does what it does otherwise; and so do the others.
#[track_caller]
pub fn processes_die_at(
    points: &[&str],
    serving: Serving,
    begin: impl Fn(&Coordinator) -> (Running, Vec<Running>),
    acts: &[(&str, &str)],
) {
    let (serving, board) = with_board(serving);
    let coordinator = serving.start();
    let _end = EndsWhatServes(&coordinator);
    let times = number("STRIKES_COUNT").unwrap_or(1) as usize;
    for (role, point) in [Some(Role::Coordinator), Some(Role::Keeper), None]
        .into_iter()
        .flat_map(|role| points.iter().map(move |point| (role, *point)))
    {
        for _ in 0..times {
            let (mut program, mut others) = begin(&coordinator);
            let before = coordinator.until("there is a keeper", |status| status["keeper"].is_number());
            // A coordinator that dies is followed before the program goes on.
            let wait = Duration::from_secs(if role == Some(Role::Coordinator) { 2 } else { 0 });
            let victim = role.map_or(Victim::Process(program.pid()), Victim::Of);
            board.prepare(&Strike { victim, signal: libc::SIGKILL, wait, ..Strike::at(point) });
            match role {
                Some(role) => {
                    for (line, answer) in acts {
                        assert_eq!(program.ask(line, LIMIT), *answer, "{role:?} at {point}");
                    }
                    assert!(board.struck().is_some(), "{point}");
                    assert!(program.ask("touch", LIMIT).starts_with("touched "), "{role:?} at {point}");
                    assert!(program.ask("quit", LIMIT).ends_with(" ok"), "{role:?} at {point}");
                    assert_eq!(program.said(), "", "{role:?} at {point}");
                    let name = if role == Role::Keeper { "keeper" } else { "pid" };
                    coordinator.until("another one is there", |status| status[name] != before[name]);
                }
                None => {
                    acts.iter().for_each(|(line, _)| program.say(line));
                    program.end(LIMIT);
                    assert!(board.struck().is_some(), "{point}");
                }
            }
            for other in &mut others {
                let answer = other.ask("touch", LIMIT);
                assert!(answer.starts_with("touched "), "another one says {answer}, {role:?} at {point}");
            }
            drop((program, others));
            coordinator.until_empty();
        }
    }
}
