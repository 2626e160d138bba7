//! An event as a line that a person reads.

use baton_report::event::{Event, Kind};

use crate::format::{bytes, duration};

/// True if the event concerns users, not only developers of Baton.
pub fn is_of_interest(event: &Event) -> bool {
    matches!(
        event.what,
        Kind::Joined
            | Kind::Departed
            | Kind::Granted
            | Kind::Drained
            | Kind::Preempted
            | Kind::Suspended
            | Kind::Unsuspended
            | Kind::Refused
            | Kind::UnmapTimedOut
    )
}

/// Describes the event in words, with the program as the subject.
pub fn words(event: &Event) -> String {
    let bytes = event.bytes.map_or(String::new(), bytes);
    let took = event.from_ns.map(|from| duration(event.to_ns.unwrap_or(event.ns).saturating_sub(from)));
    let after = |what: &str| took.as_ref().map_or(what.to_owned(), |took| format!("{what} {took}"));
    let it_took = |what: &str| took.as_ref().map_or(what.to_owned(), |took| format!("{what}; that took {took}"));
    let pieces = event.extents.map_or(String::new(), |extents| format!(" in {extents} pieces"));
    match event.what {
        Kind::Joined => format!("joined as {}", event.class.as_deref().unwrap_or("a program of an unknown class")),
        Kind::Departed => "has left".to_owned(),
        Kind::Asked => "wants the GPU".to_owned(),
        Kind::Chosen => "is next, and its memory comes".to_owned(),
        Kind::Granted => {
            let rest = if event.arriving == Some(true) { ", and the rest of its memory is on the way" } else { "" };
            format!("{}{rest}", after("gets the GPU after"))
        }
        Kind::Opened => "runs".to_owned(),
        Kind::Arrived => "has all its memory".to_owned(),
        Kind::Drained => it_took("is off the GPU, its work has ended"),
        Kind::Preempted => it_took("is off the GPU, in the middle of its work"),
        Kind::Resumed => "goes on where it was taken off the GPU".to_owned(),
        Kind::UnmapTimedOut => "could not unmap memory before its work had ended, and runs on for a while".to_owned(),
        Kind::Descheduled => "makes way for an urgent program".to_owned(),
        Kind::Rescheduled => "goes on beside urgent programs".to_owned(),
        Kind::Suspended => "is kept off the GPU by `baton suspend`".to_owned(),
        Kind::Unsuspended => "may use the GPU again, after `baton resume`".to_owned(),
        Kind::Leaves => format!("{bytes} of its memory begin to leave{pieces}"),
        Kind::Comes => format!("{bytes} of its memory begin to come{pieces}"),
        Kind::CopiedIn => {
            format!("{bytes} were copied to the GPU{}", took.map_or(String::new(), |took| format!(" in {took}")))
        }
        Kind::CopiedOut => {
            format!("{bytes} were copied to the host{}", took.map_or(String::new(), |took| format!(" in {took}")))
        }
        Kind::CopiedAhead => {
            format!("{bytes} were copied ahead of need{}", took.map_or(String::new(), |took| format!(" in {took}")))
        }
        Kind::Prepared => it_took("has frames behind memory that is to come"),
        Kind::Mapped => it_took("has mapped memory"),
        Kind::Unmapped => it_took("has unmapped memory"),
        Kind::Allocated => it_took("got more memory"),
        Kind::Freed => "gave memory back".to_owned(),
        Kind::Refused => format!("was refused {bytes} of memory"),
        Kind::Request => after("has answered a request in"),
        Kind::Worked => after(&format!("had the GPU for {} of", duration(event.gpu_ns.unwrap_or(0)))),
        Kind::Scanned => format!("{bytes} of its memory were read on the GPU"),
        Kind::Scrubbed => format!("{bytes} of free memory were overwritten"),
        Kind::Other(ref word) => word.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn every_kind_of_event_has_words_of_its_own() {
        let mut all = std::collections::BTreeSet::new();
        for what in Kind::ALL {
            let event = Event {
                what: what.clone(),
                ns: 5_000_000,
                from_ns: Some(2_000_000),
                bytes: Some(3 << 20),
                ..Event::default()
            };
            let words = words(&event);
            assert_ne!(words, what.word());
            assert!(all.insert(words.clone()), "{words}");
        }
        assert_eq!(all.len(), Kind::ALL.len());
    }

    #[test]
    fn a_turn_says_how_long_it_was_waited_for() {
        let event = Event {
            what: Kind::Granted,
            ns: 5_000_000,
            from_ns: Some(2_000_000),
            arriving: Some(true),
            ..Event::default()
        };
        assert_eq!(words(&event), "gets the GPU after 3.00 ms, and the rest of its memory is on the way");
        assert!(is_of_interest(&event) && !is_of_interest(&Event { what: Kind::Mapped, ..Event::default() }));
    }
}
