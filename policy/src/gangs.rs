//! Gangs: tenants on several GPUs that run at the same time, or not at all. Otherwise one would spin for another that is off.
//!
//! Each GPU has an [arbiter](crate::arbiter) of its own, which knows nothing of the others. This knows no tenants, but which of its
//! members a gang has at which GPU, and what the arbiters there have decided about them:
//!
//! ```text
//!       Claimed everywhere           Ready everywhere              one is to leave, or has left
//!   Out ────────────────> Called ────────────────────> Running ────────────────────────────────> Leaving ──> Out
//!    ^                      │                                                                        everywhere
//!    └── given back by one ─┘
//! ```
//!
//! - An arbiter *claims* a member instead of giving it its turn. A claim holds nothing: the arbiter lets others go on, and keeps the
//!   member's place. So no GPU waits for another one, and there can be no circle.
//! - When all its GPUs have claimed a gang, it is *called* at all of them. It takes their turns at once: what has them leaves, and so does,
//!   everywhere, another gang that runs at one of them. Gangs that have been claimed everywhere are called one after the other, in the
//!   order in which that was so. With a gang's turn, claims of others at its GPUs end: the arbiters there decide anew when it is over.
//! - When its memory is there at all GPUs, all its members are *admitted*.
//! - A member wants the GPU when another one does, because that may wait for it. A member that has nothing to do keeps its turn while others
//!   are at work; when none is, all leave.
//! - When one of its members is to leave, all are. When one cannot come, because its memory does not, or because what has the GPU does not
//!   leave, all give back what they have; the arbiter there does not claim it again before a growing pause is over.
//!
//! **The longest wait.** A member's claim comes after no longer than its arbiter's bound for any tenant. The gang is called with the last
//! of its claims, so after the bound of the slowest of its GPUs. Then it waits for what has these GPUs: for one drain, as they leave at the
//! same time; and for gangs that were claimed everywhere before it, each of which leaves when an arbiter claims the next one there.
//!
//! It is pure: the caller brings what the arbiters have decided, and carries out what follows, in order for each GPU. The end of a turn
//! comes before the decisions that come with it: the member may be claimed again at once.

use std::collections::{BTreeMap, BTreeSet};

use baton_contract::wire::GpuNumber;

use crate::arbiter::State;

#[cfg(test)]
mod tests;

/// A gang's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangId {
    /// The user whose gang it is, if that is not the coordinator's own: gangs of different users have nothing in common.
    pub guest: Option<u32>,
    /// The number by which the members know it.
    pub number: u64,
}

/// An arbiter's decision about a gang's member at its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is there from now on, and off the GPU.
    Joined,
    /// It is gone.
    Left,
    /// It would be its turn. The claim has a number that the GPU has not used before.
    Claimed(u64),
    /// The claim holds no more, called or not.
    GivenBack,
    /// It is called, and its memory is there.
    Ready,
    /// It is to leave.
    Revoked,
    /// It could not leave, and goes on.
    Stays,
    /// It has left the GPU.
    Ended,
    /// A call of it waits.
    Wants,
    /// It has its turn, and nothing to do, or has work again. It has closed its gate for that, because others wait for its GPU.
    Idle(bool),
    /// The same, with an open gate: none waits for its GPU.
    Rests(bool),
}

impl Event {
    /// The events of a decision that has changed the state of a gang's member, in this order.
    pub fn of_change(before: State, after: State) -> impl Iterator<Item = Self> {
        let has_turn = |state| matches!(state, State::Running | State::Leaving);
        let waits = |state| matches!(state, State::Waiting | State::Arriving);
        let turn = match (before, after) {
            (State::Running, State::Leaving) => Some(Self::Revoked),
            (State::Leaving, State::Running) => Some(Self::Stays),
            _ if has_turn(before) && !has_turn(after) => Some(Self::Ended),
            _ => None,
        };
        turn.into_iter().chain((!waits(before) && waits(after)).then_some(Self::Wants))
    }
}

