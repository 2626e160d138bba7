//! Every message that Baton shows to users, declared once: its identifier, its text, its cause and its remedy.
//!
//! A declaration makes a function, whose arguments the compiler checks, and an entry of the [`catalogue()`]. `baton explain` and
//! `docs/troubleshooting.md` are made of the catalogue.
//!
//! | kind | made | shows its identifier |
//! |---|---|---|
//! | `message` | a [`Message`] | always |
//! | `around` | a [`Message`] around a reason | only if the reason has none |
//! | `part` | text for tables, for JSON or for a message | never: the message around it does |
//!
//! A message that is put into another one gives its identifier away: the line ends with both, the reason's last. Text that users have
//! asked for (a table, JSON) has no identifiers.
//!
//! | file | messages of |
//! |---|---|
//! | `general` | every command |
//! | `run`, `places` | `baton run`, and the folders and sockets that all commands use |
//! | `program` | a program under Baton |
//! | `start`, `log` | a coordinator |
//! | `page` | metrics and the page |
//! | `steer`, `views`, `records` | commands about programs, coordinators and what has happened |
//! | `containers` | `baton cdi` and `baton k8s` |
//! | `doctor`, `outsiders`, `demo` | `baton doctor`, programs without Baton, `baton demo` and `baton bench` |
//! | `driver`, `contract` | the driver, and Baton's parts among themselves |

mod catalogue;
mod containers;
mod contract;
mod demo;
mod doctor;
mod driver;
mod general;
mod log;
mod message;
mod outsiders;
mod page;
mod places;
mod program;
mod records;
mod run;
mod start;
mod steer;
mod views;

pub use catalogue::{Entry, Group, Section, Topic, catalogue, find, nearest, wrapped};
pub use containers::*;
pub use contract::*;
pub use demo::*;
pub use doctor::*;
pub use driver::*;
pub use general::*;
pub use log::*;
pub use message::{Message, whole};
pub use outsiders::*;
pub use page::*;
pub use places::*;
pub use program::*;
pub use records::*;
pub use run::*;
pub use start::*;
pub use steer::*;
pub use views::*;

#[cfg(test)]
mod document;
#[cfg(test)]
mod used;
