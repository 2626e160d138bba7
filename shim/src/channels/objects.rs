//! The objects of the driver's resource manager that this process has made, as far as they are needed to pause it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::MutexGuard;

use baton_contract::cuda::CUdevice;
use baton_contract::resource_manager::{
    self as rm, Allocation, CHANNEL_GROUP, DEVICE, Freed, GRAPHICS, Objects, SUBDEVICE,
};

use crate::sys::by_device::ByDevice;
use crate::sys::lock::Lock;

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    client: u32,
    parent: u32,
    handle: u32,
    kind: Kind,
    /// The control device that it was made through.
    descriptor: RawFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Subdevice,
    Group { graphics: bool },
    Channel { born_paused: bool },
}

/// All objects, in the order in which they were made.
#[derive(Debug, Default)]
struct Table(Vec<Object>);

static TABLE: Lock<Table> = Lock::new(Table(Vec::new()), Table::default);
/// Counts changes.
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// The coordinator has been told that the gate is closed, and may have paused us: objects that are made now are paused here.
static PAUSED: AtomicBool = AtomicBool::new(false);

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock()
}

/// Notes that an object was made.
///
/// # Safety
///
/// The driver has just made it.
pub(super) unsafe fn note_made(descriptor: c_int, made: &Allocation) {
    let kind = match made.class {
        DEVICE => Kind::Device,
        SUBDEVICE => Kind::Subdevice,
        // SAFETY: of this class, and just made.
        CHANNEL_GROUP => Kind::Group { graphics: unsafe { rm::engine(made) } == Some(GRAPHICS) },
        class if rm::is_channel(class) => Kind::Channel { born_paused: false },
        _ => return,
    };
    let object = Object { client: made.client, parent: made.parent, handle: made.object, kind, descriptor };
    let mut table = table();
    table.0.push(object);
    CHANGES.fetch_add(1, Ordering::SeqCst);
    // A coordinator that is about to pause us announces it first, and then reads the table: the channel is in there, or is paused here.
    let paused = (PAUSED.load(Ordering::SeqCst) || is_taken()) && matches!(kind, Kind::Channel { .. });
    if let Some(objects) = paused.then(|| table.born_paused(object)).flatten() {
        // Under the lock: a thread that resumes it comes after this.
        WERE_ANY.store(true, Ordering::SeqCst);
        let _ = objects.pause(control(descriptor));
    }
}

/// Notes that an object was freed, and everything that belongs to it.
pub(super) fn note_freed(freed: &Freed) {
    if table().free(freed) {
        CHANGES.fetch_add(1, Ordering::SeqCst);
    }
}

/// Changes whenever an object was made or freed.
pub(super) fn changes() -> u32 {
    CHANGES.load(Ordering::SeqCst)
}

/// An object was paused when it was made.
static WERE_ANY: AtomicBool = AtomicBool::new(false);
/// The words that we share with the coordinator of a GPU.
struct Words {
    /// It tells by this that we are paused without having reported it: `CoordinatorPage::taken`.
    taken: &'static AtomicU32,
    /// It sees by this how many objects we were about to make: `TenantPage::channels_begun`.
    begun: &'static AtomicU32,
}

static WORDS: ByDevice<Words> = ByDevice::new();

/// Sets a GPU's two words: objects that are made while `taken` is not 0 are paused at once too; and before an object is made, `begun` is
/// counted up.
pub(crate) fn follow(device: CUdevice, taken: &'static AtomicU32, begun: &'static AtomicU32) {
    WORDS.set(device, Box::leak(Box::new(Words { taken, begun })));
}

