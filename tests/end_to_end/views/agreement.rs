//! Every view says of every program what `baton status --json` says: how it stands, for how long it has had the GPU, where its memory is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use baton_contract::memory::size;
use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::http::Events;
use baton_tests::running::Running;
use baton_tests::web::{Page, metrics};
use serde_json::Value;

/// The truth about each thing that views show.
#[derive(Debug, Default)]
struct Truth {
    words: BTreeMap<String, String>,
    numbers: BTreeMap<String, f64>,
}

/// A view's account of one of those.
#[derive(Clone, Debug)]
enum Shown {
    Word(String),
    /// A number that only goes up, to within so much.
    Near(f64, f64),
    /// Which part of the time it is that the coordinator has run, to within so much.
    Part(f64, f64),
    /// Any other.
    Exactly(f64),
    /// One as sizes are written.
    Size(String),
}

type View = Vec<(String, Shown)>;

/// So long an answer is good enough for metrics.
const METRICS_AGE: Duration = Duration::from_millis(1100);
const MIB: f64 = (1 << 20) as f64;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(-1.0)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn truth(status: &Value) -> Truth {
    let mut truth = Truth::default();
    for (what, value) in [
        ("up", &status["uptime_seconds"]),
        ("switches", &status["switches"]),
        ("in", &status["bytes_in"]),
        ("out", &status["bytes_out"]),
        ("lent", &status["arena"]["lent_bytes"]),
        ("pool", &status["host_pool"]["used_bytes"]),
    ] {
        truth.numbers.insert(what.to_owned(), number(value));
    }
    let (mut running, mut changing) = (Vec::new(), Vec::new());
    for one in list(&status["tenants"]) {
        let name = word(&one["name"]);
        let [resident, evicted, missing] =
            ["resident_bytes", "evicted_bytes", "missing_bytes"].map(|field| number(&one[field]));
        let state = word(&one["state"]);
        let percent = (100.0 * (resident + evicted - missing) / (resident + evicted)).floor();
        let standing = if state == "loading" { format!("loading {percent} %") } else { state.clone() };
        match state.as_str() {
            "running" => running.push(name.clone()),
            "loading" | "stopping" => changing.push(format!("{name} ({standing})")),
            _ => {}
        }
        truth.words.insert(format!("state of {name}"), state);
        truth.words.insert(format!("standing of {name}"), standing);
        for (what, value) in [
            ("resident", resident),
            ("evicted", evicted),
            ("switches", number(&one["switches"])),
            ("waits", one["waits"]["count"].as_f64().unwrap_or(0.0)),
            ("GPU time", number(&one["gpu_seconds"])),
        ] {
            truth.numbers.insert(format!("{what} of {name}"), value);
        }
    }
    let on = if running.is_empty() { changing } else { running };
    let on = if on.is_empty() { "nobody".to_owned() } else { on.join(", ") };
    truth.words.insert("on the GPU".to_owned(), on);
    truth
}

/// Tells whether what is shown is true; none if that cannot be told, because it changed meanwhile, or may have and come back.
fn is_true(what: &str, shown: &Shown, before: &Truth, after: &Truth) -> Option<bool> {
    let has_moved = ["switches", "in", "out"].iter().any(|what| before.numbers[*what] != after.numbers[*what]);
    match shown {
        Shown::Word(word) => {
            let (before, after) = (before.words.get(what)?, after.words.get(what)?);
            (before == after && !has_moved).then(|| word == before)
        }
        Shown::Near(value, within) => {
            let (before, after) = (before.numbers.get(what)?, after.numbers.get(what)?);
            Some(before - within <= *value && *value <= after + within)
        }
        Shown::Part(part, within) => {
            let of = |truth: &Truth, then: &Truth| Some(truth.numbers.get(what)? / then.numbers["up"]);
            Some(of(before, after)? - within <= *part && *part <= of(after, before)? + within)
        }
        Shown::Exactly(value) => {
            let (before, after) = (before.numbers.get(what)?, after.numbers.get(what)?);
            (before == after && !has_moved).then(|| value == before)
        }
        Shown::Size(text) => {
            let [before, after] = [before, after].map(|truth| truth.numbers.get(what).map(|bytes| size(*bytes as u64)));
            (before == after && !has_moved).then(|| before.as_ref() == Some(text))
        }
    }
}

fn said(coordinator: &Coordinator, words: &[&str]) -> String {
    let mut command = coordinator.place.baton(&words[..1]);
    command.arg("--socket").arg(coordinator.place.socket()).args(&words[1..]).env("COLUMNS", "200");
    Running::start(&mut command, false, None).finish(LIMIT).succeeded().out
}

