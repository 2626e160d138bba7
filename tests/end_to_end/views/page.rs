//! The page shows everything to those who know its token, and no request disturbs the coordinator or its programs.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::http::{self, Events, request};
use baton_tests::web::Page;
use baton_tests::{LIMIT, hold};

const BEHIND_THE_TOKEN: [&str; 2] = ["/events", "/state.json"];
const FILES: [&str; 6] = ["/", "/style.css", "/page.js", "/ribbon.js", "/tables.js", "/icon.svg"];

#[test]
fn nothing_is_shown_without_the_token() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    for path in BEHIND_THE_TOKEN {
        for token in ["", &page.token[1..], &format!("{}0", page.token), "Bearer"] {
            let reply = http::get(page.at, path, token);
            assert_eq!(reply.status, 401, "{path} {token}: {reply:?}");
            assert!(!reply.body.contains("GPU-"), "{reply:?}");
        }
        // Not in the address, where logs and histories have it.
        let text = request("GET", &format!("{path}?token={}", page.token), &page.at.to_string(), &[], "");
        assert_eq!(http::exchange(page.at, &text).status, 401);
    }
    let gpu = &coordinator.status()["gpu"]["uuid"];
    assert_eq!(&page.get("/state.json").json()["top"]["gpu"]["uuid"], gpu);
    assert_eq!(page.get("/healthz").body, "ok\n");
    assert_eq!(page.get("/nothing").status, 404);
}

#[test]
fn the_pages_files_are_its_own_and_are_kept_to_themselves() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    for path in FILES {
        let reply = http::get(page.at, path, "");
        assert_eq!(reply.status, 200, "{path}");
        let policy = &reply.headers["content-security-policy"];
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["cache-control"], "no-store");
        for outside in ["https://", "//cdn", "@import", "innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!reply.body.contains(outside), "{path} has {outside}");
        }
        assert_eq!(http::exchange(page.at, &request("POST", path, "localhost", &[], "")).status, 405, "{path}");
    }
    let html = http::get(page.at, "/", "").body;
    assert!(!html.contains(" style=") && !html.contains("<style") && !html.contains(" on"), "nothing is inline");
    assert_eq!(html.matches("<script").count(), html.matches("<script type=\"module\" src=").count());
}

#[test]
fn a_name_that_leads_here_is_no_name_of_ours() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    let said = format!("Bearer {}", page.token);
    let with_host = |path: &str, host: &str| {
        http::exchange(page.at, &request("GET", path, host, &[("Authorization", said.as_str())], ""))
    };
    for path in FILES.iter().chain(&BEHIND_THE_TOKEN[1..]) {
        for host in ["evil.example", &format!("evil.example:{}", page.at.port()), "127.0.0.1.evil.example", ""] {
            assert_eq!(with_host(path, host).status, 421, "{path} {host}");
        }
        for host in ["localhost", "127.0.0.1:9999", "[::1]:7878"] {
            assert_eq!(with_host(path, host).status, 200, "{path} {host}: a port may be forwarded");
        }
    }
}

#[test]
fn buttons_do_nothing_unless_that_was_allowed() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    let reply = page.post(r#"{"do":"suspend","name":"nobody"}"#);
    assert!(reply.status == 403 && reply.body.contains("--http-control"), "{reply:?}");
    assert_eq!(page.get("/state.json").json()["top"]["control"], false);
}

