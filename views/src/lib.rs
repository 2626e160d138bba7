//! The views of a coordinator. All views read the events that its one recorder has written, so they all agree.
//!
//! Nothing here opens a socket, reads a clock or prints: every view is made from a coordinator's answers.
//!
//! - [`timeline`]: the GPU's owner and each program's state over time, made from events ([`baton_report::event`]).
//! - [`summary`]: totals of a stretch of time. [`mod@line`]: an event in words.
//! - [`perfetto`]: a timeline as a trace for Perfetto.
//! - [`ribbon`]: a stretch of time as a picture; [`palette`]: the colours of programs. [`page`]: both as one page.
//! - [`standing`]: the present state ([`baton_report::status`]), in words. [`why`]: the reason why a program waits, in sentences;
//!   [`past`]: the reasons why it waited.
//! - [`mod@format`]: times, sizes and names, for people to read.

pub mod fit;
pub mod format;
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

#[cfg(test)]
mod strategy;
#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "it is a part of the end-to-end tests too")]
#[path = "../../tests/src/trace_file.rs"]
mod trace_file;