/// The cells of the line about a program, in a table whose cells are two spaces apart at least.
fn cells<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let cells = |line: &'a str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    let found = text.lines().map(cells).find(|cells| cells.contains(&name));
    found.unwrap_or_else(|| panic!("{name}: {text}"))
}

/// The text between these two; nothing if the first is not there.
fn until<'a>(text: &'a str, before: &str, end: &str) -> &'a str {
    let after = text.split_once(before).map_or("", |(_, after)| after);
    after.split(end).next().unwrap_or_default().trim()
}

fn amount(text: &str) -> f64 {
    let number = text.split_whitespace().next().unwrap_or_default();
    number.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn of_status(coordinator: &Coordinator, names: &[&str]) -> View {
    let text = said(coordinator, &["status"]);
    let on = text.lines().find_map(|line| line.strip_prefix("on the GPU ")).unwrap_or_default();
    let mut view = vec![
        ("on the GPU".to_owned(), Shown::Word(on.to_owned())),
        ("lent".to_owned(), Shown::Size(until(&text, "lent ", ",").to_owned())),
        ("pool".to_owned(), Shown::Size(until(until(&text, "host pool ", "\n"), "used ", ",").to_owned())),
        ("switches".to_owned(), Shown::Near(amount(until(&text, "switches ", ",")), 0.0)),
    ];
    for name in names {
        let row = cells(&text, name);
        view.extend([
            (format!("standing of {name}"), Shown::Word(row[5].to_owned())),
            (format!("resident of {name}"), Shown::Size(row[6].to_owned())),
            (format!("evicted of {name}"), Shown::Size(row[7].to_owned())),
            (format!("switches of {name}"), Shown::Near(amount(row[9]), 0.0)),
            (format!("GPU time of {name}"), Shown::Near(amount(row[10]), 0.006)),
        ]);
    }
    view
}

fn of_ps(coordinator: &Coordinator, names: &[&str]) -> View {
    let text = said(coordinator, &["ps"]);
    let mut view = View::new();
    for name in names {
        let row = cells(&text, name);
        view.push((format!("state of {name}"), Shown::Word(row[2].to_owned())));
        for (what, cell) in [("resident", row[3]), ("evicted", row[4])] {
            view.push((format!("{what} of {name}"), Shown::Exactly(amount(cell) * MIB)));
        }
    }
    view
}

fn of_stats(coordinator: &Coordinator, names: &[&str]) -> View {
    let text = said(coordinator, &["stats", "--last", "1h"]);
    let mut view = vec![("switches".to_owned(), Shown::Near(amount(cells(&text, "all")[2]), 0.0))];
    for name in names {
        let row = cells(&text, name);
        view.extend([
            (format!("GPU time of {name}"), Shown::Part(amount(row[1]) / 100.0, 0.0006)),
            (format!("switches of {name}"), Shown::Near(amount(row[2]), 0.0)),
            (format!("waits of {name}"), Shown::Near(amount(row[5]), 0.0)),
        ]);
    }
    view
}

fn of_top(coordinator: &Coordinator, names: &[&str]) -> View {
    let text = said(coordinator, &["top"]);
    let on = until(&text, "on the GPU: ", "   ");
    let bar = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect("a bar");
        let (rest, _) = line.rsplit_once(" of ").expect("a size");
        rest.rsplit(['+', '.', 'a', 'b', 'c', 'd']).next().unwrap_or_default().trim().to_owned()
    };
    let mut view = vec![
        ("on the GPU".to_owned(), Shown::Word(on.to_owned())),
        ("lent".to_owned(), Shown::Size(bar("arena"))),
        ("pool".to_owned(), Shown::Size(bar("host pool"))),
    ];
    let up = amount(until(&text, "   up ", "\n"));
    let column = |heading: &str| {
        let line = text.lines().nth(6).expect("headings");
        line.find(heading).unwrap_or_else(|| panic!("{heading}: {text}"))
    };
    for name in names {
        let line = text.lines().skip(7).find(|line| line.get(2..).is_some_and(|line| line.starts_with(name)));
        let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
        let cell = |heading: &str, wide: usize| {
            let end = (column(heading) + heading.len()).min(line.len());
            line[end.saturating_sub(wide)..end].trim().to_owned()
        };
        let state = line[column("state")..].split("  ").next().unwrap_or_default().trim();
        view.extend([
            (format!("standing of {name}"), Shown::Word(state.to_owned())),
            (format!("resident of {name}"), Shown::Size(cell("resident", 9))),
            (format!("evicted of {name}"), Shown::Size(cell("evicted", 9))),
        ]);
        // Of the last minute.
        if up < 55.0 {
            view.push((format!("GPU time of {name}"), Shown::Part(amount(&cell(" GPU", 5)) / 100.0, 0.006)));
        }
    }
    view
}

