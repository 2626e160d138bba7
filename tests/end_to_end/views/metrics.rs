//! Metrics are valid, say what `baton status --json` says, and only go up where they should.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::http;
use baton_tests::openmetrics::{self, Exposed, Series};
use baton_tests::running::Running;
use baton_tests::web::{Page, metrics, metrics_port, metrics_socket, until_same};
use baton_tests::{LIMIT, hold};
use serde_json::Value;

/// Memory moves in pages of this size.
const PAGE: u64 = 2 << 20;

/// Two programs that have no room beside each other take turns a few times.
#[track_caller]
fn take_turns(running: &mut [Running], times: usize) {
    for _ in 0..times {
        for one in &mut *running {
            assert!(one.ask("touch", LIMIT).starts_with("touched "));
        }
    }
}

/// Figures by what they are, as one view has them.
type Figures = BTreeMap<String, u64>;

fn of_status(status: &Value) -> Figures {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut figures: Figures =
        ["switches", "bytes_in", "bytes_out", "preemptions"].map(|key| (key.to_owned(), number(&status[key]))).into();
    for tenant in status["tenants"].as_array().expect("a list") {
        let name = tenant["name"].as_str().expect("a name");
        figures.insert(format!("waits of {name}"), number(&tenant["waits"]["count"]));
        figures.insert(format!("requests of {name}"), number(&tenant["requests"]["count"]));
        figures.insert(format!("resident of {name}"), number(&tenant["resident_bytes"]));
        figures.insert(format!("evicted of {name}"), number(&tenant["evicted_bytes"]));
    }
    figures
}

fn of_metrics(exposed: &Exposed) -> Figures {
    let number = |value: f64| value as u64;
    let sum = |name: &str, labels: &[(&str, &str)]| number(exposed.sum(name, labels));
    let mut figures: Figures = [
        ("switches", sum("baton_switches_total", &[])),
        ("bytes_in", sum("baton_copied_bytes_total", &[("direction", "in")])),
        ("bytes_out", sum("baton_copied_bytes_total", &[("direction", "out")])),
        ("preemptions", sum("baton_preemptions_total", &[])),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let tenants = exposed.of("baton_tenant_memory_bytes", &[("state", "resident")]);
    for ((_, labels), _) in tenants {
        let name = &labels["tenant"];
        let of = [("tenant", name.as_str())];
        figures.insert(format!("waits of {name}"), sum("baton_tenant_wait_seconds_count", &of));
        figures.insert(format!("requests of {name}"), sum("baton_request_seconds_count", &of));
        for state in ["resident", "evicted"] {
            let bytes = sum("baton_tenant_memory_bytes", &[("tenant", name), ("state", state)]);
            figures.insert(format!("{state} of {name}"), bytes);
        }
    }
    figures
}

fn of_page(state: &Value) -> Figures {
    let mut status = state["top"].clone();
    status["tenants"] = state["tenants"].clone();
    of_status(&status)
}

#[test]
fn status_metrics_and_page_say_the_same_when_programs_have_taken_turns() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    let mut running = [("urgent", "latency"), ("batch \"quoted\"\\", "batch")]
        .map(|(name, class)| hold::joined(&coordinator, name, class, "48", None));
    take_turns(&mut running, 4);
    let status = || of_status(&coordinator.status());
    until_same(status, || of_metrics(&metrics(&coordinator)));
    until_same(status, || of_page(&page.get("/state.json").json()));
    let figures = status();
    assert!(figures["switches"] > 0 && figures["bytes_in"] > 0 && figures["waits of urgent"] > 0, "{figures:?}");
    // Every byte of the GPU is in one line.
    let exposed = metrics(&coordinator);
    assert_eq!(exposed.sum("baton_gpu_memory_bytes", &[]), (512_u64 << 20) as f64);
    // Switches that were written down are counted in each of their phases.
    let whole = exposed.sum("baton_switch_seconds_count", &[("phase", "whole")]);
    assert!(whole > 0.0 && whole <= exposed.sum("baton_switches_total", &[]), "{exposed:?}");
    for mut one in running {
        assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    }
}

