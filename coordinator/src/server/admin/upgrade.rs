//! The upgrade: another version follows this coordinator while programs go on.
//!
//! The keeper starts the successor, which has its context, the driver and the pinned pool before this coordinator leaves. Then this one ends
//! its copies, starts none anew, and has the keeper hand everything to the successor. What it has not finished the successor begins again,
//! as after a death.
//!
//! It follows on all GPUs of this process: the server that is asked first asks the others, and has them stand still at the end.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_messages::Message;
use serde_json::json;

use super::set::say;
use crate::server::event_loop::{Interest, Source};
use crate::server::machine::{Halt, Handle};
use crate::server::state::{Server, Upgrade};
use crate::server::tenants::peer::Peer;
use baton_policy::arbiter::TenantId;

/// The successor that a user wants.
#[derive(Clone)]
pub(in crate::server) struct Wanted {
    /// The path of its program.
    pub(in crate::server) file: String,
    /// The time that it may take until it is ready.
    pub(in crate::server) within: Duration,
    /// The versions of the contract that it speaks.
    pub(in crate::server) speaks: RangeInclusive<u32>,
    /// True: programs with which it cannot speak are killed. Otherwise they are in the way.
    pub(in crate::server) leave_behind: bool,
}

/// The time that copies and preempting calls which are under way may take.
const LAST_WORK: Duration = Duration::from_secs(1);

/// A request for a successor, with what the servers have said about it so far.
struct Asked {
    peer: Peer,
    wanted: Wanted,
    /// True if the user only wants to know.
    check: bool,
    programs: Vec<String>,
    behind: Vec<String>,
    obstacle: Option<Message>,
}

impl Server {
    /// Has the program in this file follow this coordinator, on request; or only tells the peer what would happen.
    pub(in crate::server) fn upgrade_on_request(&mut self, peer: Peer, wanted: Wanted, check: bool) {
        let asked = Asked { peer, wanted, check, programs: Vec::new(), behind: Vec::new(), obstacle: None };
        let others = self.steering.machine.others(self.gpu);
        self.add_to(asked, others, self.steering.handle.clone());
    }

    /// Adds what this server has to say, and passes the request on; at last to the one that was asked first.
    fn add_to(&mut self, mut asked: Asked, mut others: Vec<Handle<Self>>, first: Handle<Self>) {
        let (behind, known) = self.by_contract(&asked.wanted.speaks);
        let in_the_way: &[TenantId] = if asked.wanted.leave_behind { &[] } else { &behind };
        asked.obstacle = asked.obstacle.or_else(|| self.obstacle_to_an_upgrade(in_the_way, &asked.wanted.speaks));
        asked.programs.extend(self.names(known.into_iter()));
        asked.behind.extend(self.names(behind.into_iter()));
        match others.pop() {
            Some(next) => next.post(move |server| server.add_to(asked, others, first)),
            None => first.post(move |server| server.decide_upon(asked)),
        }
    }

    /// Begins with an upgrade, if nothing is in the way.
    fn decide_upon(&mut self, asked: Asked) {
        let Asked { mut peer, wanted, check, programs, behind, obstacle } = asked;
        if check {
            let obstacle = obstacle.map(|why| why.to_string());
            let version = env!("CARGO_PKG_VERSION");
            let table = baton_books::table::VERSION;
            let answer = json!({
                "version": version, "table": table, "programs": programs, "left_behind": behind, "obstacle": obstacle
            });
            super::send(&mut peer, &answer);
            return;
        }
        // Another request may have come first.
        if let Some(why) = obstacle.or_else(|| self.upgrade.is_some().then(baton_messages::no_upgrade_now)) {
            return say(&mut peer, Err(why));
        }
        let Wanted { file, within, speaks, .. } = wanted;
        self.kill_those_behind(&speaks);
        for other in self.steering.machine.others(self.gpu) {
            let speaks = speaks.clone();
            other.post(move |server| server.kill_those_behind(&speaks));
        }
        self.upgrade = Some(Upgrade { peer, file, speaks, line: None, until: Instant::now() + within });
        self.begin_upgrade();
    }

    fn kill_those_behind(&mut self, speaks: &RangeInclusive<u32>) {
        for id in self.by_contract(speaks).0 {
            self.kill(id, baton_messages::LEFT_BEHIND);
        }
    }

    /// Programs with which a successor cannot speak, and those with which it can.
    fn by_contract(&self, speaks: &RangeInclusive<u32>) -> (Vec<TenantId>, Vec<TenantId>) {
        let (known, behind): (Vec<_>, Vec<_>) = self
            .card
            .tenants
            .iter()
            .partition(|(_, tenant)| speaks.contains(&tenant.connection.control.version().number()));
        let ids = |all: Vec<(TenantId, _)>| all.into_iter().map(|(id, _)| id).collect();
        (ids(behind), ids(known))
    }

    /// The reason why there can be no upgrade: one may be programs that the successor would leave behind.
    fn obstacle_to_an_upgrade(&self, behind: &[TenantId], speaks: &RangeInclusive<u32>) -> Option<Message> {
        if !behind.is_empty() {
            let names = self.names(behind.iter().copied()).join(", ");
            return Some(baton_messages::would_leave_behind(names, speaks.start(), speaks.end()));
        }
        if !self.front.keeper.is_any() {
            return Some(baton_messages::no_upgrade_without_keeper());
        }
        if self.front.lobby.is_closed() {
            return Some(baton_messages::no_upgrade_at_the_end());
        }
        self.upgrade.is_some().then(baton_messages::no_upgrade_now)
    }

