//! An event as a line that a person reads.

use crate::event::Event;
use crate::words::{bytes, duration};

/// Whether it is of interest to whoever does not look into Baton itself.
pub fn is_of_interest(event: &Event) -> bool {
    matches!(
        event.what.as_str(),
        "joined"
            | "departed"
            | "granted"
            | "drained"
            | "preempted"
            | "suspended"
            | "unsuspended"
            | "refused"
            | "unmap_timed_out"
    )
}

/// What has happened, in words; the program is the subject.
pub fn words(event: &Event) -> String {
    let bytes = event.bytes.map_or(String::new(), bytes);
    let took = event.from_ns.map(|from| duration(event.to_ns.unwrap_or(event.ns).saturating_sub(from)));
    let after = |what: &str| took.as_ref().map_or(what.to_owned(), |took| format!("{what} {took}"));
    let it_took = |what: &str| took.as_ref().map_or(what.to_owned(), |took| format!("{what}; that took {took}"));
    let pieces = event.extents.map_or(String::new(), |extents| format!(" in {extents} pieces"));
    match event.what.as_str() {
        "joined" => format!("joined as {}", event.class.as_deref().unwrap_or("a program of an unknown class")),
        "departed" => "has left".to_owned(),
        "asked" => "wants the GPU".to_owned(),
        "chosen" => "is next, and its memory comes".to_owned(),
        "granted" => {
            let rest = if event.arriving == Some(true) { ", and the rest of its memory is on the way" } else { "" };
            format!("{}{rest}", after("gets the GPU after"))
        }
        "opened" => "runs".to_owned(),
        "arrived" => "has all its memory".to_owned(),
        "drained" => it_took("is off the GPU, its work has ended"),
        "preempted" => it_took("is off the GPU, in the middle of its work"),
        "resumed" => "goes on where it was taken off the GPU".to_owned(),
        "unmap_timed_out" => "could not unmap memory before its work had ended, and runs on for a while".to_owned(),
        "descheduled" => "makes way for an urgent program".to_owned(),
        "rescheduled" => "goes on beside urgent programs".to_owned(),
        "suspended" => "is kept off the GPU by `baton suspend`".to_owned(),
        "unsuspended" => "may use the GPU again, after `baton resume`".to_owned(),
        "leaves" => format!("{bytes} of its memory begin to leave{pieces}"),
        "comes" => format!("{bytes} of its memory begin to come{pieces}"),
        "copied_in" => {
            format!("{bytes} were copied to the GPU{}", took.map_or(String::new(), |took| format!(" in {took}")))
        }
        "copied_out" => {
            format!("{bytes} were copied to the host{}", took.map_or(String::new(), |took| format!(" in {took}")))
        }
        "copied_ahead" => {
            format!("{bytes} were copied ahead of need{}", took.map_or(String::new(), |took| format!(" in {took}")))
        }
        "prepared" => it_took("has frames behind memory that is to come"),
        "mapped" => it_took("has mapped memory"),
        "unmapped" => it_took("has unmapped memory"),
        "allocated" => it_took("got more memory"),
        "freed" => "gave memory back".to_owned(),
        "refused" => format!("was refused {bytes} of memory"),
        "request" => after("has answered a request in"),
        "worked" => after(&format!("had the GPU for {} of", duration(event.gpu_ns.unwrap_or(0)))),
        "scanned" => format!("{bytes} of its memory were read on the GPU"),
        "scrubbed" => format!("{bytes} of free memory were overwritten"),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KINDS;

    #[test]
    fn every_kind_of_event_has_words_of_its_own() {
        let mut all = std::collections::BTreeSet::new();
        for what in KINDS {
            let event = Event {
                what: what.to_owned(),
                ns: 5_000_000,
                from_ns: Some(2_000_000),
                bytes: Some(3 << 20),
                ..Event::default()
            };
            let words = words(&event);
            assert_ne!(words, what);
            assert!(all.insert(words.clone()), "{words}");
        }
        assert_eq!(all.len(), KINDS.len());
    }

    #[test]
    fn a_turn_says_how_long_it_was_waited_for() {
        let event = Event {
            what: "granted".to_owned(),
            ns: 5_000_000,
            from_ns: Some(2_000_000),
            arriving: Some(true),
            ..Event::default()
        };
        assert_eq!(words(&event), "gets the GPU after 3.00 ms, and the rest of its memory is on the way");
        assert!(is_of_interest(&event) && !is_of_interest(&Event { what: "mapped".to_owned(), ..Event::default() }));
    }
}
