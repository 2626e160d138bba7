//! Requests of users: status, other settings, memory that is to leave.
//!
//! | file | what it does |
//! |---|---|
//! | `status` | shows the status |
//! | `events` | passes on events |
//! | `why` | gives the reason why each tenant waits, as data |
//! | `set` | changes programs' scheduling |
//! | `evict` | evicts memory on request |
//! | `prefetch` | brings memory back on request |
//! | `stop` | ends the coordinator on request |
//! | `keep` | takes another keeper on request |
//! | `upgrade` | has another version follow on request |
//! | `mod` | sends an answer as text, piece by piece |

pub(super) mod events;
pub(super) mod evict;
pub(super) mod keep;
pub(super) mod prefetch;
pub(super) mod set;
pub(super) mod status;
pub(super) mod stop;
pub(super) mod upgrade;
mod why;

use baton_contract::messages::{Admission, MAX_TEXT};
use serde::Serialize;

use super::tenants::peer::Peer;

/// Sends a tool a JSON object. False if it does not listen.
fn send(peer: &mut Peer, answer: &impl Serialize) -> bool {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    let pieces = text.chunks(MAX_TEXT).count();
    text.chunks(MAX_TEXT).enumerate().all(|(at, piece)| {
        let message = Admission::Text { piece: piece.to_vec(), more: at + 1 < pieces };
        peer.send(&message, &[]).is_ok()
    })
}
