//! Programs of other users, whom the coordinator was told to take in: they share the GPU as its own user's do, and steer nothing.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_contract::messages::{
    Answer, Channels, CorunReport, Elsewhere, FromCoordinator, IPC_HANDLE, PreemptionReport, ProcessId, Request,
    TurnCommand,
};
use baton_contract::page::{ActivityPage, PAGE_BYTES};
use baton_tests::bare_tenant::{self, BareTenant, as_user};
use baton_tests::coordinator::{Coordinator, Prepared, Serving, alone, program, tenant};
use baton_tests::guests::{asked_as, joining, permit, serving, shared_with};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, around, built, run};

/// The user who is let in.
const GUEST: u32 = 65534;
/// Another one.
const STRANGER: u32 = 7;
/// The byte with which `--poison` fills memory.
const POISON: u8 = 0xDB;
/// Which of a tenant's pages these are.
const ACTIVITY: usize = 2;
const ELSEWHERE: usize = 3;
const WORDS: [&str; 8] = ["--megabytes", "48", "--rounds", "12", "--check", "4", "--gap-ms", "1"];

/// A place that two other users can come to.
fn shared() -> Prepared {
    shared_with(Serving::arena("64MiB").option("--allow-uid", &format!("7,{GUEST}")))
}

/// The same as root of a user namespace of its own, where the coordinator's user has no number.
fn as_root_of_its_own(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    outer.args(["--user", "--map-root-user", "--"]).current_dir("/").uid(GUEST).gid(GUEST);
    around(outer, command)
}

#[test]
fn a_folder_that_others_cannot_enter_is_no_place_for_guests() {
    for (mode, folder) in [(0o700, "closed"), (0o700, "runtime/baton")] {
        let prepared = Serving::arena("64MiB").prepare();
        let folder = prepared.place.folder().join(folder);
        std::fs::create_dir(&folder).expect("a new folder");
        permit(&folder, mode);
        let mut serve = prepared.place.baton(&["serve", "--driver", "sim", "--allow-uid", "65534", "--arena", "64MiB"]);
        let ended = run(serve.args(["--host-pool", "64MiB"]).env("BATON_FOLDER", &folder));
        assert!(ended.status == "exit status: 1" && ended.err.contains("BATON_FOLDER=/run/baton"), "{ended:?}");
    }
}

/// A domain's page, as one maps it that has a slot.
fn mapped(page: &OwnedFd) -> &'static ActivityPage {
    let (access, file) = (libc::PROT_READ | libc::PROT_WRITE, page.as_raw_fd());
    // SAFETY: a new mapping wherever the system likes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, libc::MAP_SHARED, file, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: just mapped, for ever; whole, aligned and made of atomics.
    unsafe { &*at.cast() }
}

/// Three tenants: two of the coordinator's user, and a guest.
fn two_and_a_guest(coordinator: &Coordinator) -> [BareTenant; 3] {
    let [one, other] = ["one", "other"].map(|name| BareTenant::join(coordinator, name));
    [one, other, BareTenant::join_as(STRANGER, coordinator, "guest")]
}

#[track_caller]
fn noted(tenant: &BareTenant, request: &Request) {
    assert_eq!(tenant.ask(request).0, Answer::Noted, "{request:?}");
}

/// The tenants that were united: the coordinator logs it before it answers.
fn united(coordinator: &Coordinator) -> Vec<String> {
    let log = coordinator.log();
    let whom = log.lines().filter_map(|line| line.split_once(" share memory or events")?.0.rsplit_once("] "));
    whom.map(|(_, whom)| whom.to_owned()).collect()
}

/// The byte that the keeper of frames writes to them.
const OWN: u8 = 0xA5;

/// True if a frame holds nothing but what its first tenant wrote, zeros, or poison.
fn shows_nothing_of_others(frame: &File, bytes: &mut [u8]) -> bool {
    frame.read_exact_at(bytes, 0).expect("a frame");
    // Usually it is all the same, which is soon seen.
    let is_all =
        |value: u8| bytes[0] == value && bytes[..1 << 20] == bytes[1 << 20..] && bytes[1..] == bytes[..(2 << 20) - 1];
    [OWN, 0, POISON].into_iter().any(is_all) || bytes.iter().all(|byte| [OWN, 0, POISON].contains(byte))
}

