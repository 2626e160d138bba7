//! The program's own handles (`cuMemCreate`), and its mappings of them (`cuMemMap`). Pure.
//!
//! A handle's memory is a row of extents, like an allocation's. For the coordinator it lies at the handle's **home**: addresses that are
//! never mapped, by which the shim and the coordinator refer to it. The program has the memory wherever it maps the handle: nowhere, once,
//! or at several addresses at a time. No two homes are neighbours, so no extent ever has parts of two handles.

use core::ffi::c_int;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use baton_contract::cuda::{CUDA_ERROR_INVALID_VALUE, CUdevice, CUdeviceptr, CUmemAllocationProp, CUresult};
use baton_contract::memory::GRANULE;

use super::access::Access;
use super::table::Key;
use super::window::Window;
use crate::sys::by_device::{MOST, place};

/// The addresses of homes, far above all real addresses; and how many of them each GPU's memory has.
const HOMES: Range<u64> = 1 << 60..1 << 61;
const HOMES_OF_GPU: u64 = (HOMES.end - HOMES.start) / MOST as u64;
/// The upper half of our handles' numbers; the driver's numbers are small, or addresses.
const TAG: u64 = 0xBA70_7E9A;
/// The bits of such a number that count a GPU's handles. Those between are the GPU's.
const COUNTED: u32 = 24;

/// The most descriptors that are kept to watch others: the program needs its own.
const MOST_WATCHED: usize = 128;

/// A handle's number, as the program has it (`CUmemGenericAllocationHandle`).
pub(crate) type HandleNumber = u64;

/// The index of a handle's flag that announces access by devices on the bus (`gpuDirectRDMACapable`). The flag changes nothing until they
/// access it.
pub(crate) const RDMA: usize = 1;

/// True if a number is that of a handle of ours, living or not.
pub(crate) fn is_handle(number: HandleNumber) -> bool {
    number >> 32 == TAG
}

/// The GPU of a handle of ours, living or not.
pub(crate) fn device_of(number: HandleNumber) -> Option<CUdevice> {
    is_handle(number).then_some((number as u32 >> COUNTED) as CUdevice)
}

/// True if an address of an extent is a home.
pub(super) fn is_home(address: CUdeviceptr) -> bool {
    HOMES.contains(&address)
}

/// The place of a handle's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// In extents, which are known by these addresses.
    AtHome(CUdeviceptr),
    /// In one piece that stays where it is, with this handle of the driver's: it was exported.
    InOnePiece(u64),
}

/// A handle's part in memory that several processes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    Not,
    /// This process has made it, and others may import it by this key.
    Exported(Key),
    /// Another process has made it, and exported it by this key.
    Imported(Key),
}

#[derive(Debug)]
struct Handle {
    memory: Memory,
    bytes: u64,
    /// The number of releases that the program owes. Mapped memory stays when that is 0.
    held: u32,
    /// The addresses where it is mapped.
    places: BTreeSet<CUdeviceptr>,
    properties: Properties,
    shared: Shared,
    /// It stays while anybody has a descriptor of it, by which it can be imported: this tells.
    watch: Option<OwnedFd>,
    /// Others access it past its mappings.
    is_reached_past: bool,
}

impl Handle {
    fn new(memory: Memory, bytes: u64, properties: Properties, shared: Shared) -> Self {
        Self {
            memory,
            bytes,
            held: 1,
            places: BTreeSet::new(),
            properties,
            shared,
            watch: None,
            is_reached_past: false,
        }
    }

    /// True if the program neither holds it nor has it mapped.
    fn is_unused(&self) -> bool {
        self.held == 0 && self.places.is_empty()
    }

    /// Bytes that it takes of what the program may have. Another process's memory does too: it is on the GPU while this one runs.
    fn taken(&self) -> u64 {
        match self.memory {
            Memory::InOnePiece(_) => 0,
            Memory::AtHome(_) => self.bytes,
        }
    }
}

/// The properties that a handle was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties(pub(crate) CUmemAllocationProp);

// SAFETY: the pointer in it is for Windows, and is never followed.
unsafe impl Send for Properties {}

/// The way in which others access memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By the program's own mappings, to which they have access. Together with those, it may be moved into one piece.
    Mappings,
    /// Past the mappings, at times that are not known.
    Past,
}

