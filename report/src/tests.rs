//! Output of builds before this crate is read, and written again byte for byte; `recorded/` is the output of such a build, from a
//! coordinator with a simulated GPU.

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::event::{Event, History, Kind};
use crate::record::Head;
use crate::status::Status;
use crate::switch::Switch;
use crate::tenant::State;
use crate::times::SwitchBuckets;

const STATUS: &str = include_str!("recorded/status.json");
const EVENTS: &str = include_str!("recorded/events.jsonl");
const SWITCHES: &str = include_str!("recorded/switches.jsonl");

/// JSON, with its fields in their order.
#[derive(Debug, PartialEq)]
enum Ordered {
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
    Plain(Value),
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let fields = std::iter::from_fn(|| map.next_entry().transpose());
                fields.collect::<Result<_, _>>().map(Ordered::Object)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Ordered, A::Error> {
                let items = std::iter::from_fn(|| seq.next_element().transpose());
                items.collect::<Result<_, _>>().map(Ordered::Array)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Ordered, E> {
                Ok(Ordered::Plain(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Ordered, E> {
                Ok(Ordered::Plain(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Ordered, E> {
                Ok(Ordered::Plain(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Ordered, E> {
                Ok(Ordered::Plain(value.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Ordered, E> {
                Ok(Ordered::Plain(value.into()))
            }

            fn visit_unit<E>(self) -> Result<Ordered, E> {
                Ok(Ordered::Plain(Value::Null))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl fmt::Display for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = |f: &mut fmt::Formatter<'_>, parts: Vec<String>, ends: [char; 2]| {
            write!(f, "{}{}{}", ends[0], parts.join(","), ends[1])
        };
        match self {
            Self::Plain(value) => value.fmt(f),
            Self::Array(items) => each(f, items.iter().map(ToString::to_string).collect(), ['[', ']']),
            Self::Object(fields) => {
                let field = |(name, value): &(String, Self)| format!("{}:{value}", Value::from(name.as_str()));
                each(f, fields.iter().map(field).collect(), ['{', '}'])
            }
        }
    }
}

impl Ordered {
    /// Returns this without the fields that `other` lacks: they have been added since.
    fn cut_to(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Object(fields), Self::Object(others)) => {
                let old = |(name, value): (String, Self)| {
                    let (_, other) = others.iter().find(|(other, _)| *other == name)?;
                    Some((name, value.cut_to(other)))
                };
                Self::Object(fields.into_iter().filter_map(old).collect())
            }
            (Self::Array(items), Self::Array(others)) if items.len() == others.len() => {
                Self::Array(items.into_iter().zip(others).map(|(item, other)| item.cut_to(other)).collect())
            }
            (other, _) => other,
        }
    }
}

/// Reads the output of an older build. Written again it is the same, byte for byte, except for fields that were added since.
#[track_caller]
fn is_written_as_read<T: DeserializeOwned + Serialize>(text: &str) -> T {
    let read: T = serde_json::from_str(text).expect("what was written is read");
    let written = serde_json::to_string(&read).expect("JSON");
    let [old, new]: [Ordered; 2] = [text, &written].map(|text| serde_json::from_str(text).expect("JSON"));
    assert_eq!(new.cut_to(&old).to_string(), text);
    read
}

#[test]
fn a_status_of_an_older_build_is_read_and_written_byte_for_byte() {
    let status: Status = is_written_as_read(STATUS.trim_end());
    assert!(!status.tenants.is_empty() && !status.newcomers.is_empty() && !status.departed.is_empty());
    assert_eq!(status.tenants.iter().filter(|tenant| tenant.state == State::Suspended).count(), 1);
    assert!(status.recent.iter().all(|switch| switch.gpu == status.gpu.uuid));
}

#[test]
fn switches_and_events_of_an_older_build_are_read_and_written_byte_for_byte() {
    let switches: Vec<Switch> = SWITCHES.lines().map(is_written_as_read).collect();
    assert!(switches.iter().any(|switch| switch.phases.first_launch_ms.is_some()));
    let (head, events) = EVENTS.split_once('\n').expect("a record");
    is_written_as_read::<Head>(head);
    let events: Vec<Event> = events.lines().map(is_written_as_read).collect();
    let kinds = events.iter().filter(|event| Kind::ALL.contains(&event.what)).count();
    assert_eq!(kinds, events.len());
    assert!(events.iter().any(|event| event.what == Kind::Joined && event.class.as_deref() == Some("latency")));
    let history = History { schema: 1, gpu: "GPU-0".to_owned(), next: 9, more: true, events, ..History::default() };
    is_written_as_read::<History>(&serde_json::to_string(&history).expect("JSON"));
}

/// Adds a field to every object but maps of numbers, whose fields are all known.
fn extend(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(extend),
        Value::Object(fields) if !fields.contains_key("array") => {
            fields.values_mut().for_each(extend);
            fields.insert("of_a_newer_build".to_owned(), json!({ "a": [1] }));
        }
        _ => {}
    }
}

#[test]
fn a_reader_ignores_fields_and_keeps_words_of_newer_builds() {
    let mut newer: Value = serde_json::from_str(STATUS).expect("JSON");
    let old: Status = serde_json::from_value(newer.clone()).expect("a status");
    extend(&mut newer);
    assert!(newer["tenants"][0]["of_a_newer_build"].is_object());
    assert_eq!(serde_json::from_value::<Status>(newer.clone()).expect("it is read"), old);
    newer["tenants"][0]["state"] = "dreaming".into();
    newer["tenants"][0]["waits_for"]["reason"] = "dawn".into();
    newer["tenants"][0]["unmanaged"]["texture"] = 5.into();
    let read: Status = serde_json::from_value(newer).expect("it is read");
    let tenant = &read.tenants[0];
    assert_eq!((tenant.state.word(), tenant.waits_for.reason.word(), tenant.unmanaged.sum()), ("dreaming", "dawn", 5));
    assert!(serde_json::to_string(tenant).expect("JSON").contains(r#""state":"dreaming""#));
    let event: Event =
        serde_json::from_value(json!({ "n": 1, "ns": 2, "what": "dreamt", "of": 3 })).expect("it is read");
    assert_eq!(event.what, Kind::Other("dreamt".into()));
}

#[test]
fn what_an_older_build_did_not_say_has_its_default() {
    assert_eq!(serde_json::from_str::<Status>("{}").expect("it is read"), Status::default());
    let of = json!({ "tenants": [{ "name": "a" }], "newcomers": [{}], "recent": [{ "n": 3 }], "departed": [{}] });
    let status: Status = serde_json::from_value(of).expect("it is read");
    assert_eq!((status.tenants[0].state.word(), status.recent[0].n), ("idle", 3));
    let event: Event = serde_json::from_str(r#"{"n": 1, "ns": 2, "what": "asked"}"#).expect("it is read");
    assert_eq!(event, Event { n: 1, ns: 2, what: Kind::Asked, ..Event::default() });
}

#[test]
fn programs_count_with_the_most_that_they_had_and_the_bus_with_what_it_gave() {
    let text = r#"{"tenants": [{"name": "a", "peak_bytes": 5}], "departed": [{"name": "a", "peak_bytes": 7}],
        "recent": [{"bytes_in": 600000000, "in_seconds": 0.02}, {"bytes_in": 0, "in_seconds": 0}]}"#;
    let status: Status = serde_json::from_str(text).expect("a status");
    assert_eq!((status.peak("a"), status.peak("b")), (Some(7), None));
    assert_eq!(status.bytes_per_second().map(f64::round), Some(3e10));
    assert_eq!(Status::default().bytes_per_second(), None, "nothing was copied");
}

#[test]
fn parts_of_switches_are_named_as_their_fields_in_the_order_of_names() {
    let buckets = serde_json::to_value(SwitchBuckets::default()).expect("JSON");
    let names: Vec<&str> = buckets.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    assert_eq!(SwitchBuckets::default().all().map(|(name, _)| name).as_slice(), names);
}