/// A consequence at a GPU. The GPU may have given the claim back meanwhile: one about an earlier claim is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Its turn is the next one.
    Call,
    /// Its turn begins.
    Admit,
    /// Its turn ends, or does not come: it has to be claimed anew.
    Recall,
    /// It wants the GPU, because others of its gang do. That is about no claim.
    Want,
}

/// Where a gang's member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Out,
    Claimed,
    Called,
    /// It is called, and its memory is there.
    Ready,
    Running,
    /// It was told to leave.
    Leaving,
}

impl Stage {
    /// True if it may have the GPU, or is about to.
    fn is_on(self) -> bool {
        !matches!(self, Self::Out | Self::Claimed)
    }
}

/// A gang's member.
#[derive(Debug, Default)]
struct Member {
    stage: Stage,
    /// The number of its last claim.
    claim: u64,
    /// A call of it has waited since it last ran.
    wants: bool,
    /// It was asked to want the GPU too, since it is out.
    is_asked: bool,
    /// It runs and has nothing to do: others wait for its GPU; or none does.
    is_idle: bool,
    rests: bool,
}

/// An action, with the gang, the GPU that it is for, and the claim there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The GPU.
    pub gpu: GpuNumber,
    /// The gang.
    pub gang: GangId,
    /// The claim there that it is about.
    pub claim: u64,
    /// The action.
    pub action: Action,
}

/// All gangs of a machine.
#[derive(Debug, Default)]
pub struct Gangs {
    gangs: BTreeMap<GangId, BTreeMap<GpuNumber, Member>>,
    /// Those that have been claimed everywhere and are not called yet, in that order.
    claimed: Vec<GangId>,
}

impl Gangs {
    /// The GPUs at which the gang has members.
    fn gpus(&self, id: GangId) -> impl Iterator<Item = GpuNumber> {
        self.gangs.get(&id).into_iter().flat_map(|gang| gang.keys().copied())
    }

    /// The GPUs at which the gang is not where it is at this one, if it waits for them here: claimed, or with its memory there.
    pub fn waits_for(&self, gpu: GpuNumber, id: GangId) -> Option<Vec<GpuNumber>> {
        let gang = self.gangs.get(&id)?;
        let is_behind = match gang.get(&gpu)?.stage {
            Stage::Claimed => |stage| stage == Stage::Out,
            Stage::Ready => |stage| stage == Stage::Called,
            Stage::Out | Stage::Called | Stage::Running | Stage::Leaving => return None,
        };
        Some(gang.iter().filter(|(_, member)| is_behind(member.stage)).map(|(gpu, _)| *gpu).collect())
    }