/// A mapping of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) at: CUdeviceptr,
    pub(crate) bytes: u64,
    pub(crate) handle: HandleNumber,
    /// The number by which the program has mapped it.
    named: HandleNumber,
    /// Tells it from all other memory there ever was, as the driver's `CU_POINTER_ATTRIBUTE_BUFFER_ID` does.
    pub(crate) number: u64,
    /// The kinds of export that its handle was made for (`CUmemAllocationHandleType`); and true if devices on the bus were to access it.
    pub(crate) handle_types: c_int,
    pub(crate) rdma: bool,
    /// The access that GPUs have.
    pub(crate) access: Access,
    /// The host waits for copies and fills of it that name no stream (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
    pub(crate) is_synchronous: bool,
}

impl Mapping {
    fn end(&self) -> CUdeviceptr {
        self.at + self.bytes
    }
}

/// An address where a part of a handle's memory is mapped, and the access that GPUs have there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: CUdeviceptr,
    pub(super) access: Access,
}

/// Memory at a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) at: CUdeviceptr,
    pub(crate) bytes: u64,
}

/// Memory of a handle that has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The number that the handle had.
    pub(crate) number: HandleNumber,
    pub(crate) memory: Memory,
    pub(crate) bytes: u64,
    /// The coordinator has to be told that it can no longer be imported.
    pub(crate) is_exported: bool,
}

/// All handles of a GPU's memory, and the mappings of them.
#[derive(Debug)]
pub(super) struct Mappings {
    device: CUdevice,
    handles: BTreeMap<HandleNumber, Handle>,
    /// Further numbers of handles, as each import makes one: the number that the books know the handle by, and how often the program holds
    /// it by this one.
    others: BTreeMap<HandleNumber, (HandleNumber, u32)>,
    homes: BTreeMap<CUdeviceptr, HandleNumber>,
    free_homes: Window,
    by_address: BTreeMap<CUdeviceptr, Mapping>,
    last: u32,
    taken: u64,
    /// The number of handles that are watched.
    watched: usize,
}

impl Mappings {
    /// Those of a GPU: none yet.
    pub(super) fn of(device: CUdevice) -> Self {
        let mut free_homes = Window::default();
        free_homes.give_back(HOMES.start + place(device) as u64 * HOMES_OF_GPU, HOMES_OF_GPU);
        Self {
            device,
            handles: BTreeMap::new(),
            others: BTreeMap::new(),
            homes: BTreeMap::new(),
            free_homes,
            by_address: BTreeMap::new(),
            last: 0,
            taken: 0,
            watched: 0,
        }
    }

    /// True if there is any handle.
    pub(super) fn is_any(&self) -> bool {
        !self.handles.is_empty()
    }

    /// Bytes that the movable memory of all handles takes.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a home for so many bytes.
    pub(super) fn take_home(&mut self, bytes: u64) -> Option<CUdeviceptr> {
        self.free_homes.take(bytes.checked_add(GRANULE)?)
    }

    /// Gives back a home without memory.
    pub(super) fn give_home_back(&mut self, home: Home) {
        self.free_homes.give_back(home.at, home.bytes + GRANULE);
    }

    /// Adds a handle of memory with this home.
    pub(super) fn add(&mut self, home: CUdeviceptr, bytes: u64, properties: Properties) -> HandleNumber {
        self.insert(home, Handle::new(Memory::AtHome(home), bytes, properties, Shared::Not))
    }

    /// Adds a handle of memory with this home that another process has exported by this key.
    pub(super) fn add_imported(&mut self, home: Home, properties: Properties, key: Key) -> HandleNumber {
        self.insert(home.at, Handle::new(Memory::AtHome(home.at), home.bytes, properties, Shared::Imported(key)))
    }

    fn insert(&mut self, home: CUdeviceptr, handle: Handle) -> HandleNumber {
        let number = self.next_number();
        self.taken += handle.taken();
        self.homes.insert(home, number);
        self.handles.insert(number, handle);
        number
    }

    /// The number that the books know a handle by.
    fn known(&self, number: HandleNumber) -> HandleNumber {
        self.others.get(&number).map_or(number, |(known, _)| *known)
    }

    fn next_number(&mut self) -> HandleNumber {
        loop {
            self.last = self.last.wrapping_add(1);
            let number =
                TAG << 32 | (place(self.device) as u64) << COUNTED | u64::from(self.last & ((1 << COUNTED) - 1));
            if !self.handles.contains_key(&number) && !self.others.contains_key(&number) {
                break number;
            }
        }
    }

