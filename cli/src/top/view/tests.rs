use baton_report::event::{Event, History};
use baton_report::memory::{Arena, HostPool};
use baton_report::status::{Gpu, Status};
use baton_report::tenant::Tenant;

use super::*;
use crate::top::model::Key;

const S: u64 = 1_000_000_000;

fn tenant(id: u32, name: &str, state: &str, resident: u64, evicted: u64) -> Tenant {
    Tenant {
        id,
        name: name.to_owned(),
        class: "batch".to_owned(),
        weight: 1,
        state: state.into(),
        resident_bytes: resident << 20,
        evicted_bytes: evicted << 20,
        ..Tenant::default()
    }
}

/// Two programs: the first had the GPU for 30 of 60 seconds, the second for the rest.
fn model() -> Model {
    let event = |s: u64, id: u32, what: &str| Event {
        ns: s * S,
        id: Some(id),
        tenant: Some(if id == 1 { "train" } else { "serve" }.to_owned()),
        what: what.into(),
        ..Event::default()
    };
    let worked = |from: u64, to: u64, id| Event {
        from_ns: Some(from * S),
        gpu_ns: Some((to - from) * S),
        ..event(to, id, "worked")
    };
    let granted = |s: u64, id| Event { from_ns: Some((s - 1) * S), ..event(s, id, "granted") };
    let events = vec![
        event(1, 1, "joined"),
        event(1, 2, "joined"),
        granted(40, 1),
        event(40, 1, "opened"),
        worked(40, 70, 1),
        event(70, 1, "preempted"),
        granted(70, 2),
        event(70, 2, "opened"),
        worked(70, 100, 2),
    ];
    let mut model = Model::default();
    model.timeline.see(&History { now_ns: 100 * S, next: 9, events, ..History::default() });
    model.see(Status {
        uptime_seconds: 100.0,
        gpu: Gpu { name: "Simulated GPU".to_owned(), memory_bytes: 512 << 20, ..Gpu::default() },
        arena: Arena { bytes: 64 << 20, lent_bytes: 52 << 20, ..Arena::default() },
        host_pool: HostPool { bytes: 128 << 20, used_bytes: 64 << 20, ..HostPool::default() },
        holder: Some("serve".to_owned()),
        tenants: vec![tenant(1, "train", "waiting", 16, 32), tenant(2, "serve", "running", 32, 0)],
        ..Status::default()
    });
    model
}

fn drawn(model: &Model, width: u16, height: u16, color: bool) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(model, color, &mut buffer);
    buffer
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let Rect { width, height, .. } = buffer.area;
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn programs_that_have_no_room_are_told() {
    let mut model = model();
    let many = (1..=20).map(|id| tenant(id, &format!("program-{id}"), "idle", 1, 0)).collect();
    model.see(Status { tenants: many, ..model.status.clone() });
    let shown = lines(&drawn(&model, 80, 24, false));
    assert!(shown[5].starts_with("16 of 20 programs have room;"), "{shown:#?}");
    assert_eq!(shown.iter().filter(|line| line.contains(" program-")).count(), 16, "{shown:#?}");
    let shown = lines(&drawn(&model, 80, 28, false));
    assert_eq!((shown[5].as_str(), shown[26].contains(" program-20")), ("", true), "{shown:#?}");
}

#[test]
fn the_ribbon_shows_who_had_the_gpu_and_the_bars_whose_memory_is_where() {
    let lines = lines(&drawn(&model(), 71, 12, false));
    assert!(lines[0].starts_with("on the GPU: serve   2 programs   Simulated GPU 512 MiB   up 100 s"), "{lines:#?}");
    let (first, second) = ("a".repeat(30), "b".repeat(30));
    assert_eq!(lines[1], format!("last 60 s  {first}{second}"));
    let bar = lines[2].strip_prefix("arena      ").expect("the arena");
    let count = |letter| bar.split(" 52").next().unwrap_or_default().matches(letter).count();

    assert!(count('b') > 2 * count('a') - 3 && (1..count('a')).contains(&count('+')), "{bar}");
    assert!(bar.ends_with(" 52 MiB of 64 MiB"), "{bar}");
    assert!(lines[3].starts_with("host pool  aaa") && !lines[3].contains('b'), "{lines:#?}");
    assert!(lines[3].contains("a+") && lines[3].ends_with(" 64 MiB of 128 MiB"), "{lines:#?}");
    assert!(lines[7].starts_with("a train") && lines[8].starts_with("b serve"), "{lines:#?}");
    assert!(lines[8].contains("running") && lines[8].contains("50 %"), "{lines:#?}");
}

#[test]
fn a_narrow_screen_shows_what_matters_most() {
    for width in [20, 40, 60, 80, 132, 200] {
        let lines = lines(&drawn(&model(), width, 12, false));
        assert!(lines.iter().all(|line| line.chars().count() <= usize::from(width)));
        assert!(lines[7].starts_with("a train"), "{lines:#?}");
        assert_eq!(lines[6].contains("state"), width >= 40, "{width}: {lines:#?}");
        assert_eq!(lines[6].contains("pid"), width >= 132, "{width}: {lines:#?}");
    }
    assert!(lines(&drawn(&model(), 80, 12, false))[6].contains("wait p99"));
    let wide = lines(&drawn(&model(), 200, 12, false));
    assert!(wide[7].find("batch").is_some_and(|at| at < 30), "its figures are beside its name: {wide:#?}");
    assert_eq!(lines(&drawn(&model(), 10, 2, false))[0], "too small");
}

#[test]
fn colours_are_left_out_where_there_are_none() {
    let plain = drawn(&model(), 80, 12, false);
    assert!(plain.content.iter().all(|cell| cell.bg == Color::Reset && cell.fg == Color::Reset));
    let colored = drawn(&model(), 80, 12, true);
    assert_eq!(lines(&plain), lines(&colored), "the letters are the same");
    assert_ne!(colored[(MARGIN, 1)].bg, colored[(79, 1)].bg);
}

#[test]
fn questions_filters_and_help_stand_in_the_last_line_or_the_table() {
    let mut model = model();
    model.key(Key::Down);
    model.key(Key::Char('s'));
    let last = |model: &Model| lines(&drawn(model, 80, 24, false)).last().cloned().unwrap_or_default();
    assert_eq!(last(&model), "take serve off the GPU until it is resumed?  y yes   n no");
    model.key(Key::Char('n'));
    model.key(Key::Char('?'));
    let help = lines(&drawn(&model, 100, 24, false));
    assert!(help[6].starts_with("q ") && !help.iter().any(|line| line.contains("a train")), "{help:#?}");
    model.key(Key::Escape);
    model.key(Key::Char('/'));
    model.key(Key::Char('x'));
    assert_eq!(last(&model), "/x_");
    assert!(lines(&drawn(&model, 80, 24, false))[7].starts_with("no name has these letters"));
}

#[test]
fn the_selected_program_is_seen_among_many() {
    let mut model = model();
    model.status.tenants = (1..=200).map(|id| tenant(id, &format!("p{id}"), "idle", 1, 0)).collect();
    for _ in 0..150 {
        model.key(Key::Down);
    }
    let lines = lines(&drawn(&model, 80, 24, false));
    assert!(lines.iter().any(|line| line.contains(" p151 ")), "{lines:#?}");
}
