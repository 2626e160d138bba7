//! A guest whose work cannot be paused, and that takes the GPU and goes mute, costs others a moment: it is killed, and its user kept out for
//! nine times as long as they had to wait.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use baton_contract::messages::{Admission, FromCoordinator, Message as _, Refusal};
use baton_contract::wire::GpuNumber;
use baton_tests::bare_tenant::{BareTenant, as_user, connection, greet, greeting};
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::guests::{GUEST, OTHER, copied, joining, serving, shared_with};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, built};

/// The coordinator's own, whatever its number.
const OWN: u32 = 0;

fn coordinator(stuck_after: &str) -> Coordinator {
    let guests = Serving::arena("64MiB").option("--allow-uid", &format!("{GUEST},{OTHER}"));
    serving(shared_with(guests.option("--stuck-after", stuck_after).flag("--no-preempt")))
}

/// A program of this user's that takes the GPU, reads nothing and says nothing more.
#[track_caller]
fn mute(coordinator: &Coordinator, user: u32) -> Running {
    let mut command = Command::new(copied(coordinator.prepared(), &built().bin.join("hostile")));
    command.arg("mute").arg(coordinator.place.socket()).current_dir("/");
    if user != OWN {
        command.uid(user).gid(user);
    }
    let mut mute = Running::start(&mut command, true, Some(coordinator.place.clone()));
    assert_eq!(mute.line(LIMIT), "ready");
    coordinator.until_tenant_is("mute", "running");
    mute
}

/// The answer to a newcomer of this user's.
#[track_caller]
fn welcome(coordinator: &Coordinator, user: u32) -> Result<BareTenant, (Refusal, String)> {
    let hello = greeting(coordinator, "newcomer").encode(GpuNumber::ANY);
    let say_hello = || {
        let control = connection(&coordinator.place.socket());
        greet(&control, &hello).expect("a message");
        control
    };
    let control = if user == OWN { say_hello() } else { as_user(user, say_hello) };
    BareTenant::welcomed(control).map_err(|answer| match answer {
        Some(FromCoordinator::Admission(Admission::Refused { reason, text })) => (reason, text),
        other => panic!("{other:?}"),
    })
}

#[test]
fn ones_own_program_that_goes_mute_is_not_killed_and_keeps_nobody_out() {
    let coordinator = coordinator("100ms");
    let mut other = hold::joined(&coordinator, "other", "normal", "24", None);
    let mut mute = mute(&coordinator, OWN);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(mute.ended().is_none());
    assert!(welcome(&coordinator, OWN).is_ok());
    let log = coordinator.log();
    assert!(!log.contains("killed") && !log.contains("let in"), "{log}");
    assert!(other.ask("quit", LIMIT).ends_with(" ok"));
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_that_cannot_be_paused_and_goes_mute_is_killed_soon_and_its_user_kept_out_for_a_while() {
        for stuck_after in ["1h", "100ms"] {
            let coordinator = coordinator(stuck_after);
            let mut own = hold::joined(&coordinator, "own", "normal", "24", None);
            let mut mute = mute(&coordinator, GUEST);
            own.say("touch");
            assert!(mute.line_if_any(LIMIT).is_err(), "{stuck_after}: it has nothing to say");
            assert!(own.line(LIMIT).starts_with("touched "), "{stuck_after}");
            let log = coordinator.log();
            assert!(log.contains("does not answer, and others wait for it: it is killed"), "{log}");
            assert_eq!(log.matches(&format!("no more programs of user {GUEST} are let in for ")).count(), 1, "{log}");
            // It would be let in again after a second otherwise.
            if stuck_after == "1h" {
                let (reason, text) = welcome(&coordinator, GUEST).map(|_| ()).expect_err("it is kept out");
                assert_eq!(reason, Refusal::Busy, "it comes again: {text}");
                assert!(text.contains(&format!("a program of user {GUEST} that did not answer")), "{text}");
            } else {
                let mut again =
                    joining(coordinator.prepared(), GUEST, "again", &program("hold"), &["--megabytes", "8"]);
                let mut again = hold::ready(&mut again, Some(coordinator.place.clone()));
                assert!(again.ask("quit", LIMIT).ends_with(" ok"));
            }
            for user in [OTHER, OWN] {
                assert!(welcome(&coordinator, user).is_ok(), "{user} has nothing to do with it");
            }
            assert!(own.ask("quit", LIMIT).ends_with(" ok"));
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_whose_work_takes_long_is_not_mute() {
        let coordinator = coordinator("100ms");
        let mut own = hold::joined(&coordinator, "own", "normal", "24", None);
        let mut command = joining(coordinator.prepared(), GUEST, "long", &program("hold"), &["--megabytes", "8"]);
        let mut long = hold::ready(&mut command, Some(coordinator.place.clone()));
        assert_eq!(long.ask("linger", LIMIT), "lingers");
        own.say("touch");
        let has_tried = |tries| coordinator.log().matches("the work of long did not end in time").count() >= tries;
        coordinator.until("it could not leave twice", |status| has_tried(2) || tenant(status, "long").is_null());
        assert_eq!(long.ask("go", LIMIT), "gone");
        assert!(own.line(LIMIT).starts_with("touched "));
        for program in [&mut long, &mut own] {
            assert!(program.ask("quit", LIMIT).ends_with(" ok"));
        }
    }
}