/// A tenant keeps every frame that it is sent, while another one gets its memory again and again: it sees only its own all the time.
fn sees_nothing_of_others(coordinator: &Coordinator, mut keeper: BareTenant) {
    keeper.take_gpu();
    let (_, frames) = keeper.allocate(40 << 20);
    let mut kept: Vec<File> = frames.into_iter().map(File::from).collect();
    for frame in &kept {
        frame.write_all_at(&vec![OWN; 2 << 20], 0).expect("a frame");
    }
    let mut command = coordinator.place.joining("other", &program("hold"), &["--megabytes", "48"]);
    let mut other = Running::start(&mut command, true, Some(coordinator.place.clone()));
    let (done, mut bytes) = (AtomicBool::new(false), vec![0; 2 << 20]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(other.line(LIMIT).starts_with("ready "));
            for _ in 0..3 {
                assert!(other.ask("touch", LIMIT).starts_with("touched "));
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            match keeper.hear_within(Duration::from_millis(20)) {
                Some((FromCoordinator::Turn(command), _)) => {
                    if matches!(command, TurnCommand::Grant { .. }) {
                        // Others have had the GPU, and a part of its memory, until now.
                        assert!(
                            kept.iter().all(|frame| shows_nothing_of_others(frame, &mut bytes)),
                            "of {}",
                            kept.len()
                        );
                    }
                    keeper.obey(&command);
                }
                Some((FromCoordinator::Memory(command), frames)) => {
                    keeper.done(&command);
                    kept.extend(frames.into_iter().map(File::from));
                }
                _ => {}
            }
        }
    });
    assert!(kept.iter().all(|frame| shows_nothing_of_others(frame, &mut bytes)));
    assert!(kept.len() > 20, "its memory has left and come again: {}", kept.len());
}

#[test]
fn with_strict_isolation_no_program_sees_anything_of_another_in_frames_that_it_has_kept() {
    let coordinator = Serving::arena("64MiB").option("--isolation", "strict").start();
    let keeper = BareTenant::join(&coordinator, "keeper");
    sees_nothing_of_others(&coordinator, keeper);
}

/// The numbers that the processes of a simulated GPU have there: the first word of each of its places that is taken (`sim/src/gpu_file`).
fn numbers(coordinator: &Coordinator) -> Vec<u32> {
    const FIRST: usize = 16;
    const WORDS: usize = 9;
    let table = std::fs::read(coordinator.place.folder().join("gpu")).expect("the GPU's file");
    let word = |at: usize| u64::from_ne_bytes(table[8 * at..8 * at + 8].try_into().expect("8 bytes"));
    (0..64).map(|slot| word(FIRST + slot * WORDS) as u32).filter(|number| *number != 0).collect()
}

