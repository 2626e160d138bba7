//! `baton set`, `suspend` and `resume`: users change settings of tenants while those run.

use std::time::Instant;

use baton_contract::messages::{Admission, CorunCommand};
use baton_contract::scheduling::Change;
use baton_messages::Message;
use baton_report::quota::Quota;
use serde_json::json;

use crate::server::recorder::event::What;
use crate::server::state::Server;
use crate::server::tenants::peer::Peer;
use baton_policy::arbiter::{Event, State};

/// Answers a tool: its request was carried out, or the reason why not.
pub(in crate::server) fn say(peer: &mut Peer, done: Result<(), Message>) {
    let answer = match done {
        Ok(()) => json!({}),
        Err(error) => json!({ "error": error.to_string() }),
    };
    let piece = answer.to_string().into_bytes();
    // A peer that does not wait for the answer does not get it.
    let _ = peer.send(&Admission::Text { piece, more: false }, &[]);
}

impl Server {
    /// Handles a tool's request to change a tenant's settings, and answers it.
    pub(in crate::server) fn set_on_request(&mut self, mut peer: Peer, name: &str, change: Change) {
        let done = self.set(name, change, &peer);
        say(&mut peer, done);
    }

    fn set(&mut self, name: &str, change: Change, by: &Peer) -> Result<(), Message> {
        let id = self.called(name, by)?;
        let Some(tenant) = self.card.tenants.get_mut(id) else { return Ok(()) };
        let (before, scheduling) = (tenant.scheduling.wanted, tenant.scheduling.wanted.changed(change));
        scheduling.check()?;
        // A user that may have it otherwise may also set this for others.
        if let (_, met) = self.options.quotas.bound(by.guest(), scheduling)
            && let Some(met) = met.first()
        {
            return Err(baton_messages::quota_forbids(met));
        }
        if scheduling != before {
            tenant.scheduling.wanted = scheduling;
            baton_messages::info!(is_scheduled_now(name, scheduling.class, scheduling.weight));
            if scheduling.class != before.class {
                self.card.corun.change(id, scheduling.class);
                if let Some((slot, [page, _])) = self.card.corun.place(id) {
                    self.card.tenants.tell_with(id, &CorunCommand::Slot { slot }, &[page]);
                }
            }
            self.card.tenants.meets_no_more(id, &[Quota::Class, Quota::Weight]);
            self.keep_tenant(id);
            self.will_tell(id, Event::Changed { scheduling });
        }
        match change.suspended {
            Some(true) => {
                if self.card.arbiter.state(id) == State::Arriving {
                    self.memory().end_swap_in(id);
                }
                if let Some(tenant) = self.card.tenants.get_mut(id) {
                    tenant.scheduling.suspended.get_or_insert_with(Instant::now);
                }
                self.keep_tenant(id);
                self.card.recorder.record(id, What::Suspended);
                self.will_tell(id, Event::KeepOff(true));
            }
            Some(false) => {
                // Those that share memory with it go on with it.
                for member in self.card.arbiter.members(id) {
                    if let Some(tenant) = self.card.tenants.get_mut(member) {
                        tenant.scheduling.suspended = None;
                    }
                    self.keep_tenant(member);
                    self.resume(member);
                }
                self.card.recorder.record(id, What::Unsuspended);
            }
            None => {}
        }
        Ok(())
    }
}