fn of_metrics(coordinator: &Coordinator, names: &[&str]) -> View {
    let exposed = metrics(coordinator);
    let of = |name: &str, labels: &[(&str, &str)]| exposed.sum(name, labels);
    let mut view = vec![
        ("switches".to_owned(), Shown::Near(of("baton_switches_total", &[]), 0.0)),
        ("in".to_owned(), Shown::Near(of("baton_copied_bytes_total", &[("direction", "in")]), 0.0)),
        ("out".to_owned(), Shown::Near(of("baton_copied_bytes_total", &[("direction", "out")]), 0.0)),
        ("lent".to_owned(), Shown::Exactly(of("baton_gpu_memory_bytes", &[("line", "lent")]))),
        ("pool".to_owned(), Shown::Exactly(of("baton_host_pool_bytes", &[("state", "used")]))),
    ];
    for name in names {
        for state in ["resident", "evicted"] {
            let bytes = of("baton_tenant_memory_bytes", &[("tenant", name), ("state", state)]);
            view.push((format!("{state} of {name}"), Shown::Exactly(bytes)));
        }
        let gpu = of("baton_tenant_gpu_seconds_total", &[("tenant", name)]);
        view.push((format!("GPU time of {name}"), Shown::Near(gpu, 1e-6)));
        let waits = of("baton_tenant_wait_seconds_count", &[("tenant", name)]);
        view.push((format!("waits of {name}"), Shown::Near(waits, 0.0)));
    }
    view
}

/// The contents of the page's tiles, bars and rows after one message.
fn of_message(state: &Value, names: &[&str]) -> View {
    let top = &state["top"];
    let mut view = vec![
        ("on the GPU".to_owned(), Shown::Word(word(&top["on_gpu"]))),
        ("switches".to_owned(), Shown::Near(number(&top["switches"]), 0.0)),
        ("in".to_owned(), Shown::Near(number(&top["bytes_in"]), 0.0)),
        ("out".to_owned(), Shown::Near(number(&top["bytes_out"]), 0.0)),
        ("lent".to_owned(), Shown::Exactly(number(&top["arena"]["lent_bytes"]))),
        ("pool".to_owned(), Shown::Exactly(number(&top["host_pool"]["used_bytes"]))),
    ];
    let seconds = number(&top["now_ms"]) / 1e3;
    for row in list(&state["tenants"]) {
        let name = word(&row["name"]);
        assert!(names.contains(&name.as_str()), "{name}");
        view.extend([
            (format!("state of {name}"), Shown::Word(word(&row["state"]))),
            (format!("standing of {name}"), Shown::Word(word(&row["standing"]))),
            (format!("resident of {name}"), Shown::Exactly(number(&row["resident_bytes"]))),
            (format!("evicted of {name}"), Shown::Exactly(number(&row["evicted_bytes"]))),
            (format!("GPU time of {name}"), Shown::Near(number(&row["gpu_seconds"]), 1e-6)),
            (format!("waits of {name}"), Shown::Near(row["waits"]["count"].as_f64().unwrap_or(0.0), 0.0)),
        ]);
        if seconds < 55.0 {
            view.push((format!("GPU time of {name}"), Shown::Part(number(&row["share"]), 0.0006)));
        }
    }
    view
}

/// The first message of which all was asked after the coordinator was so many seconds old, with all rows as they are then.
fn fresh(up: f64, mut next: impl FnMut() -> Value) -> Value {
    let (mut rows, mut last) = (BTreeMap::new(), 0.0);
    loop {
        let mut message = next();
        rows.extend(list(&message["tenants"]).iter().map(|row| (word(&row["name"]), row.clone())));
        // Each begins when the one before is complete.
        let before = std::mem::replace(&mut last, number(&message["top"]["now_ms"]));
        if before >= up * 1e3 {
            message["tenants"] = rows.into_values().collect();
            return message;
        }
    }
}

/// Moving memory may have been away and be back: a view that is wrong is so as often as this.
const WRONG: usize = 3;