/// Notes that an object is about to be made.
pub(super) fn note_begun() {
    for words in WORDS.all() {
        words.begun.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_taken() -> bool {
    WORDS.all().any(|words| words.taken.load(Ordering::SeqCst) != 0)
}

/// From here on, objects are paused as soon as they are made.
pub(crate) fn pause_what_comes() {
    PAUSED.store(true, Ordering::SeqCst);
}

/// Resumes the objects that were paused since [`pause_what_comes`].
pub(crate) fn resume_what_came() {
    PAUSED.store(false, Ordering::SeqCst);
    if WERE_ANY.swap(false, Ordering::SeqCst) {
        let came = table().take_born_paused();
        for (descriptor, objects) in came {
            let _ = objects.resume(control(descriptor));
        }
    }
}

/// The objects to pause on this GPU, those on the others of these, and the descriptor for that; `None` if there are none here, or if two
/// clients have channels, as when a program also draws: pausing one would not pause all.
pub(super) fn of_gpus(gpu: [u8; 16], others: &[[u8; 16]]) -> Option<(Objects, Vec<Objects>, BorrowedFd<'static>)> {
    // Asked without the lock: the driver may be making objects meanwhile.
    let mut all = table().by_subdevice();
    let gpu_of = |(descriptor, objects): &(RawFd, Objects)| objects.gpu(control(*descriptor)).ok();
    let (descriptor, here) = all.swap_remove(all.iter().position(|one| gpu_of(one) == Some(gpu))?);
    let is_anothers = |(other, objects): &(RawFd, Objects)| (*other, objects.client) != (descriptor, here.client);
    if all.iter().any(is_anothers) {
        return None;
    }
    let there = all.into_iter().filter(|one| gpu_of(one).is_none_or(|gpu| others.contains(&gpu)));
    Some((here, there.map(|(_, objects)| objects).collect(), control(descriptor)))
}

/// All objects of each client on this GPU, and on the others of these, and the descriptor to resume them.
pub(super) fn of_any(gpu: [u8; 16], others: &[[u8; 16]]) -> Vec<(Objects, BorrowedFd<'static>)> {
    let all = table().by_subdevice().into_iter().map(|(descriptor, objects)| (objects, control(descriptor)));
    let is_one = |found: [u8; 16]| found == gpu || others.contains(&found);
    all.filter(|(objects, control)| objects.gpu(*control).map_or(true, is_one)).collect()
}

/// The driver's control device.
fn control(descriptor: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the driver has it open for as long as it has objects, and closes it when the process ends.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

impl Table {
    fn find(&self, client: u32, handle: u32) -> Option<&Object> {
        self.0.iter().find(|object| (object.client, object.handle) == (client, handle))
    }

    /// Removes an object with everything that belongs to it, or a client with all its objects. False if there were none.
    fn free(&mut self, freed: &Freed) -> bool {
        let before = self.0.len();
        if freed.client == freed.object {
            self.0.retain(|object| object.client != freed.client);
            return self.0.len() != before;
        }
        let mut going = vec![freed.object];
        while let Some(handle) = going.pop() {
            self.0.retain(|object| {
                let stays = object.client != freed.client || object.handle != handle && object.parent != handle;
                if !stays && object.handle != handle {
                    going.push(object.handle);
                }
                stays
            });
        }
        self.0.len() != before
    }

    /// The device that a channel or a group belongs to.
    fn device_of(&self, object: &Object) -> Option<u32> {
        match object.kind {
            Kind::Device | Kind::Subdevice => None,
            Kind::Group { .. } => Some(object.parent),
            // A channel's parent is its group, or, if it has none, the device.
            Kind::Channel { .. } => match self.find(object.client, object.parent)? {
                Object { kind: Kind::Group { .. }, parent, .. } => Some(*parent),
                Object { kind: Kind::Device, handle, .. } => Some(*handle),
                _ => None,
            },
        }
    }

    fn subdevice_of(&self, object: &Object) -> Option<u32> {
        let device = self.device_of(object)?;
        let is_its =
            |other: &&Object| (other.client, other.parent, other.kind) == (object.client, device, Kind::Subdevice);
        self.0.iter().find(is_its).map(|subdevice| subdevice.handle)
    }

    /// The channels of every subdevice that has any, and the descriptor that they were made through.
    fn by_subdevice(&self) -> Vec<(RawFd, Objects)> {
        let mut all: Vec<(RawFd, Objects)> = Vec::new();
        for object in &self.0 {
            let is_graphics = object.kind == Kind::Group { graphics: true };
            let is_channel = matches!(object.kind, Kind::Channel { .. });
            if !is_graphics && !is_channel {
                continue;
            }
            let Some(subdevice) = self.subdevice_of(object) else { continue };
            let same = |(_, objects): &&mut (RawFd, Objects)| {
                (objects.client, objects.subdevice) == (object.client, subdevice)
            };
            let at = match all.iter_mut().find(same) {
                Some((_, objects)) => objects,
                None => {
                    let objects = Objects { client: object.client, subdevice, ..Objects::default() };
                    all.push((object.descriptor, objects));
                    let Some((_, objects)) = all.last_mut() else { continue };
                    objects
                }
            };
            if is_graphics {
                at.groups.push(object.handle);
                continue;
            }
            at.channels.push(object.handle);
            let group = self.find(object.client, object.parent);
            if group.is_some_and(|group| group.kind == Kind::Group { graphics: true }) {
                at.compute.push(object.handle);
            }
        }
        all.retain(|(_, objects)| !objects.channels.is_empty());
        all
    }

    /// Marks the last object made, and returns the way to pause it.
    fn born_paused(&mut self, channel: Object) -> Option<Objects> {
        let alone = self.alone(&channel)?;
        self.0.last_mut()?.kind = Kind::Channel { born_paused: true };
        Some(alone)
    }

    /// A channel without the others.
    fn alone(&self, channel: &Object) -> Option<Objects> {
        let subdevice = self.subdevice_of(channel)?;
        Some(Objects { client: channel.client, subdevice, channels: vec![channel.handle], ..Objects::default() })
    }

    /// Returns the marked channels, and removes the marks.
    fn take_born_paused(&mut self) -> Vec<(RawFd, Objects)> {
        let is_marked = |object: &Object| object.kind == Kind::Channel { born_paused: true };
        let marked: Vec<Object> = self.0.iter().copied().filter(is_marked).collect();
        self.0.iter_mut().filter(|object| is_marked(object)).for_each(|object| {
            object.kind = Kind::Channel { born_paused: false };
        });
        marked.iter().filter_map(|channel| Some((channel.descriptor, self.alone(channel)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u32 = 0xc1d0_0028;

    fn made(table: &mut Table, parent: u32, handle: u32, kind: Kind) {
        table.0.push(Object { client: CLIENT, parent, handle, kind, descriptor: 8 });
    }

    /// Two GPUs, on the first two contexts.
    fn process() -> Table {
        let mut table = Table::default();
        for (device, subdevice) in [(2, 3), (12, 13)] {
            made(&mut table, CLIENT, device, Kind::Device);
            made(&mut table, device, subdevice, Kind::Subdevice);
        }
        for (group, device, graphics) in [(20, 2, true), (30, 2, false), (40, 2, true), (50, 12, true)] {
            made(&mut table, device, group, Kind::Group { graphics });
            for channel in group + 1..group + 4 {
                made(&mut table, group, channel, Kind::Channel { born_paused: false });
            }
        }
        table
    }

    #[test]
    fn channels_of_all_contexts_and_engines_are_found_by_their_gpu() {
        let all = process().by_subdevice();
        let first = Objects {
            client: CLIENT,
            subdevice: 3,
            channels: vec![21, 22, 23, 31, 32, 33, 41, 42, 43],
            compute: vec![21, 22, 23, 41, 42, 43],
            groups: vec![20, 40],
        };
        let channels = vec![51, 52, 53];
        let second =
            Objects { client: CLIENT, subdevice: 13, channels: channels.clone(), compute: channels, groups: vec![50] };
        assert_eq!(all, [(8, first), (8, second)]);
    }

    #[test]
    fn what_is_freed_takes_what_belongs_to_it_along() {
        let mut table = process();
        assert!(table.free(&Freed { client: CLIENT, object: 22 }));
        assert!(!table.free(&Freed { client: CLIENT, object: 22 }));
        assert!(!table.free(&Freed { client: 1, object: 21 }), "another client's");
        assert_eq!(table.by_subdevice()[0].1.channels, [21, 23, 31, 32, 33, 41, 42, 43]);
        assert!(table.free(&Freed { client: CLIENT, object: 20 }));
        assert_eq!(table.by_subdevice()[0].1.channels, [31, 32, 33, 41, 42, 43]);
        assert_eq!(table.by_subdevice()[0].1.groups, [40]);
        assert!(table.free(&Freed { client: CLIENT, object: 2 }));
        assert_eq!(table.by_subdevice().len(), 1, "the other GPU's");
        assert!(table.free(&Freed { client: CLIENT, object: CLIENT }));
        assert!(table.0.is_empty());
    }

    #[test]
    fn what_is_made_while_paused_is_let_go_on_once() {
        let mut table = process();
        made(&mut table, 30, 34, Kind::Channel { born_paused: false });
        let last = *table.0.last().expect("just made");
        let alone = Objects { client: CLIENT, subdevice: 3, channels: vec![34], ..Objects::default() };
        assert_eq!(table.born_paused(last), Some(alone.clone()));
        assert!(table.by_subdevice()[0].1.channels.contains(&34), "and it is paused and resumed with all others");
        assert_eq!(table.take_born_paused(), [(8, alone)]);
        assert_eq!(table.take_born_paused(), []);
    }
}