#[test]
fn buttons_do_what_the_command_line_does_and_only_for_our_own_page() {
    let coordinator = Serving::small("64MiB").with_page().flag("--http-control").start();
    let page = Page::of(&coordinator);
    let mut one = hold::joined(&coordinator, "one", "normal", "24", None);
    let (host, said) = (page.at.to_string(), format!("Bearer {}", page.token));
    let own = format!("http://{host}");
    let suspend = r#"{"do":"suspend","name":"one"}"#;
    let json = ("Content-Type", "application/json");
    let token = ("Authorization", said.as_str());
    for (method, headers, status) in [
        ("GET", &[token, ("Origin", own.as_str()), json][..], 405),
        ("PUT", &[token, ("Origin", &own), json], 405),
        ("POST", &[("Origin", &own), json], 401),
        ("POST", &[("Authorization", "Bearer 0123"), ("Origin", &own), json], 401),
        ("POST", &[token, json], 403),
        ("POST", &[token, ("Origin", "http://evil.example"), json], 403),
        ("POST", &[token, ("Origin", "null"), json], 403),
        ("POST", &[token, ("Origin", "http://localhost:1"), json], 403),
        ("POST", &[token, ("Origin", &own), ("Sec-Fetch-Site", "cross-site"), json], 403),
        ("POST", &[token, ("Origin", &own)], 415),
        ("POST", &[token, ("Origin", &own), ("Content-Type", "text/plain")], 415),
    ] {
        let reply = http::exchange(page.at, &request(method, "/control", &host, headers, suspend));
        assert_eq!(reply.status, status, "{method} {headers:?}: {reply:?}");
    }
    assert_eq!(tenant(&coordinator.status(), "one")["suspended"], false);
    for (body, status) in [
        ("{", 400),
        (r#"{"do":"kill","name":"one"}"#, 400),
        (r#"{"do":"suspend","name":"one","more":1}"#, 400),
        (r#"{"do":"class","name":"one","class":"urgent"}"#, 400),
        (r#"{"do":"suspend","name":"nobody"}"#, 409),
        (&format!(r#"{{"do":"suspend","name":"{}"}}"#, "x".repeat(100)), 400),
        (&format!(r#"{{"do":"suspend","name":"{}"}}"#, "x".repeat(10_000)), 413),
    ] {
        let reply = page.post(body);
        assert_eq!(reply.status, status, "{body}: {reply:?}");
    }
    assert_eq!(page.post(suspend).status, 200);
    coordinator.until_tenant_is("one", "suspended");
    assert_eq!(page.post(r#"{"do":"resume","name":"one"}"#).status, 200);
    assert!(one.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(page.post(r#"{"do":"class","name":"one","class":"batch"}"#).status, 200);
    assert_eq!(tenant(&coordinator.status(), "one")["class"], "batch");
    // It may have come into use again.
    let end = Instant::now() + LIMIT;
    while page.post(r#"{"do":"evict","name":"one"}"#).status != 200 {
        assert!(Instant::now() < end, "it is never evicted");
    }
    assert_eq!(tenant(&coordinator.status(), "one")["resident_bytes"], 0);
}

#[test]
fn a_page_is_told_everything_and_then_what_is_new() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    let mut events = Events::listen(page.at, &page.token).expect("a stream");
    let first = events.next_event();
    assert_eq!((&first["all"], &first["tenants"]), (&true.into(), &serde_json::json!([])), "{first}");
    let mut running =
        [("one", "latency"), ("two", "batch")].map(|(name, class)| hold::joined(&coordinator, name, class, "48", None));
    let mut rows = std::collections::BTreeMap::new();
    let (mut joined, mut columns) = (Vec::new(), false);
    let end = Instant::now() + LIMIT;
    while joined.len() < 2 || rows.len() < 2 || !columns {
        assert!(Instant::now() < end, "it is not told: {rows:?} {joined:?} {columns}");
        for one in &mut running {
            assert!(one.ask("touch", LIMIT).starts_with("touched "));
        }
        let event = events.next_event();
        for row in event["tenants"].as_array().expect("rows") {
            rows.insert(row["id"].as_u64(), row.clone());
        }
        let log = event["log"].as_array().expect("entries").iter();
        joined.extend(log.filter(|entry| entry["what"] == "joined").map(|entry| entry["tenant"].clone()));
        columns |= event["lanes"]["of"].as_object().is_some_and(|lanes| !lanes.is_empty());
    }
    for mut one in running {
        one.ask("quit", LIMIT);
    }
    let mut gone = 0;
    while gone < 2 {
        gone += events.next_event()["gone"].as_array().map_or(0, Vec::len);
    }
}

#[test]
fn so_many_pages_can_be_open_and_who_comes_then_is_told_why_not() {
    let coordinator = Serving::small("64MiB").with_page().start();
    let page = Page::of(&coordinator);
    let mut open: Vec<Events> = (0..64).map(|_| Events::listen(page.at, &page.token).expect("a stream")).collect();
    let refused = Events::listen(page.at, &page.token).err().expect("no more");
    assert!(refused.status == 503 && refused.body.contains("64 pages are open already"), "{refused:?}");
    // All of them hear the same, and the page itself is there for others.
    for events in &mut open {
        assert_eq!(events.next_event()["top"]["count"], 0);
    }
    assert_eq!(page.get("/state.json").status, 200);
    drop(open);
    let end = Instant::now() + LIMIT;
    while Events::listen(page.at, &page.token).is_err() {
        assert!(Instant::now() < end, "their places are not free again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As many descriptors as the system allows.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives over the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// Connections that each have said something, and say no more. Those that were sent away meanwhile are fine too.
fn connections(page: &Page, count: usize, said: &str) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = http::connect(page.at);
        let _ = stream.write_all(said.as_bytes());
        stream
    };
    (0..count).map(connect).collect()
}

#[track_caller]
fn goes_on(coordinator: &Coordinator, running: &mut baton_tests::running::Running, page: &Page) {
    assert_eq!(coordinator.status()["tenants"].as_array().map(Vec::len), Some(1));
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(page.get("/state.json").status, 200);
    assert_eq!(page.get("/healthz").body, "ok\n");
}

#[test]
fn whatever_is_sent_the_coordinator_and_its_programs_go_on() {
    raise_descriptor_limit();
    let coordinator = Serving::small("64MiB").with_page().flag("--http-control").start();
    let page = Page::of(&coordinator);
    let mut running = hold::joined(&coordinator, "program", "normal", "24", None);
    let before = coordinator.until_ready()["descriptors"].as_u64().expect("a number");
    let (host, said) = (page.at.to_string(), format!("Bearer {}", page.token));

    let large = "x".repeat(64 << 10);
    for text in [
        request("GET", "/state.json", &host, &[("X-Large", &large)], ""),
        request("GET", &format!("/{large}"), &host, &[], ""),
        "GET / HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(1000) + "\r\n",
        "nonsense\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "\0\u{1}\u{2}\r\n\r\n".to_owned(),
        "POST /control HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(),
        "POST /control HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzzz"
            .to_owned(),
    ] {
        let mut stream = http::connect(page.at);
        let _ = stream.write_all(text.as_bytes());
        // Some are cut off while they are still sending.
        if let Ok(reply) = http::heard(&mut stream) {
            assert!((400..500).contains(&reply.status), "{reply:?}");
        }
    }
    goes_on(&coordinator, &mut running, &page);

    // Heads that never end, and a body that does not come.
    let _slow = connections(&page, 100, "GET / HTTP/1.1\r\nHost: local");
    let waiting = format!(
        "POST /control HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nAuthorization: {said}\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{{"
    );
    let _body = connections(&page, 4, &waiting);
    goes_on(&coordinator, &mut running, &page);
    // A thousand that say nothing.
    let silent = connections(&page, 1000, "");
    goes_on(&coordinator, &mut running, &page);
    // Pages that never read what they are told.
    let deaf = connections(&page, 32, &request("GET", "/events", &host, &[("Authorization", &said)], ""));
    goes_on(&coordinator, &mut running, &page);
    let most = coordinator.status()["descriptors"].as_u64().expect("a number");
    assert!(most < before + 128 + 32, "{most} descriptors, {before} before");
    drop((silent, deaf));
    let end = Instant::now() + LIMIT;
    while coordinator.status()["descriptors"].as_u64() > Some(before + 8) {
        assert!(Instant::now() < end, "descriptors are kept: {}", coordinator.status()["descriptors"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    goes_on(&coordinator, &mut running, &page);
    assert!(running.ask("quit", LIMIT).ends_with(" ok"));
}