    /// Enters what a GPU's arbiter has decided. Returns what follows from that.
    pub fn handle(&mut self, gpu: GpuNumber, id: GangId, event: Event) -> Vec<Told> {
        let mut out = Vec::new();
        match event {
            Event::Joined => {
                // Those that run do so again with this one.
                self.recall(id, &mut out);
                self.gangs.entry(id).or_default().insert(gpu, Member::default());
            }
            Event::Left => {
                let Some(gang) = self.gangs.get_mut(&id) else { return out };
                let was_on = gang.remove(&gpu).is_some_and(|member| member.stage.is_on());
                if gang.is_empty() {
                    self.gangs.remove(&id);
                } else if was_on {
                    self.recall(id, &mut out);
                }
            }
            Event::Claimed(claim) => {
                // If it was called by an earlier claim, the others were too.
                if self.put(id, gpu, Stage::Claimed).is_some_and(Stage::is_on) {
                    self.recall(id, &mut out);
                }
                if let Some(member) = self.member(id, gpu) {
                    member.claim = claim;
                }
            }
            Event::GivenBack | Event::Ended => {
                if self.put(id, gpu, Stage::Out).is_some_and(Stage::is_on) {
                    self.recall(id, &mut out);
                }
            }
            Event::Ready => {
                self.set(id, gpu, Stage::Called, Stage::Ready);
                self.admit_if_ready(id, &mut out);
            }
            Event::Revoked => {
                if self.set(id, gpu, Stage::Running, Stage::Leaving) {
                    self.recall(id, &mut out);
                }
            }
            Event::Wants => {
                if let Some(member) = self.member(id, gpu) {
                    member.wants = true;
                }
            }
            Event::Idle(now) | Event::Rests(now) => {
                if let Some(member) = self.member(id, gpu) {
                    *(if matches!(event, Event::Idle(_)) { &mut member.is_idle } else { &mut member.rests }) = now;
                }
                // If none waits for any of their GPUs, they stay.
                let is_over = |gang: &BTreeMap<GpuNumber, Member>| {
                    gang.values().all(|member| member.is_idle || member.rests)
                        && gang.values().any(|member| member.is_idle)
                };
                if self.gangs.get(&id).is_some_and(is_over) {
                    self.recall(id, &mut out);
                }
            }
            // Those that have left come back to it, by their claims.
            Event::Stays => drop(self.set(id, gpu, Stage::Leaving, Stage::Running)),
        }
        self.have_all_want(id, &mut out);
        self.order_claimed(id);
        self.call_next(&mut out);
        out
    }

    /// Asks the members that are out to want the GPU, if another one does.
    fn have_all_want(&mut self, id: GangId, out: &mut Vec<Told>) {
        let Some(gang) = self.gangs.get_mut(&id) else { return };
        let is_wanted = gang.values().any(|member| member.wants);
        for (gpu, member) in gang {
            if member.stage != Stage::Out {
                member.is_asked = false;
            } else if is_wanted && !member.wants && !std::mem::replace(&mut member.is_asked, true) {
                out.push(Told { gpu: *gpu, gang: id, claim: member.claim, action: Action::Want });
            }
        }
    }

    fn member(&mut self, id: GangId, gpu: GpuNumber) -> Option<&mut Member> {
        self.gangs.get_mut(&id)?.get_mut(&gpu)
    }

    /// Sets a member's stage. Returns the one before.
    fn put(&mut self, id: GangId, gpu: GpuNumber, to: Stage) -> Option<Stage> {
        self.member(id, gpu).map(|member| std::mem::replace(&mut member.stage, to))
    }

    /// The same, if it was in this one. True if it was.
    fn set(&mut self, id: GangId, gpu: GpuNumber, from: Stage, to: Stage) -> bool {
        let Some(member) = self.member(id, gpu).filter(|member| member.stage == from) else { return false };
        member.stage = to;
        true
    }

    /// True if the gang is to be called: at no GPU is it out, and at one it is not on.
    fn is_claimed(&self, id: GangId) -> bool {
        let Some(gang) = self.gangs.get(&id) else { return false };
        let is_there = |member: &Member| matches!(member.stage, Stage::Claimed | Stage::Running);
        gang.values().all(is_there) && gang.values().any(|member| member.stage == Stage::Claimed)
    }

    /// Enters a gang into the line of those that are to be called, or takes it out.
    fn order_claimed(&mut self, id: GangId) {
        let is_claimed = self.is_claimed(id);
        if !is_claimed {
            self.claimed.retain(|other| *other != id);
        } else if !self.claimed.contains(&id) {
            self.claimed.push(id);
        }
    }

    fn admit_if_ready(&mut self, id: GangId, out: &mut Vec<Told>) {
        let Some(gang) = self.gangs.get_mut(&id) else { return };
        if !gang.values().all(|member| matches!(member.stage, Stage::Ready | Stage::Running)) {
            return;
        }
        for (gpu, member) in gang.iter_mut().filter(|(_, member)| member.stage == Stage::Ready) {
            (member.stage, member.wants) = (Stage::Running, false);
            (member.is_idle, member.rests) = (false, false);
            out.push(Told { gpu: *gpu, gang: id, claim: member.claim, action: Action::Admit });
        }
        // Claims of before it was called may have been under way.
        let gpus = self.gpus(id).collect();
        self.give_others_back(id, &gpus, out);
    }