/// The bytes that a process has copied each way, as the simulated GPU has written them down: moves are whole pages, and all else is
/// small.
fn copied(log: &Path, pid: u64) -> [u64; 2] {
    let mut bytes = [0; 2];
    for line in std::fs::read_to_string(log).expect("the GPU's own log").lines() {
        let [process, way, size] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let size: u64 = size.parse().expect("a number");
        if process == pid.to_string() && size.is_multiple_of(PAGE) {
            bytes[usize::from(way == "out")] += size;
        } else {
            assert!(process != pid.to_string() || size < PAGE / 2, "{line}");
        }
    }
    bytes
}

#[test]
fn the_bytes_that_moved_are_those_that_the_gpu_has_counted_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("copies");
    let coordinator =
        Serving::small("64MiB").with_page().setting("SIMCUDA_COPY_LOG", log.to_str().expect("UTF-8")).start();
    let mut running = ["one", "other"].map(|name| hold::joined(&coordinator, name, "normal", "48", None));
    take_turns(&mut running, 3);
    for mut one in running {
        assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    }
    let status = coordinator.until_empty();
    let counted = copied(&log, status["pid"].as_u64().expect("a number"));
    assert!(counted.iter().all(|bytes| *bytes > 0), "{counted:?}");
    assert_eq!(counted, ["bytes_in", "bytes_out"].map(|way| status[way].as_u64().expect("a number")));
}

#[test]
fn what_a_program_has_waited_is_less_than_its_own_clock_says_and_more_than_it_was_kept_waiting() {
    let coordinator = Serving::small("64MiB").option("--mode", "exclusive").option("--quantum", "1h").start();
    let waited = || {
        let status = coordinator.status();
        let of_status = tenant(&status, "one")["wait_buckets"]["sum_seconds"].as_f64().expect("a number");
        let of_metrics = metrics(&coordinator).sum("baton_tenant_wait_seconds_sum", &[("tenant", "one")]);
        (of_status, of_metrics)
    };
    let mut one = hold::joined(&coordinator, "one", "normal", "8", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    assert_eq!(other.ask("queue 500", LIMIT), "queued");
    let before = waited().0;
    one.say("time");
    let waits = |status: &Value| tenant(status, "one")["waiting"] == true;
    coordinator.until("one waits", waits);
    // It waited before, and still did whenever that was asked.
    let (begin, mut kept_waiting) = (Instant::now(), 0.0);
    loop {
        let now = begin.elapsed().as_secs_f64();
        if !waits(&coordinator.status()) {
            break;
        }
        kept_waiting = now;
    }
    let line = one.line(LIMIT);
    let took = line.strip_prefix("took ").and_then(|took| took.parse::<f64>().ok()).expect("nanoseconds") / 1e9;
    until_same(|| waited().0, || waited().1);
    let waited = waited().0 - before;
    assert!(kept_waiting > 0.0, "it was seen twice");
    assert!(kept_waiting <= waited && waited <= took, "{kept_waiting} <= {waited} <= {took}");
}

/// The series that went down between two moments. A program that is there again begins anew, and is left out.
fn went_down(before: &Exposed, after: &Exposed, but: &str) -> Vec<Series> {
    let is_same = |series: &Series| series.1.get("tenant").is_none_or(|tenant| tenant != but);
    let down = |(series, value): (&Series, &f64)| after.values.get(series).is_some_and(|now| now < value);
    let rows = before.values.iter().filter(|(series, _)| Exposed::only_goes_up(series) && is_same(series));
    rows.filter(|row| down(*row)).map(|(series, _)| series.clone()).collect()
}

#[test]
fn what_only_goes_up_does_so_when_programs_leave_and_come_again() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let mut stays = hold::joined(&coordinator, "stays", "normal", "48", None);
    let mut before = metrics(&coordinator);
    let all = |exposed: &Exposed, name: &str| exposed.sum(name, &[]);
    for round in 0..4 {
        let mut comes = hold::joined(&coordinator, "comes", "latency", "48", None);
        for _ in 0..2 {
            stays.ask("touch", LIMIT);
            comes.ask("touch", LIMIT);
            std::thread::sleep(std::time::Duration::from_millis(1100));
            let now = metrics(&coordinator);
            assert_eq!(went_down(&before, &now, "comes"), Vec::new());
            for name in
                ["baton_tenant_gpu_seconds_total", "baton_tenant_wait_seconds_count", "baton_request_seconds_count"]
            {
                assert!(all(&now, name) >= all(&before, name), "{name}");
            }
            before = now;
        }
        assert!(comes.ask("quit", LIMIT).ends_with(" ok"));
        coordinator.until("it has left", |status| tenant(status, "comes").is_null());
        until_same(|| round + 1, || metrics(&coordinator).sum("baton_tenants_departed_total", &[]) as i32);
    }
    // Programs that have left are not named, so there are as many series as before.
    let exposed = metrics(&coordinator);
    assert!(exposed.values.keys().all(|(_, labels)| labels.get("tenant").is_none_or(|name| name != "comes")));
    assert!(exposed.sum("baton_tenant_wait_seconds_count", &[("tenant", "departed")]) > 0.0);
    let status = coordinator.status();
    let count = |value: &Value| value.as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>();
    let waits = count(&status["departed_totals"]["wait_buckets"]["counts"])
        + count(&tenant(&status, "stays")["wait_buckets"]["counts"]);
    assert_eq!(status["times"]["wait"]["count"], waits, "each wait is somebody's");
}