/// Asks every view again and again, until each of its figures was that of a status that was the same before and after.
#[track_caller]
fn all_agree(coordinator: &Coordinator, names: &[&str], scene: &str) {
    let page = Page::of(coordinator);
    let listed = |_| {
        let listed: BTreeSet<_> = said(coordinator, &["names"]).lines().map(str::to_owned).collect();
        assert_eq!(listed, names.iter().map(|name| (*name).to_owned()).collect());
        View::new()
    };
    let live = |up| {
        let mut events = Events::listen(page.at, &page.token).expect("a stream");
        of_message(&fresh(up, || events.next_event()), names)
    };
    let views: [(&str, &dyn Fn(f64) -> View); 8] = [
        ("status", &|_| of_status(coordinator, names)),
        ("ps", &|_| of_ps(coordinator, names)),
        ("stats", &|_| of_stats(coordinator, names)),
        ("top", &|_| of_top(coordinator, names)),
        ("metrics", &|_| of_metrics(coordinator, names)),
        ("the page", &|up| of_message(&fresh(up, || page.get("/state.json").json()), names)),
        ("a live event", &live),
        ("names", &listed),
    ];
    let mut wrong: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for (view, ask) in views {
        let mut untold: Option<BTreeSet<String>> = None;
        while untold.as_ref().is_none_or(|untold| !untold.is_empty()) {
            if view == "metrics" {
                std::thread::sleep(METRICS_AGE);
            }
            let before = coordinator.status();
            let shown = ask(number(&before["uptime_seconds"]));
            let (before, after) = (truth(&before), truth(&coordinator.status()));
            let untold = untold.get_or_insert_with(|| shown.iter().map(|(what, _)| what.clone()).collect());
            // Of what a view shows twice, both have to be true.
            let mut told: BTreeMap<String, bool> = BTreeMap::new();
            for (what, shown) in shown {
                let Some(is_true) = is_true(&what, &shown, &before, &after) else { continue };
                if !is_true {
                    let of = |truth: &Truth| (truth.words.get(&what).cloned(), truth.numbers.get(&what).copied());
                    let said = format!("{shown:?}; status: {:?}, then {:?}", of(&before), of(&after));
                    wrong.entry((view, what.clone())).or_default().push(said);
                }
                *told.entry(what).or_insert(true) &= is_true;
            }
            for (what, is_true) in told {
                if is_true || wrong.get(&(view, what.clone())).is_some_and(|times| times.len() >= WRONG) {
                    untold.remove(&what);
                }
            }
        }
    }
    wrong.retain(|_, times| times.len() >= WRONG);
    assert!(wrong.is_empty(), "{scene}: {wrong:#?}");
}

#[test]
fn all_views_agree_while_a_server_runs_beside_a_training() {
    let coordinator = Serving::small("128MiB").with_page().start();
    coordinator.until_ready();
    let mut train = hold::joined(&coordinator, "train", "batch", "48", None);
    let mut server = hold::joined(&coordinator, "server", "latency", "48", None);
    server.ask("spin 1", LIMIT);
    coordinator.until_tenant_is("server", "idle");
    let busy = Busy::start(&mut train, &coordinator.place);
    for _ in 0..5 {
        assert_eq!(server.ask("spin 200", LIMIT), "spun");
    }
    let status = coordinator.until_tenant_is("server", "idle");
    assert!(number(&tenant(&status, "server")["gpu_seconds"]) > 0.2, "it has answered: {status:#}");
    all_agree(&coordinator, &["train", "server"], "the server is idle");
    // Its work is queued: it is at work for all of that time.
    assert_eq!(server.ask("queue 600000", LIMIT), "queued");
    coordinator.until_tenant_is("server", "running");
    all_agree(&coordinator, &["train", "server"], "the server is at work");
    busy.is_enough();
}

#[test]
fn all_views_agree_while_memory_moves() {
    let coordinator = Serving::small("32MiB")
        .with_page()
        .option("--quantum", "1s")
        .option("--mode", "exclusive")
        .setting("SIMCUDA_H2D_GBPS", "0.1")
        .setting("SIMCUDA_D2H_GBPS", "0.1")
        .start();
    coordinator.until_ready();
    let names = ["one", "two", "three"];
    let mut programs = names.map(|name| hold::joined(&coordinator, name, "batch", "20", None));
    let busy: Vec<Busy> = programs.iter_mut().map(|one| Busy::start(one, &coordinator.place)).collect();
    coordinator.until("a program loads", |status| {
        list(&status["tenants"]).iter().any(|one| one["state"] == "loading") && number(&status["switches"]) >= 1.0
    });
    all_agree(&coordinator, &names, "three programs take turns");
    busy.iter().for_each(Busy::is_enough);
}