    /// The place of a handle's memory, its size, and the properties it was made with.
    pub(super) fn get(&self, handle: HandleNumber) -> Option<(Memory, u64, CUmemAllocationProp)> {
        let found = self.handles.get(&self.known(handle))?;
        let mut properties = found.properties.0;
        if self.is_imported(handle) {
            // It cannot be exported (measured: `import-same-memory` in `bench/results/rules.json`).
            properties.handle_types = 0;
        }
        Some((found.memory, found.bytes, properties))
    }

    /// A handle's home, if its memory has one.
    pub(super) fn home_of(&self, handle: HandleNumber) -> Option<Home> {
        let handle = self.handles.get(&self.known(handle))?;
        let Memory::AtHome(at) = handle.memory else { return None };
        Some(Home { at, bytes: handle.bytes })
    }

    /// Notes that others are about to access the memory of a range past its mappings.
    pub(super) fn let_reach_past(&mut self, at: CUdeviceptr, bytes: u64) {
        let handles: Vec<HandleNumber> = self.within(at, bytes).map(|mapping| mapping.handle).collect();
        for handle in handles {
            if let Some(handle) = self.handles.get_mut(&handle) {
                handle.is_reached_past = true;
            }
        }
    }

    /// True if others may access a handle's memory past its mappings.
    pub(super) fn is_reached_past(&self, handle: HandleNumber) -> bool {
        self.handles.get(&self.known(handle)).is_some_and(|handle| handle.is_reached_past)
    }

    /// All mappings of a handle, each with the access that GPUs have.
    pub(super) fn mappings_of(&self, handle: HandleNumber) -> Vec<Place> {
        let places = self.handles.get(&self.known(handle)).into_iter().flat_map(|handle| &handle.places);
        let mappings = places.filter_map(|at| self.by_address.get(at));
        mappings.map(|mapping| Place { at: mapping.at, access: mapping.access }).collect()
    }

    /// Records that a handle's memory has left its home for one piece. Returns that home.
    pub(super) fn leave_home(&mut self, handle: HandleNumber, piece: u64) -> Option<Home> {
        let (home, handle) = (self.home_of(handle)?, self.known(handle));
        let found = self.handles.get_mut(&handle)?;
        self.taken -= found.taken();
        found.memory = Memory::InOnePiece(piece);
        self.homes.remove(&home.at);
        Some(home)
    }

    /// Notes that others may import a handle's memory by this key. False if the handle has gone, or its memory has left its home.
    pub(super) fn on_exported(&mut self, handle: HandleNumber, key: Key) -> bool {
        let is_home = self.home_of(handle).is_some();
        let found = self.handles.get_mut(&handle).filter(|_| is_home);
        found.map(|handle| handle.shared = Shared::Exported(key)).is_some()
    }

    /// Has a handle's memory stay while anybody has a descriptor of it.
    pub(super) fn watch(&mut self, handle: HandleNumber, watch: OwnedFd) {
        if self.watched < MOST_WATCHED
            && let Some(handle) = self.handles.get_mut(&handle)
        {
            self.watched += usize::from(handle.watch.replace(watch).is_none());
        }
    }

    /// The descriptor that watches those of a handle.
    pub(super) fn watch_of(&self, handle: HandleNumber) -> Option<&OwnedFd> {
        self.handles.get(&handle)?.watch.as_ref()
    }

    /// The handles that the program no longer has, and whose memory stays for those that have descriptors of it.
    pub(super) fn left_to_others(&self) -> Vec<HandleNumber> {
        if self.watched == 0 {
            return Vec::new();
        }
        let is_left = |handle: &Handle| handle.is_unused() && handle.watch.is_some();
        self.handles.iter().filter(|(_, handle)| is_left(handle)).map(|(number, _)| *number).collect()
    }

    /// Ends such a handle: nobody has a descriptor any more. `None` if the program has it again.
    pub(super) fn end_left(&mut self, number: HandleNumber) -> Option<Gone> {
        let handle = self.handles.get_mut(&number).filter(|handle| handle.is_unused())?;
        self.watched -= usize::from(handle.watch.take().is_some());
        self.end_if_unused(number)
    }