#[test]
fn requests_that_took_longer_than_their_target_are_counted() {
    let coordinator = Serving::small("128MiB").start();
    let _slow = hold::joined(&coordinator, "slow", "batch", "24", None);
    let mut urgent = hold::joined(&coordinator, "urgent", "latency", "24", None);
    urgent.ask("spin 1", LIMIT);
    let set = |target: &str| {
        let mut command = coordinator.place.baton(&["set", "--socket"]);
        command.arg(coordinator.place.socket()).args(["urgent", target]);
        assert!(command.output().expect("baton can be started").status.success());
    };
    let number = |status: &Value, at: &str| tenant(status, "urgent").pointer(at).and_then(Value::as_u64).unwrap_or(0);
    let mut answer = || {
        let before = number(&coordinator.until_tenant_is("urgent", "idle"), "/requests/count");
        assert_eq!(urgent.ask("queue 50", LIMIT), "queued");
        coordinator.until("the request is written down", |status| number(status, "/requests/count") > before)
    };
    set("slo=1h");
    let early = number(&answer(), "/slo_misses");
    assert_eq!(early, 0);
    set("slo=1us");
    assert!(number(&answer(), "/slo_misses") > 0);
    let misses = || number(&coordinator.status(), "/slo_misses");
    until_same(misses, || metrics(&coordinator).sum("baton_slo_misses_total", &[("tenant", "urgent")]) as u64);
}

#[test]
fn metrics_are_on_a_socket_of_this_users_alone_and_elsewhere_only_when_asked_for() {
    let mut coordinator = Serving::small("64MiB").start();
    let socket = metrics_socket(&coordinator);
    let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    assert_eq!(http::get_unix(&socket, "/healthz").body, "ok\n");
    assert_eq!(http::get_unix(&socket, "/").status, 404);
    assert!(!coordinator.log().contains("http://"), "{}", coordinator.log());
    coordinator.end(libc::SIGTERM);
    assert!(!socket.exists(), "it goes with the coordinator");
    // One that was killed leaves its own, and the next takes its place.
    std::os::unix::net::UnixListener::bind(&socket).expect("free");
    let again = coordinator.again();
    assert_eq!(http::get_unix(&metrics_socket(&again), "/healthz").status, 200);
}

fn with_token(serving: &Serving, setting: &str) -> (Coordinator, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-some-length\n").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("ours");
    (serving.clone().option(setting, &file.display().to_string()).start(), folder)
}

