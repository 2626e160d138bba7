//! The keeper holds what the next coordinator needs; and another keeper takes its place, if it is gone.

use std::os::fd::{AsFd as _, BorrowedFd};

use super::event_loop::{Interest, Source};
use super::state::Server;
use super::tenants::facts::Facts;
use super::tenants::peer::Peer;
use super::tenants::process::Process;
use super::tenants::shared::TenantsPage;
use crate::keeper::Key;
use baton_books::sharing::Fact;
use baton_policy::arbiter::TenantId;

impl Server {
    /// Has the keeper hold what the next coordinator needs of a tenant.
    pub(super) fn keep_tenant(&self, id: TenantId) {
        let Some(tenant) = self.card.tenants.get(id).filter(|_| self.front.keeper.is_any()) else { return };
        let connection = &tenant.connection;
        let with = descriptors([&connection.control, &connection.requests], &connection.process, &connection.theirs);
        self.front.keeper.hold(Key::Tenant(id.0), &Facts::of(tenant, self.card.memory.account(id)).bytes(), &with);
    }

    /// Has the keeper hold the socket and the lock, if they are new.
    pub(super) fn keep_place(&mut self) {
        if let Some(parts) = self.front.endpoint.new_parts() {
            self.front.keeper.hold(Key::Place, &self.options.number.to_le_bytes(), &parts);
        }
    }

    /// Hears the keeper's answers from now on, and notices when it is gone.
    pub(super) fn watch_keeper(&self) -> std::io::Result<()> {
        self.front.keeper.with_line(|socket| self.front.events.add(socket, Source::Keeper, Interest::Read))
    }

    /// Has another keeper hold everything, if the last one is gone or did not answer, or another thread has got another one. True if that
    /// is so.
    pub(super) fn replace_keeper(&mut self) -> bool {
        if self.front.keeper.generation() != self.front.kept {
            // If that one is gone too, the next round finds out.
            let _ = self.have_all_kept();
            return true;
        }
        let Some(why) = self.front.keeper.lost() else { return false };
        match self.front.keeper.replace().and_then(|()| self.have_all_kept()) {
            Ok(()) => baton_messages::warn!(keeper_is_replaced(why)),
            Err(error) => baton_messages::error!(keeper_is_gone(why, error)),
        }
        true
    }

    /// Has a keeper that holds nothing yet hold everything.
    pub(super) fn have_all_kept(&mut self) -> std::io::Result<()> {
        self.front.kept = self.front.keeper.generation();
        self.watch_keeper()?;
        let keeper = &self.front.keeper;
        keeper.hold(Key::Place, &self.options.number.to_le_bytes(), &self.front.endpoint.parts());
        keeper.hold_listeners();
        self.card.memory.keep_all();
        for (id, _) in self.card.tenants.iter() {
            self.keep_tenant(id);
        }
        for (id, one) in self.card.takeover.iter().flat_map(|takeover| &takeover.returning) {
            let with = descriptors([&one.control, &one.requests], &one.process, &one.pages.tenants);
            keeper.hold(Key::Tenant(id.0), &one.facts.bytes(), &with);
        }
        for one in self.card.takeover.iter().flat_map(|takeover| &takeover.attached) {
            let fact = Fact::Attached(*one);
            let (kind, number) = fact.name();
            keeper.hold(Key::Fact(kind, number), &fact.encode(), &[]);
        }
        // Last: a coordinator that does not find it begins anew, and cuts off those of whom the keeper may have only a part.
        if let Some(table) = &self.front.table {
            keeper.hold(Key::Table, &[], &[table.as_fd()]);
        }
        keeper.lost().map_or(Ok(()), |why| Err(std::io::Error::other(why)))
    }
}

/// The descriptors of a tenant, in the order in which the keeper has them.
fn descriptors<'a>(
    [control, requests]: [&'a Peer; 2],
    process: &'a Process,
    page: &'a TenantsPage,
) -> [BorrowedFd<'a>; 4] {
    [control.as_fd(), requests.as_fd(), process.as_fd(), page.file().as_fd()]
}
