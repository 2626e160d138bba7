//! The driver of this process: made at `cuInit`, and everything else hangs from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::engine::Engines;
use crate::errors::{Outcome, Status};
use crate::exec::common::Common;
use crate::exec::context::Context;
use crate::exec::event::Event;
use crate::exec::outlive;
use crate::exec::stream::Stream;
use crate::gpu_file::Gpu;
use crate::graph::Graphs;
use crate::graph::exec::GraphExec;
use crate::graph::user_object::UserObject;
use crate::memory::bus::Bus;
use crate::memory::phys::Phys;
use crate::memory::space::Space;
use crate::memory::team::Team;
use crate::module::Code;
use crate::module::link::Link;
use crate::pool::pools::Pools;
use crate::registry::Registry;
use crate::settings::{Pausing, Settings};
use crate::visible;

/// All that the driver knows.
pub(crate) struct Driver {
    /// By their ordinals; there is at least one.
    pub(crate) devices: Vec<&'static Device>,
    /// The machine's GPUs, also those that the program does not see: it may import their memory.
    gpus: Vec<&'static Gpu>,
    pub(crate) pausing: Pausing,
    /// How long the pages of a GiB take to be pinned.
    pub(crate) pinning: Duration,
    pub(crate) common: &'static Common,
    /// These two as in `common`.
    pub(crate) space: &'static Space,
    pub(crate) pools: &'static Pools,
    pub(crate) bus: Bus,
    pub(crate) contexts: Registry<Context>,
    pub(crate) streams: Registry<Stream>,
    pub(crate) events: Registry<Event>,
    pub(crate) handles: Registry<Handle>,
    pub(crate) code: Code,
    pub(crate) links: Registry<Link>,
    pub(crate) graphs: Graphs,
    pub(crate) execs: Registry<GraphExec>,
    pub(crate) user_objects: Registry<UserObject>,
}

/// A physical handle of the program's. Its number is good while it is held or mapped.
pub(crate) struct Handle {
    pub(crate) phys: Arc<Phys>,
    /// By its properties: it can be exported as a descriptor; it was to be compressed, and open to devices on the bus.
    pub(crate) exportable: bool,
    pub(crate) flags: [u8; 2],
    /// If it is no memory, but a multicast object.
    pub(crate) team: Option<Team>,
    pub(crate) uses: Mutex<Uses>,
}

/// The uses that keep a handle's number.
pub(crate) struct Uses {
    /// One for making or importing it and one for each retain, less one for each release.
    pub(crate) held: u32,
    /// Addresses that it is mapped at.
    pub(crate) mapped: u32,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
/// True if the driver was started in this very process: the system wipes this page in every copy of it, however that is made.
static STARTED_HERE: Wiped = Wiped(AtomicBool::new(false));

#[repr(C, align(4096))]
struct Wiped(AtomicBool);

/// True if this is a copy of a process that has started the driver.
fn is_copy() -> bool {
    DRIVER.get().is_some() && !STARTED_HERE.0.load(Ordering::Relaxed)
}

/// The driver, once `cuInit` was called in this very process.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    if is_copy() {
        return Err(Status::NOT_INITIALIZED);
    }
    DRIVER.get().ok_or(Status::NOT_INITIALIZED)
}