    /// Has all members give back what they have. Claims stay: they hold nothing.
    fn recall(&mut self, id: GangId, out: &mut Vec<Told>) {
        for (gpu, member) in self.gangs.get_mut(&id).into_iter().flatten() {
            member.stage = match member.stage {
                Stage::Called | Stage::Ready => Stage::Out,
                Stage::Running => Stage::Leaving,
                Stage::Out | Stage::Claimed | Stage::Leaving => continue,
            };
            out.push(Told { gpu: *gpu, gang: id, claim: member.claim, action: Action::Recall });
        }
    }

    /// Calls the gangs that have been claimed everywhere, as far as their GPUs have no other gang. One that runs there leaves; one that is
    /// called has its turn first, or two could keep each other from it for ever.
    fn call_next(&mut self, out: &mut Vec<Told>) {
        let mut wanted: BTreeSet<GpuNumber> = BTreeSet::new();
        let mut line = self.claimed.clone();
        // A member that could not leave may be waiting for the others.
        line.sort_by_key(|id| !self.runs(*id));
        for id in line {
            let gpus: BTreeSet<GpuNumber> = self.gpus(id).collect();
            // One that was claimed everywhere before it goes first.
            if wanted.is_disjoint(&gpus) && self.claimed.contains(&id) {
                let others = self.others_on(&gpus, id);
                for other in &others {
                    if self.runs(*other) {
                        self.recall(*other, out);
                    }
                }
                if others.is_empty() {
                    self.call(id, &gpus, out);
                }
            }
            wanted.extend(gpus);
        }
    }

    /// True if a member runs, and none is on its way.
    fn runs(&self, id: GangId) -> bool {
        let is = |stages: &[Stage]| {
            self.gangs.get(&id).is_some_and(|gang| gang.values().any(|member| stages.contains(&member.stage)))
        };
        is(&[Stage::Running]) && !is(&[Stage::Called, Stage::Ready])
    }

    fn call(&mut self, id: GangId, gpus: &BTreeSet<GpuNumber>, out: &mut Vec<Told>) {
        self.claimed.retain(|other| *other != id);
        for (gpu, member) in self.gangs.get_mut(&id).into_iter().flatten() {
            if member.stage == Stage::Claimed {
                member.stage = Stage::Called;
                out.push(Told { gpu: *gpu, gang: id, claim: member.claim, action: Action::Call });
            }
        }
        self.give_others_back(id, gpus, out);
    }

    /// Has the arbiters of these GPUs decide anew when it is other gangs' turn: after this one's.
    fn give_others_back(&mut self, id: GangId, gpus: &BTreeSet<GpuNumber>, out: &mut Vec<Told>) {
        let others: Vec<GangId> = self.gangs.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            for gpu in gpus {
                if self.set(other, *gpu, Stage::Claimed, Stage::Out)
                    && let Some(member) = self.member(other, *gpu)
                {
                    out.push(Told { gpu: *gpu, gang: other, claim: member.claim, action: Action::Recall });
                }
            }
            self.order_claimed(other);
        }
    }

    /// The other gangs that have one of these GPUs, or are about to.
    fn others_on(&self, gpus: &BTreeSet<GpuNumber>, id: GangId) -> Vec<GangId> {
        let is_there = |gang: &BTreeMap<GpuNumber, Member>| {
            gpus.iter().any(|gpu| gang.get(gpu).is_some_and(|member| member.stage.is_on()))
        };
        self.gangs.iter().filter(|(other, gang)| **other != id && is_there(gang)).map(|(other, _)| *other).collect()
    }
}