    /// True if other processes have, or may have, a handle's memory.
    pub(super) fn is_shared(&self, handle: HandleNumber) -> bool {
        self.handles.get(&self.known(handle)).is_some_and(|handle| handle.shared != Shared::Not)
    }

    /// True if a handle was imported.
    pub(super) fn is_imported(&self, handle: HandleNumber) -> bool {
        self.others.contains_key(&handle)
            || self.handles.get(&handle).is_some_and(|handle| matches!(handle.shared, Shared::Imported(_)))
    }

    /// Makes one more handle of memory that is exported by this key, by this process or another one. `None` if this process has none of it.
    pub(super) fn import_again(&mut self, key: &Key) -> Option<HandleNumber> {
        let has = |shared| matches!(shared, Shared::Exported(one) | Shared::Imported(one) if one == *key);
        let (known, handle) = self.handles.iter_mut().find(|(_, handle)| has(handle.shared))?;
        handle.held += 1;
        let known = *known;
        let number = self.next_number();
        self.others.insert(number, (known, 1));
        Some(number)
    }

    /// The mapping that an address lies in.
    pub(super) fn find(&self, address: CUdeviceptr) -> Option<&Mapping> {
        let (_, mapping) = self.by_address.range(..=address).next_back()?;
        (address < mapping.end()).then_some(mapping)
    }

    /// Makes the host wait for copies and fills of the mapping at this address, or stop doing so. False if there is none.
    pub(super) fn set_synchronous(&mut self, address: CUdeviceptr, is_synchronous: bool) -> bool {
        let found = self.by_address.range_mut(..=address).next_back();
        let Some((_, mapping)) = found.filter(|(_, mapping)| address < mapping.end()) else { return false };
        mapping.is_synchronous = is_synchronous;
        true
    }

    /// The mappings that lie in a range, wholly or in part.
    pub(super) fn within(&self, at: CUdeviceptr, bytes: u64) -> impl Iterator<Item = &Mapping> {
        let before = self.find(at).filter(|mapping| mapping.at < at && bytes > 0);
        before.into_iter().chain(self.by_address.range(at..at.saturating_add(bytes)).map(|(_, mapping)| mapping))
    }

    /// True if a range has a part of a mapping, but not the rest.
    pub(super) fn is_cut(&self, at: CUdeviceptr, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        self.within(at, bytes).any(|mapping| mapping.at < at || mapping.end() > end)
    }

    /// Adds a hold of the program's on the handle that is mapped here.
    pub(super) fn retain(&mut self, address: CUdeviceptr) -> Option<HandleNumber> {
        let &Mapping { handle, named, .. } = self.find(address)?;
        self.handles.get_mut(&handle)?.held += 1;
        if named != handle {
            self.others.entry(named).or_insert((handle, 0)).1 += 1;
        }
        Some(named)
    }