#[test]
fn a_program_that_names_anothers_channels_can_have_nothing_done_to_them() {
    let coordinator = Serving::arena("64MiB").start();
    let mut victim = coordinator.join("victim", &program("hold"), &["--megabytes", "24"]);
    assert!(victim.line(LIMIT).starts_with("ready "));
    coordinator.until("the victim can be paused", |status| tenant(status, "victim")["preemptible"] == true);
    let all = numbers(&coordinator);
    assert!(all.len() >= 2, "the coordinator and the victim: {all:?}");
    for (at, number) in all.iter().enumerate() {
        let mut liar = BareTenant::join(&coordinator, "liar");
        liar.tell(&PreemptionReport::Channels {
            channels: Channels::Simulated { process: *number },
            begun: 0,
            elsewhere: Elsewhere::default(),
        });
        // It is answered when the report has been heard, and what came of it is known a moment later.
        liar.take_gpu();
        let refused =
            || coordinator.log().matches("the work that it offers to pause belongs to another process").count();
        let is_known = || refused() > at;
        coordinator.until("it was looked at", |status| is_known() || tenant(status, "liar")["preemptible"] == true);
        assert_eq!(tenant(&coordinator.status(), "liar")["preemptible"], false, "{number} of {all:?}");
        drop(liar);
        coordinator.until("the liar has gone", |status| tenant(status, "liar").is_null());
        assert!(victim.ask("touch", LIMIT).starts_with("touched "));
    }
    let refused = coordinator.log().matches("the work that it offers to pause belongs to another process").count();
    assert_eq!(refused, all.len(), "{}", coordinator.log());
    assert!(victim.ask("quit", LIMIT).ends_with(" ok"));
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn programs_of_users_who_are_allowed_share_the_gpu_and_steer_nothing() {
        let solo = alone("fill_and_check", &WORDS);
        let coordinator = serving(shared());
        let (prepared, fill) = (coordinator.prepared(), program("fill_and_check"));
        let start = |command: &mut Command| Running::start(command, true, Some(coordinator.place.clone()));
        let running = [
            start(&mut coordinator.place.joining("own", &fill, &WORDS)),
            start(&mut joining(prepared, GUEST, "guest", &fill, &WORDS)),
            start(&mut as_root_of_its_own(&joining(prepared, GUEST, "in a namespace", &fill, &WORDS))),
        ];
        for running in running {
            assert_eq!(running.result(LIMIT), solo, "shared (left) and alone (right)");
        }
        coordinator.until_empty();

        // A guest's memory comes back when it is killed.
        let hold = program("hold");
        let mut victim = start(&mut joining(prepared, GUEST, "victim", &hold, &["--megabytes", "40"]));
        assert!(victim.line(LIMIT).starts_with("ready "));
        assert!(tenant(&coordinator.status(), "victim")["resident_bytes"].as_u64() > Some(0));
        victim.signal(libc::SIGKILL);
        victim.end(LIMIT);
        coordinator.until_empty();

        for words in [&["status"][..], &["stop", "--now"], &["evict", "own"], &["set", "own", "class=batch"]] {
            let ended = asked_as(prepared, GUEST, words);
            assert!(
                ended.status == "exit status: 1" && ended.err.contains("only root and the user who runs"),
                "{ended:?}"
            );
        }
        let ended = run(&mut joining(prepared, GUEST - 1, "uninvited", &hold, &["--megabytes", "4"]));
        assert!(ended.status == "exit status: 125" && ended.err.contains("--allow-uid"), "{ended:?}");
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn whoever_could_have_put_a_socket_there_is_not_believed_to_be_somebody_else() {
        let coordinator = serving(shared());
        let prepared = coordinator.prepared();
        permit(prepared.place.folder(), 0o777);
        let init = joining(prepared, GUEST, "doubts", &built().programs.join("joining"), &["init", "context"]);
        let ended = run(&mut as_root_of_its_own(&init));
        assert!(ended.status == "exit status: 125" && ended.err.contains("neither you nor root"), "{ended:?}");
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_writes_on_no_page_but_its_own() {
        let coordinator = serving(shared());
        let own = BareTenant::join(&coordinator, "own");
        let [guest, another] = ["guest", "another"].map(|name| BareTenant::join_as(STRANGER, &coordinator, name));
        let inode =
            |file: &OwnedFd| File::from(file.try_clone().expect("a descriptor")).metadata().expect("a file").ino();
        let [theirs, of_another, ours] = [&guest, &another, &own].map(|tenant| inode(&tenant.pages[ACTIVITY]));
        assert!(theirs == of_another && theirs != ours, "a page for each user");
        // A descriptor that is open for reading gives no other user the right to write.
        let open =
            |page: &OwnedFd| OpenOptions::new().write(true).open(format!("/proc/thread-self/fd/{}", page.as_raw_fd()));
        for page in own.pages.iter().chain(&guest.pages) {
            let refused = as_user(STRANGER, || open(page).map(drop)).expect_err("it is the coordinator's user's");
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        }
        // Not even its user can write a page that is the coordinator's alone.
        let elsewhere = open(&guest.pages[ELSEWHERE]).expect("this is root");
        let refused = elsewhere.write_at(&[1], 0).expect_err("it is sealed");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_hears_of_others_urgent_work_from_the_coordinator() {
        let coordinator = serving(shared());
        let urgent = BareTenant::greet(&coordinator, &bare_tenant::urgent(&coordinator, "urgent"));
        let guest = BareTenant::join_as(STRANGER, &coordinator, "guest");
        let told = File::from(guest.pages[ELSEWHERE].try_clone().expect("a descriptor"));
        let is_told = || {
            let mut word = [0; 8];
            told.read_exact_at(&mut word, 0).expect("a page");
            word != [0; 8]
        };
        assert!(!is_told());
        let page = mapped(&urgent.pages[ACTIVITY]);
        for is_at_work in [true, false, true] {
            // Its slot is the first one of its domain.
            if is_at_work {
                page.set_busy(0)
            } else {
                assert!(page.set_idle(0))
            }
            urgent.tell(&CorunReport::ActivityChanged);
            coordinator.until("the guest is told", |_| is_told() == is_at_work);
        }
        // Also of one that can say nothing more itself.
        drop(urgent);
        coordinator.until("nobody waits for it", |_| !is_told());
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_is_not_united_with_those_whose_handles_it_has_heard_of() {
        let coordinator = serving(shared());
        let [one, mut other, guest] = two_and_a_guest(&coordinator);
        let (theirs, squatted) = ([7; IPC_HANDLE], [8; IPC_HANDLE]);
        // A tenant that is to be united is told to try again until it has the GPU, and then until it is united.
        noted(&guest, &Request::ExportEvent { handle: squatted });
        noted(&other, &Request::OpenEvent { handle: squatted });
        for handle in [theirs, squatted] {
            noted(&one, &Request::ExportEvent { handle });
            noted(&guest, &Request::OpenEvent { handle });
        }
        other.take_gpu();
        assert_eq!(other.ask(&Request::OpenEvent { handle: squatted }).0, Answer::TryAgain, "it is another's too");
        assert_eq!(united(&coordinator), ["other and one"]);
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_is_not_united_with_those_whose_numbers_it_says() {
        let coordinator = serving(shared());
        let [one, other, guest] = two_and_a_guest(&coordinator);
        let process = ProcessId { namespace: 7, number: 100 };
        noted(&one, &Request::ExportDescriptors { process });
        noted(&guest, &Request::ImportDescriptor { owner: process });
        assert_eq!(united(&coordinator), [""; 0]);
        // The last one to say that it is this process.
        noted(&guest, &Request::ExportDescriptors { process });
        noted(&other, &Request::ImportDescriptor { owner: process });
        assert_eq!(united(&coordinator), ["other and one"]);
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_that_cannot_be_paused_does_not_keep_others_from_running_together() {
        let serving_guests = Serving::arena("128MiB").option("--allow-uid", &STRANGER.to_string());
        let coordinator =
            serving(shared_with(serving_guests.option("--burst", "1h").option("--latency-slack", "100%")));
        let mut guest = BareTenant::join_as(STRANGER, &coordinator, "guest");
        guest.take_gpu();
        guest.allocate(2 << 20);
        let mut slow = std::thread::scope(|scope| {
            scope.spawn(|| guest.yield_gpu());
            hold::joined(&coordinator, "slow", "normal", "48", Some("0.05"))
        });
        let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
        quick.ask("spin 1", LIMIT);
        coordinator.until_tenant_is("quick", "idle");
        for _ in 0..4 {
            assert!(slow.ask("leave", LIMIT).starts_with("left "));
            assert!(quick.ask("touch", LIMIT).starts_with("touched "));
            assert_eq!(tenant(&coordinator.status(), "slow")["state"], "running");
        }
        assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
        assert!(slow.ask("quit", LIMIT).ends_with(" ok"));
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn frames_that_a_guest_has_kept_show_it_nothing_of_others() {
        let coordinator = serving(shared());
        let keeper = BareTenant::join_as(GUEST, &coordinator, "keeper");
        sees_nothing_of_others(&coordinator, keeper);
    }
}