    /// Has the successor started that is wanted, if this coordinator has come so far itself.
    fn begin_upgrade(&mut self) {
        let Some(upgrade) = self.upgrade.as_ref().filter(|upgrade| upgrade.line.is_none()) else { return };
        let is_free = self.is_free_for(&upgrade.speaks);
        let Some(upgrade) = self.upgrade.as_mut().filter(|_| is_free) else { return };
        let started = File::open(&upgrade.file).and_then(|file| {
            let line = self.front.keeper.start_successor(file.as_fd())?;
            self.front.events.add(&line, Source::Successor, Interest::Read)?;
            Ok(line)
        });
        match started {
            Ok(line) => {
                baton_messages::info!(successor_prepares(&upgrade.file));
                upgrade.line = Some(line);
            }
            Err(error) => self.give_up_upgrade(baton_messages::of_system(error)),
        }
    }

    /// True if a successor that speaks these can follow here as things are.
    fn is_free_for(&self, speaks: &RangeInclusive<u32>) -> bool {
        // Programs that are left behind have to end first, so that their memory is free.
        let are_all_known = self.by_contract(speaks).0.is_empty();
        self.card.takeover.is_none() && !self.card.memory.is_preparing() && are_all_known
    }

    /// Ends what is under way; false if that takes longer.
    fn ends_work(&mut self, until: Instant) -> bool {
        self.card.memory.await_copies(until) && self.card.preemptions.await_calls(until)
    }

    /// Stands still for a successor that speaks these, if this server can. It ends if that goes on. `programs` grows by its own.
    fn stand_still(&mut self, halt: &Halt, speaks: &RangeInclusive<u32>, programs: &AtomicUsize) {
        programs.fetch_add(self.card.tenants.len(), Ordering::Relaxed);
        let can = self.is_free_for(speaks) && self.ends_work(Instant::now() + LAST_WORK);
        self.hands_over = halt.stand_still(can);
    }

    /// The time at which the successor is given up.
    pub(in crate::server) fn upgrade_ends(&self) -> Option<Instant> {
        self.upgrade.as_ref().map(|upgrade| upgrade.until)
    }

    /// Hears that the successor is ready, or has ended.
    pub(in crate::server) fn hear_successor(&mut self) {
        let Some(line) = self.upgrade.as_ref().and_then(|upgrade| upgrade.line.as_ref()) else { return };
        match link::receive(line.as_fd(), true) {
            Ok(Some(mut ready)) => self.hand_over(ready.descriptors.pop()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => self.give_up_upgrade(baton_messages::successor_has_ended()),
        }
    }

    /// Begins with an upgrade that had to wait, and gives the successor up if it is not ready in time, or its keeper is gone: another
    /// keeper has nothing for it.
    pub(in crate::server) fn look_at_upgrade(&mut self) {
        if !self.front.keeper.is_any() && self.upgrade.as_ref().is_some_and(|upgrade| upgrade.line.is_some()) {
            self.give_up_upgrade(baton_messages::keeper_did_not_hand_over());
        }
        self.begin_upgrade();
        let Some(upgrade) = self.upgrade.as_ref().filter(|upgrade| upgrade.until <= Instant::now()) else { return };
        self.give_up_upgrade(match upgrade.line {
            Some(_) => baton_messages::successor_is_late(),
            None => baton_messages::not_free_for_an_upgrade(),
        });
    }

    fn give_up_upgrade(&mut self, why: Message) {
        let Some(mut upgrade) = self.upgrade.take() else { return };
        if let Some(line) = &upgrade.line {
            self.front.events.remove(line);
            self.front.keeper.end_successor();
        }
        baton_messages::warn!(upgrade_failed(&why));
        say(&mut upgrade.peer, Err(why));
    }

    /// Ends what is under way, and has the successor go on, which is this process; none if its version does not tell. From then on this
    /// process touches nothing: what comes is the successor's.
    fn hand_over(&mut self, successor: Option<OwnedFd>) {
        let start = Instant::now();
        let Some(speaks) = self.upgrade.as_ref().map(|upgrade| upgrade.speaks.clone()) else { return };
        let others = self.steering.machine.others(self.gpu);
        let (halt, programs) = (Halt::new(others.len()), Arc::new(AtomicUsize::new(self.card.tenants.len())));
        for other in others {
            let (halt, programs, speaks) = (Arc::clone(&halt), Arc::clone(&programs), speaks.clone());
            other.post(move |server| server.stand_still(&halt, &speaks, &programs));
        }
        let ends = self.ends_work(start + LAST_WORK);
        let Some(halted) = halt.wait(start + 2 * LAST_WORK).filter(|_| ends) else {
            return self.give_up_upgrade(baton_messages::work_does_not_end());
        };
        let Some(line) = self.upgrade.as_ref().and_then(|upgrade| upgrade.line.as_ref()) else { return };
        if !self.front.keeper.hand_over(line, successor.as_ref()) {
            return self.give_up_upgrade(baton_messages::keeper_did_not_hand_over());
        }
        halted.end_all();
        let Some(mut upgrade) = self.upgrade.take() else { return };
        let programs = programs.load(Ordering::Relaxed);
        baton_messages::info!(hands_over(programs));
        let ago_ms = start.elapsed().as_millis() as u64;
        super::send(&mut upgrade.peer, &json!({ "programs": programs, "pid": std::process::id(), "ago_ms": ago_ms }));
        self.hands_over = true;
    }
}