    /// Removes a hold of the program's on a handle. Returns the memory that goes with the last one.
    pub(super) fn release(&mut self, handle: HandleNumber) -> Result<Option<Gone>, CUresult> {
        let (known, is_last) = match self.others.get_mut(&handle) {
            Some((known, held)) => {
                *held -= 1;
                (*known, *held == 0)
            }
            None => (handle, false),
        };
        if is_last {
            self.others.remove(&handle);
        }
        let handle = known;
        let found = self.handles.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        found.held = found.held.checked_sub(1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(self.end_if_unused(handle))
    }

    fn end_if_unused(&mut self, number: HandleNumber) -> Option<Gone> {
        let handle = self.handles.get(&number).filter(|handle| handle.is_unused() && handle.watch.is_none())?;
        let is_exported = matches!(handle.shared, Shared::Exported(_));
        let gone = Gone { number, memory: handle.memory, bytes: handle.bytes, is_exported };
        self.taken -= handle.taken();
        self.handles.remove(&number);
        if let Memory::AtHome(home) = gone.memory {
            self.homes.remove(&home);
        }
        Some(gone)
    }

    /// Begins to map a handle at an address: the handle stays until that is over. False if it is already being mapped there.
    pub(super) fn begin_map(&mut self, handle: HandleNumber, at: CUdeviceptr) -> bool {
        let handle = self.known(handle);
        self.handles.get_mut(&handle).is_some_and(|handle| handle.places.insert(at))
    }

    /// Undoes [`Self::begin_map`]. Returns the memory that goes with it.
    pub(super) fn not_mapped(&mut self, handle: HandleNumber, at: CUdeviceptr) -> Option<Gone> {
        let handle = self.known(handle);
        self.handles.get_mut(&handle)?.places.remove(&at);
        self.end_if_unused(handle)
    }

    /// Completes [`Self::begin_map`]. No GPU has access yet.
    pub(super) fn on_mapped(&mut self, named: HandleNumber, at: CUdeviceptr, number: u64) {
        let handle = self.known(named);
        let Some((_, bytes, properties)) = self.get(named) else { return };
        let (handle_types, rdma) = (properties.handle_types, properties.flags[RDMA] != 0);
        let (access, is_synchronous) = (Access::default(), false);
        let mapping = Mapping { at, bytes, handle, named, number, handle_types, rdma, access, is_synchronous };
        self.by_address.insert(at, mapping);
    }

    /// Begins to unmap all mappings in a range: from here on they are not in the books.
    pub(super) fn begin_unmap(&mut self, at: CUdeviceptr, bytes: u64) -> Vec<Mapping> {
        let end = at.saturating_add(bytes);
        self.by_address.extract_if(at..end, |_, mapping| mapping.end() <= end).map(|(_, mapping)| mapping).collect()
    }

    /// Undoes [`Self::begin_unmap`].
    pub(super) fn stay_mapped(&mut self, mappings: Vec<Mapping>) {
        self.by_address.extend(mappings.into_iter().map(|mapping| (mapping.at, mapping)));
    }

    /// Completes [`Self::begin_unmap`]. Returns the memory that goes with it.
    pub(super) fn on_unmapped(&mut self, mappings: &[Mapping]) -> Vec<Gone> {
        let mut gone = Vec::new();
        for Mapping { at, handle, .. } in mappings {
            if let Some(handle) = self.handles.get_mut(handle) {
                handle.places.remove(at);
            }
            gone.extend(self.end_if_unused(*handle));
        }
        gone
    }

    /// Sets the access that a GPU has to the mapping that begins here.
    pub(super) fn set_access(&mut self, at: CUdeviceptr, device: CUdevice, flags: c_int) {
        if let Some(mapping) = self.by_address.get_mut(&at) {
            mapping.access.set(device, flags);
        }
    }

    /// The places where an extent of a home is mapped.
    pub(super) fn places_of(&self, extent: CUdeviceptr) -> Vec<Place> {
        let Some((home, number)) = self.homes.range(..=extent).next_back() else { return Vec::new() };
        let offset = extent - home;
        if self.handles.get(number).is_none_or(|handle| offset >= handle.bytes) {
            // Its handle has gone.
            return Vec::new();
        }
        // A mapping that is being unmapped is no longer in the books.
        let mappings = self.mappings_of(*number).into_iter();
        mappings.map(|place| Place { at: place.at + offset, ..place }).collect()
    }

    /// The ranges of addresses that a program may use from any pointer into them: mappings side by side are one range. Each comes with the
    /// homes of the memory that is mapped there.
    pub(super) fn runs(&self) -> Vec<(Range<CUdeviceptr>, Vec<Range<CUdeviceptr>>)> {
        let mut runs: Vec<(Range<CUdeviceptr>, Vec<Range<CUdeviceptr>>)> = Vec::new();
        for mapping in self.by_address.values() {
            let Some(home) = self.home_of(mapping.handle) else { continue };
            let home = home.at..home.at + home.bytes;
            match runs.last_mut().filter(|(addresses, _)| addresses.end == mapping.at) {
                Some((addresses, homes)) => {
                    addresses.end = mapping.end();
                    homes.push(home);
                }
                None => runs.push((mapping.at..mapping.end(), vec![home])),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_contract::cuda::{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUmemLocation};

    const MIB: u64 = 1 << 20;

    fn properties() -> Properties {
        let location = CUmemLocation { kind: 1, id: 0 };
        Properties(CUmemAllocationProp {
            kind: 1,
            handle_types: 0,
            location,
            windows: core::ptr::null_mut(),
            flags: [0; 8],
        })
    }

    fn handle(mappings: &mut Mappings, bytes: u64) -> (HandleNumber, Home) {
        let at = mappings.take_home(bytes).expect("room");
        (mappings.add(at, bytes, properties()), Home { at, bytes })
    }

    fn gone(number: HandleNumber, home: Home) -> Gone {
        Gone { number, memory: Memory::AtHome(home.at), bytes: home.bytes, is_exported: false }
    }

    fn map(mappings: &mut Mappings, handle: HandleNumber, at: u64) {
        assert!(mappings.begin_map(handle, at));
        mappings.on_mapped(handle, at, 1);
    }

    #[test]
    fn a_handle_that_is_being_mapped_stays_until_that_is_over() {
        let mut mappings = Mappings::of(0);
        let (first, home) = handle(&mut mappings, 2 * MIB);
        assert!(mappings.begin_map(first, 64 * MIB) && !mappings.begin_map(first, 64 * MIB));
        assert_eq!(mappings.places_of(home.at), [], "it is not there yet");
        assert_eq!(mappings.release(first), Ok(None));
        assert_eq!(mappings.not_mapped(first, 64 * MIB), Some(gone(first, home)));
    }

    #[test]
    fn memory_stays_while_the_program_holds_its_handle_or_has_it_mapped() {
        let mut mappings = Mappings::of(0);
        let (first, home) = handle(&mut mappings, 4 * MIB);
        assert!(is_handle(first) && is_home(home.at) && mappings.taken() == 4 * MIB);
        map(&mut mappings, first, 64 * MIB);
        map(&mut mappings, first, 128 * MIB);
        assert_eq!(mappings.release(first), Ok(None));
        assert_eq!(mappings.release(first), Err(CUDA_ERROR_INVALID_VALUE), "nobody holds it any more");
        assert_eq!(mappings.retain(129 * MIB), Some(first));
        assert_eq!(mappings.release(first), Ok(None));
        let unmapped = mappings.begin_unmap(64 * MIB, 4 * MIB);
        assert_eq!(mappings.on_unmapped(&unmapped), []);
        let unmapped = mappings.begin_unmap(128 * MIB, 4 * MIB);
        assert_eq!(mappings.on_unmapped(&unmapped), [gone(first, home)]);
        assert_eq!((mappings.taken(), mappings.home_of(first)), (0, None));
        assert_eq!(mappings.release(first), Err(CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn a_part_of_a_handle_has_a_place_in_each_of_its_mappings() {
        let mut mappings = Mappings::of(0);
        let (first, home) = handle(&mut mappings, 8 * MIB);
        let (_, other) = handle(&mut mappings, 2 * MIB);
        assert!(other.at > home.at + home.bytes, "homes are no neighbours");
        assert_eq!(mappings.places_of(home.at), []);
        map(&mut mappings, first, 64 * MIB);
        map(&mut mappings, first, 32 * MIB);
        mappings.set_access(64 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        let places = mappings.places_of(home.at + 6 * MIB);
        assert_eq!(
            places,
            [Place { at: 38 * MIB, access: Access::default() }, Place { at: 70 * MIB, access: Access::of(1) }]
        );
        assert_eq!(mappings.places_of(other.at), []);
        assert_eq!(mappings.places_of(home.at + home.bytes), [], "behind its end");
        let unmapping = mappings.begin_unmap(32 * MIB, 8 * MIB);
        assert_eq!(mappings.places_of(home.at).len(), 1);
        mappings.stay_mapped(unmapping);
        assert_eq!(mappings.places_of(home.at).len(), 2, "it could not be unmapped");
    }

    #[test]
    fn what_was_exported_has_no_home_and_is_waited_for_by_nobody() {
        let mut mappings = Mappings::of(0);
        let (first, home) = handle(&mut mappings, 4 * MIB);
        map(&mut mappings, first, 64 * MIB);
        assert_eq!(mappings.leave_home(first, 77), Some(home));
        assert_eq!(mappings.leave_home(first, 78), None);
        assert_eq!((mappings.taken(), mappings.places_of(home.at).len(), mappings.runs().len()), (0, 0, 0));
        assert_eq!(mappings.mappings_of(first).len(), 1);
        let unmapped = mappings.begin_unmap(64 * MIB, 4 * MIB);
        assert_eq!(mappings.on_unmapped(&unmapped), []);
        let gone = Gone { number: first, memory: Memory::InOnePiece(77), bytes: 4 * MIB, is_exported: false };
        assert_eq!(mappings.release(first), Ok(Some(gone)));
    }

    #[test]
    fn shared_memory_is_found_by_its_key_and_taken_by_all_that_have_it() {
        let mut mappings = Mappings::of(0);
        let (own, home) = handle(&mut mappings, 4 * MIB);
        let at = mappings.take_home(2 * MIB).expect("room");
        let others = mappings.add_imported(Home { at, bytes: 2 * MIB }, properties(), [2; 16]);
        assert_eq!(mappings.import_again(&[1; 16]), None);
        assert!(mappings.on_exported(own, [1; 16]) && !mappings.on_exported(own + 7, [3; 16]));
        let again = [[1; 16], [2; 16]].map(|key| mappings.import_again(&key).expect("it is known"));
        assert_eq!(
            (again.map(|number| mappings.home_of(number)), mappings.taken()),
            ([own, others].map(|number| mappings.home_of(number)), 6 * MIB)
        );
        assert!(mappings.is_imported(others) && !mappings.is_imported(own) && mappings.is_shared(own));
        map(&mut mappings, again[0], 64 * MIB);
        assert_eq!((mappings.mappings_of(own).len(), mappings.retain(64 * MIB)), (1, Some(again[0])));
        assert_eq!(mappings.release(again[0]), Ok(None), "it was retained");
        let unmapped = mappings.begin_unmap(64 * MIB, 4 * MIB);
        assert_eq!(mappings.on_unmapped(&unmapped), []);
        for number in again {
            assert!(mappings.is_imported(number));
            assert_eq!(mappings.release(number), Ok(None));
            assert_eq!(mappings.release(number), Err(CUDA_ERROR_INVALID_VALUE), "that was all of it");
        }
        assert_eq!(mappings.release(own), Ok(Some(Gone { is_exported: true, ..gone(own, home) })));
        assert_eq!(mappings.release(others), Ok(Some(gone(others, Home { at, bytes: 2 * MIB }))));
        assert_eq!((mappings.taken(), mappings.import_again(&[1; 16])), (0, None));
    }

    #[test]
    fn memory_stays_for_those_that_have_a_descriptor() {
        let watch = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
        let mut mappings = Mappings::of(0);
        let (first, home) = handle(&mut mappings, 2 * MIB);
        assert!(mappings.on_exported(first, [1; 16]));
        mappings.watch(first, watch());
        assert_eq!((mappings.left_to_others(), mappings.release(first)), (vec![], Ok(None)));
        assert_eq!((mappings.left_to_others(), mappings.taken()), (vec![first], 2 * MIB));
        let again = mappings.import_again(&[1; 16]).expect("one of them is this process");
        assert_eq!((mappings.left_to_others(), mappings.end_left(first)), (vec![], None));
        assert_eq!(mappings.release(again), Ok(None));
        assert_eq!(mappings.end_left(first), Some(Gone { is_exported: true, ..gone(first, home) }));
        assert_eq!((mappings.left_to_others(), mappings.taken(), mappings.watched), (vec![], 0, 0));
    }

    #[test]
    fn a_range_cuts_what_it_has_in_part() {
        let mut mappings = Mappings::of(0);
        let (first, _) = handle(&mut mappings, 4 * MIB);
        let (second, _) = handle(&mut mappings, 4 * MIB);
        map(&mut mappings, first, 64 * MIB);
        map(&mut mappings, second, 68 * MIB);
        for (at, bytes, is_cut) in [
            (64, 8, false),
            (64, 4, false),
            (64, 2, true),
            (66, 6, true),
            (60, 12, false),
            (60, 6, true),
            (72, 8, false),
        ] {
            assert_eq!(mappings.is_cut(at * MIB, bytes * MIB), is_cut, "{bytes} MiB at {at} MiB");
        }
        assert_eq!(mappings.begin_unmap(60 * MIB, 10 * MIB).len(), 1);
    }

    #[test]
    fn mappings_side_by_side_are_waited_for_together() {
        let mut mappings = Mappings::of(0);
        let (first, home) = handle(&mut mappings, 4 * MIB);
        let (second, other) = handle(&mut mappings, 2 * MIB);
        map(&mut mappings, second, 64 * MIB);
        map(&mut mappings, first, 66 * MIB);
        map(&mut mappings, first, 80 * MIB);
        let range = |home: Home| home.at..home.at + home.bytes;
        assert_eq!(
            mappings.runs(),
            [(64 * MIB..70 * MIB, vec![range(other), range(home)]), (80 * MIB..84 * MIB, vec![range(home)])]
        );
    }
}
