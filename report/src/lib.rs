//! A coordinator's reports about itself. Each fact is one type: the coordinator fills it and writes it as JSON, and views, the web
//! page, the harness and all commands read that JSON into the same type.
//!
//! | file | its subject |
//! |---|---|
//! | [`status`] | the state at a moment: the answer to `Opening::Status` |
//! | [`tenant`], [`memory`], [`times`], [`waits`], [`quota`] | parts of a status |
//! | [`switch`] | a change of the GPU's owner, also a line of `baton serve --trace` |
//! | [`pod`] | the names of a program's pod, which metrics show |
//! | [`event`] | events: the answer to `Opening::Events` |
//! | [`record`] | the files that a coordinator leaves behind |
//!
//! Doc comments of the types and fields are the descriptions in `docs/status.schema.json` and `docs/events.schema.json`, which a test
//! makes of them. A reader ignores fields that it does not know, and missing fields have their defaults: so programs of one build read
//! the output of another.
//!
//! Nothing here opens a socket, reads a clock or knows CUDA.

#[macro_use]
mod words;

pub mod event;
pub mod memory;
pub mod pod;
pub mod quota;
pub mod record;
#[cfg(test)]
mod schema;
pub mod status;
pub mod switch;
pub mod tenant;
#[cfg(test)]
mod tests;
pub mod times;
pub mod waits;
