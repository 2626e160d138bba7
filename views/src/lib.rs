//! What every view shows of a coordinator. All views read what its one recorder has written down, so they all say the same.
//!
//! Nothing here opens a socket, reads a clock or prints: everything is made of what a coordinator has answered.
//!
//! - [`timeline`]: who had the GPU when, and how each program stood, made of what has happened ([`baton_report::event`]).
//! - [`summary`]: what a stretch of that time came to. [`mod@line`]: an event in words.
//! - [`perfetto`]: a timeline as a trace for Perfetto.
//! - [`ribbon`]: a stretch of it as a picture; [`palette`]: the colours of programs. [`page`]: both as one page.
//! - [`standing`]: how things stand ([`baton_report::status`]), in words. [`why`]: what a program waits for, in sentences; [`past`]: what
//!   it waited for.
//! - [`words`]: times, sizes and names, as people read them.

pub mod fit;
pub mod line;
pub mod page;
pub mod palette;
pub mod past;
pub mod perfetto;
pub mod ribbon;
pub mod standing;
pub mod summary;
pub mod timeline;
pub mod why;
pub mod words;

#[cfg(test)]
mod strategy;
#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "it is a part of the end-to-end tests too")]
#[path = "../../tests/src/trace_file.rs"]
mod trace_file;
