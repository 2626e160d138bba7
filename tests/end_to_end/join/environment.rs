//! Programs that change their environment before they use the GPU share it as the user wanted when they were started.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, built, run};

/// Plays a case and says by which names programs have left since.
#[track_caller]
fn names(coordinator: &Coordinator, command: &mut Command) -> Vec<String> {
    let ran = Running::start(command, false, Some(coordinator.place.clone())).finish(LIMIT).succeeded();
    assert_eq!((ran.out.as_str(), ran.said().as_str()), ("7\n", ""));
    let departed = coordinator.until_empty()["departed"].clone();
    let names = departed.as_array().expect("a list").iter();
    names.map(|tenant| tenant["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_program_that_loses_its_environment_is_still_who_it_was_to_be() {
    let program = built().programs.join("legal/environment");
    for way in ["cleared", "overwritten"] {
        let coordinator = Serving::small("64MiB").start();
        let mut command = coordinator.place.joining("early", &program, &[way]);
        assert_eq!(names(&coordinator, command.env("BATON_REQUIRE", "1")), ["early"], "{way}");
        // Where no coordinator answers it ends, as it would with its environment.
        command.env("BATON_SOCKET", coordinator.place.folder().join("nobody"));
        let refused = Running::start(&mut command, false, None).finish(LIMIT);
        assert_eq!(refused.status, "exit status: 125", "{refused:?}");
    }
}

#[test]
fn under_baton_run_it_joins_too() {
    let coordinator = Serving::small("64MiB").start();
    let program = built().programs.join("legal/environment");
    for way in ["cleared", "overwritten"] {
        let ran = coordinator.run(way, "normal", &program, &[way]).finish(LIMIT).succeeded();
        assert_eq!(ran.out, "7\n");
    }
    let departed = coordinator.until_empty()["departed"].clone();
    let names: Vec<_> = departed.as_array().expect("a list").iter().map(|tenant| tenant["name"].clone()).collect();
    assert!(["cleared", "overwritten"].iter().all(|way| names.iter().any(|name| name == way)), "{names:?}");
}

#[test]
fn what_a_program_sets_before_its_first_call_goes_first() {
    let coordinator = Serving::small("64MiB").start();
    let program = built().programs.join("legal/environment");
    let mut command = coordinator.place.joining("early", &program, &["late"]);
    assert_eq!(names(&coordinator, &mut command), ["late"]);
    // Set to nothing, it is not set.
    let mut command = coordinator.place.joining("early", &program, &["empty"]);
    assert!(names(&coordinator, &mut command).contains(&"environment".to_owned()));
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: it gives a program to another user"]
    fn a_program_with_more_rights_than_its_user_believes_no_setting() {
        // The library is opened by a path, because the loader preloads none into such programs.
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("ours");
        let program = folder.path().join("secure");
        std::fs::copy(built().programs.join("secure"), &program).expect("a file");
        let says = || {
            let mut command = Driver::simulated().bare(&program);
            command.arg(built().shim()).env("BATON_DRIVER", Driver::simulated().library());
            run(&mut command).succeeded().out
        };
        assert_eq!(says(), "0, secure 0\n");
        std::os::unix::fs::chown(&program, Some(65534), None).expect("root may");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("ours");
        let secure = says();
        assert!(!secure.ends_with("secure 0\n"), "no program can have more rights than its user in this folder");
        assert_ne!(secure, "0, secure 1\n", "it has believed where the driver is");
    }
}