/// `cuInit`: makes the driver, once.
pub(crate) fn start() -> Outcome {
    if is_copy() {
        // The parent's driver cannot be used in a copy of its process, nor can the copy have its own.
        return Err(Status::NOT_INITIALIZED);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if driver().is_ok() {
        return Ok(());
    }
    let settings = Settings::from_environment().map_err(|wrong| {
        eprintln!("{wrong}");
        Status::INVALID_VALUE
    })?;
    if let Some(error) = settings.init_error.and_then(Status::from_code) {
        return Err(error);
    }
    let open = |number| {
        let gpu = Gpu::open(settings.file_of(number).as_deref(), settings.memory, settings.slice);
        gpu.map(|gpu| gpu.of_machine(number).with_new_memory(settings.new_memory))
    };
    let gpus: Vec<Gpu> = (0..settings.gpus).map(open).collect::<Result<_, _>>().map_err(|error| {
        eprintln!("simcuda: the GPU cannot be opened: {error}");
        Status::NO_DEVICE
    })?;
    let uuids: Vec<_> = gpus.iter().map(Gpu::uuid).collect();
    let seen = visible::choose(settings.visible.as_deref(), &uuids);
    if seen.is_empty() {
        return Err(Status::NO_DEVICE);
    }
    if let Some(time) = settings.copies_outlive {
        outlive::begin(time).map_err(|error| {
            eprintln!("simcuda: SIMCUDA_COPIES_OUTLIVE_MS does not work here: {error}");
            Status::OPERATING_SYSTEM
        })?;
    }
    watch_for_copies();
    let fresh = DRIVER.set(Driver::new(gpus, &seen, &settings));
    debug_assert!(fresh.is_ok(), "only one thread starts the driver");
    Ok(())
}

#[allow(unsafe_code)]
fn watch_for_copies() {
    // SAFETY: a page of our own, with nothing else in it.
    unsafe { libc::madvise((&raw const STARTED_HERE).cast_mut().cast(), size_of::<Wiped>(), libc::MADV_WIPEONFORK) };
    STARTED_HERE.0.store(true, Ordering::Relaxed);
}

impl Driver {
    /// The driver of a machine with these GPUs, of which the program sees some, in its order.
    fn new(mut gpus: Vec<Gpu>, seen: &[usize], settings: &Settings) -> Driver {
        // Those that it does not see have numbers behind the others'.
        gpus.sort_by_key(|gpu| seen.iter().position(|number| *number == gpu.number_in_machine()).unwrap_or(usize::MAX));
        let keep = |(ordinal, gpu): (usize, Gpu)| -> &'static Gpu { Box::leak(Box::new(gpu.at(ordinal))) };
        let gpus: Vec<_> = gpus.into_iter().enumerate().map(keep).collect();
        let device = |gpu: &&'static Gpu| -> &'static Device {
            Box::leak(Box::new(Device { gpu, engines: Engines::new(gpu, settings), primary: Mutex::default() }))
        };
        let devices: Vec<_> = gpus[..seen.len()].iter().map(device).collect();
        let common: &'static Common = Box::leak(Box::new(Common::new(&gpus, 14, settings)));
        Driver {
            common,
            space: &common.space,
            pools: &common.pools,
            devices,
            gpus,
            pausing: settings.pausing,
            pinning: settings.pinning.unwrap_or_default(),
            bus: Bus::default(),
            contexts: Registry::new(1),
            streams: Registry::new(2),
            events: Registry::new(3),
            handles: Registry::new(4),
            code: Code::new([5, 6, 7, 8]),
            links: Registry::new(9),
            graphs: Graphs::new([10, 11]),
            execs: Registry::new(12),
            user_objects: Registry::new(13),
        }
    }

    /// The device of that ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<&'static Device> {
        let device = usize::try_from(ordinal).ok().and_then(|ordinal| self.devices.get(ordinal));
        device.copied().ok_or(Status::INVALID_DEVICE)
    }

    /// The machine's GPUs, also those that the program does not see.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &'static Gpu> {
        self.gpus.iter().copied()
    }

    /// Waits for all work of a context, by its id, and keeps others out of it meanwhile. One that is gone has none.
    pub(crate) fn synchronize_alone(&self, id: u64) -> Outcome {
        self.contexts.find(|context| context.id == id).map_or(Ok(()), |(_, context)| context.synchronize_alone())
    }

    /// Ends a context, and all that lives in it: its memory, streams, events, modules.
    pub(crate) fn end(&self, context: &Context) {
        context.end();
        self.contexts.remove_if(|other| {
            // Its memory goes too, and its number is never another's.
            other.peers.remove(context.id);
            other.id == context.id
        });
        self.streams.remove_if(|stream| stream.context_id == context.id);
        self.events.remove_if(|event| event.context_id == context.id);
        self.code.forget_context(context.id);
        let owned = self.space.look().allocations.of_context(context.id);
        for start in owned {
            // Only this call ends a context, so only the program itself may have freed it meanwhile.
            let _ = self.space.free(start);
        }
        self.space.change().hosts.retain(|_, range| range.context != context.id);
    }
}