#[test]
fn metrics_on_a_port_need_the_token_if_there_is_one_and_a_name_of_this_machine_if_there_is_none() {
    let open = Serving::small("64MiB").option("--metrics", "127.0.0.1:0");
    let coordinator = open.start();
    let at = metrics_port(&coordinator);
    openmetrics::read(&http::get(at, "/metrics", "").body);
    let stranger = http::exchange(at, &http::request("GET", "/metrics", "evil.example", &[], ""));
    assert_eq!(stranger.status, 421, "{stranger:?}");
    assert_eq!(http::exchange(at, &http::request("POST", "/metrics", "localhost", &[], "")).status, 405);
    // The classic format is for all who do not ask for another, like curl.
    const ASKED: &str = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    let classic = "text/plain; version=0.0.4";
    for (accepted, kind) in [
        (None, classic),
        (Some("*/*"), classic),
        (Some("text/plain"), classic),
        (Some(ASKED), "application/openmetrics-text"),
    ] {
        let headers: Vec<_> = accepted.iter().map(|accepted| ("Accept", *accepted)).collect();
        let reply = http::exchange(at, &http::request("GET", "/metrics", "localhost", &headers, ""));
        assert!(reply.headers["content-type"].starts_with(kind), "{accepted:?}: {reply:?}");
    }

    let (coordinator, _folder) = with_token(&open, "--metrics-token-file");
    let at = metrics_port(&coordinator);
    for token in ["", "a-token-of-some-lengt", "another-token-of-some-length"] {
        assert_eq!(http::get(at, "/metrics", token).status, 401, "{token}");
    }
    openmetrics::read(&http::get(at, "/metrics", "a-token-of-some-length").body);
}

#[test]
fn what_others_could_reach_or_read_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-some-length\n").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("ours");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let _taken = std::net::TcpListener::bind(&taken);
    for (options, words) in [
        (&[("--metrics", "0.0.0.0:0")][..], &["--metrics-token-file", "other machines"][..]),
        (&[("--http", "127.0.0.1:0"), ("--http-token-file", &file.display().to_string())], &["chmod 600"]),
        (&[("--http", &taken)], &["--http", "in use"]),
        (&[("--metrics", &taken)], &["--metrics", "in use"]),
    ] {
        let serving =
            options.iter().fold(Serving::small("64MiB"), |serving, (name, value)| serving.option(name, value));
        let outcome = serving.prepare().serve_in_vain();
        assert!(words.iter().all(|word| outcome.err.contains(word)), "{options:?}: {outcome:?}");
    }
}

/// Tells whether `promtool` is content, and what it prints.
#[track_caller]
fn promtool(words: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("promtool, of Debian's package `prometheus`");
    std::io::Write::write_all(&mut running.stdin.take().expect("ours"), input.as_bytes()).expect("it reads");
    let output = running.wait_with_output().expect("our own child");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: promtool"]
    fn promtool_finds_nothing_wrong_with_metrics_and_alerts() {
        let coordinator = Serving::small("64MiB").option("--metrics", "127.0.0.1:0").start();
        let mut running = [("one", "latency"), ("two", "batch")]
            .map(|(name, class)| hold::joined(&coordinator, name, class, "48", None));
        take_turns(&mut running, 2);
        let at = metrics_port(&coordinator);
        let text = http::exchange(at, &http::request("GET", "/metrics", "localhost", &[("Accept", "*/*")], "")).body;
        let (is_well, said) = promtool(&["check", "metrics"], &text);
        assert!(is_well && said.trim().is_empty(), "{said}\n{text}");
        let folder = baton_tests::root().join("docs/monitoring");
        for (what, file) in [(&["check", "rules"][..], "alerts.yml"), (&["test", "rules"], "alerts_test.yml")] {
            let file = folder.join(file).display().to_string();
            let (is_well, said) = promtool(&[what, &[file.as_str()]].concat(), "");
            assert!(is_well, "{said}");
        }
    }
}
