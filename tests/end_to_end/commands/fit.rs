//! `baton fit` tells, before programs start, if they fit the GPU.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::hold;
use baton_tests::{LIMIT, MIB, built, root, run};
use serde_json::Value;

/// Its output and errors, and its exit code.
fn fit(coordinator: &Coordinator, words: &[&str]) -> (String, String, String) {
    let mut command = coordinator.place.baton(&[&["fit"], words, &["--socket"]].concat());
    let outcome = run(command.arg(coordinator.place.socket()));
    (outcome.status, outcome.out, outcome.err)
}

fn json(coordinator: &Coordinator, words: &[&str]) -> Value {
    let (_, out, err) = fit(coordinator, &[words, &["--json"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

#[test]
fn what_it_foretells_is_what_then_happens() {
    let coordinator = Serving::small("64MiB").option("--host-pool", "48MiB").option("--headroom", "0%").start();
    let mut kept = Vec::new();
    for (name, mebibytes, verdict) in [("a", "24", "together"), ("b", "24", "together"), ("c", "40", "in_turns")] {
        let sizes: Vec<String> =
            [&kept[..], &[(name, mebibytes)]].concat().iter().map(|(_, mib)| format!("--size={mib}MiB")).collect();
        let words: Vec<&str> = sizes.iter().map(String::as_str).collect();
        let told = json(&coordinator, &words);
        assert_eq!(told["verdict"], verdict, "{told:#}");
        kept.push((name, mebibytes));
    }
    let mut programs: Vec<_> =
        kept.iter().map(|(name, mib)| hold::joined(&coordinator, name, "normal", mib, None)).collect();
    for program in &mut programs {
        assert!(program.ask("touch", LIMIT).starts_with("touched "));
    }
    // By their names they count with what they had, which is a little more than they were told to take.
    let told = json(&coordinator, &["a", "b", "c"]);
    let away: u64 = coordinator.status()["tenants"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["evicted_bytes"].as_u64().expect("a number"))
        .sum();
    assert_eq!(
        (told["verdict"].as_str(), told["away_bytes"].as_u64().map(|bytes| bytes.abs_diff(away) <= 8 * MIB)),
        (Some("in_turns"), Some(true)),
        "{told:#}"
    );
    let (code, out, _) = fit(&coordinator, &["a", "b", "c", "--size", "30MiB"]);
    assert!(
        code == "exit status: 1" && out.contains("the host pool has 48 MiB") && out.contains("out of memory"),
        "{out}"
    );
    let (code, out, _) = fit(&coordinator, &["--size", "84MB", "--size", "1MiB"]);
    assert!(code == "exit status: 1" && out.contains("one program alone has more (84MB)"), "{out}");
    let (code, _, err) = fit(&coordinator, &["nobody"]);
    assert!(code == "exit status: 1" && err.contains("no program called nobody has run here lately"), "{err}");
}

#[test]
fn what_programs_had_is_remembered_when_the_coordinator_has_ended() {
    let mut coordinator = Serving::small("128MiB").start();
    for (name, mebibytes) in [("serve", "24"), ("train", "40")] {
        let mut one = hold::joined(&coordinator, name, "normal", mebibytes, None);
        assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    }
    coordinator.until_empty();
    coordinator.end(libc::SIGTERM);
    // No coordinator answers, and there is no GPU here.
    let words = ["serve", "train", "--gpu-memory", "64MiB", "--arena", "48MiB", "--host-pool", "64MiB", "--json"];
    let mut command = coordinator.place.baton(&[&["fit"], &words[..]].concat());
    let told: Value = serde_json::from_str(&run(&mut command).out).expect("an object");
    let had = |at: usize| told["programs"][at]["bytes"].as_u64().expect("a number") / MIB;
    assert!((24..32).contains(&had(0)) && (40..48).contains(&had(1)), "{told:#}");
    assert_eq!(told["verdict"], "in_turns", "{told:#}");
    let (_, _, err) = fit(&coordinator, &["nobody"]);
    assert!(err.contains("no program called nobody has run here lately"), "{err}");
}

#[test]
fn it_plans_for_a_gpu_that_is_not_here() {
    let baton = || {
        let mut command = Command::new(built().bin.join("baton"));
        command.arg("fit").current_dir(root()).env("XDG_RUNTIME_DIR", "/nonexistent");
        command
    };
    let mut command = baton();
    command.args([
        "--gpu-memory",
        "80GiB",
        "--host-pool",
        "64GiB",
        "--bus",
        "50",
        "--size",
        "90%",
        "--size",
        "90%",
        "--json",
    ]);
    let told: Value = serde_json::from_str(&run(&mut command).succeeded().out).expect("an object");
    // 90 % of 80 GiB, less 3 % that are kept free; each takes 90 % of that.
    assert_eq!(told["verdict"], "in_turns", "{told:#}");
    let arena = told["arena"].as_f64().expect("a number") / f64::from(1 << 30);
    assert!((69.0..70.5).contains(&arena), "{told:#}");
    let outcome = run(baton().args(["--driver", "sim", "--size", "100MiB"]).env("SIMCUDA_MEMORY", "512MiB"));
    assert!(outcome.out.starts_with("They fit the GPU together: 100 MiB of "), "{outcome:?}");
    // Where there is no GPU, as on the machine of a user who plans to buy one.
    let outcome = run(baton().args(["--driver", "/nonexistent/libcuda.so.1", "--size", "100MiB"]));
    assert!(outcome.err.contains("`--gpu-memory 80GB` plans for a GPU that is not here"), "{outcome:?}");
}
