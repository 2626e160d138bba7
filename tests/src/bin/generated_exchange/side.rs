//! One of the two processes: does what it is told.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use baton_tests::generated::exchange::{Act, STREAMS, Way};
use baton_tests::generated::script::Id;

use baton_tests::driver::{Access, Checked, DESCRIPTOR, Data, Handle, KERNELS, PoolProperties, Properties};

/// The objects that a step hands out, for the next one.
#[derive(Default)]
pub(crate) struct Passed {
    pub(crate) data: Data,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// A call that failed, and how.
pub(crate) type Done<T = ()> = Result<T, String>;

macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $driver.$name($($argument),*).map_err(|failure| failure.0)
    };
}

/// Memory of this process's, or opened by it.
struct Mem {
    at: u64,
    bytes: u32,
    way: Way,
    /// By which it was opened.
    data: Data,
}

/// One process.
pub(crate) struct Side {
    driver: Checked,
    library: Handle,
    streams: Vec<Handle>,
    mems: HashMap<Id, Mem>,
    /// The handles of memory of its own that can be exported.
    handles: HashMap<Id, u64>,
    events: HashMap<Id, Handle>,
    /// Its own pool, and the other process's.
    pool: Handle,
    imported: Handle,
    pools: Vec<Handle>,
    rests: bool,
}

const NON_BLOCKING: u32 = 1;
/// Between processes, without times.
const SHARED_EVENT: u32 = 6;
const LAZY: u32 = 1;

impl Side {
    pub(crate) fn start(rests: bool) -> Done<Self> {
        let driver = Checked::open().map_err(|failure| failure.0)?;
        let (mut device, mut context, mut library) = (0, 0, 0);
        call!(driver, cuInit(0))?;
        call!(driver, cuDeviceGet(&mut device, 0))?;
        call!(driver, cuDevicePrimaryCtxRetain(&mut context, device))?;
        call!(driver, cuCtxSetCurrent(context))?;
        call!(driver, cuLibraryLoadData(&mut library, KERNELS.as_ptr(), 0, 0, 0, 0, 0, 0))?;
        let mut streams = vec![0; STREAMS.into()];
        for stream in &mut streams {
            call!(driver, cuStreamCreate(stream, NON_BLOCKING))?;
        }
        let (mems, handles, events) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Self { driver, library, streams, mems, handles, events, pool: 0, imported: 0, pools: Vec::new(), rests })
    }

    /// Does a step with the handles of the one before. Returns the step's own handles, and the text to print.
    pub(crate) fn act(&mut self, act: &Act, passed: Passed) -> Done<(Passed, String)> {
        let (mut out, mut said) = (Passed::default(), String::new());
        match *act {
            Act::Alloc { mem, way, bytes } => self.alloc(mem, way, bytes)?,
            Act::Export { mem, inside } => self.export(mem, inside, &mut out)?,
            Act::Open { mem, way, bytes } => self.open(mem, way, bytes, &passed)?,
            Act::OpenAgain { mem } => {
                let (Mem { at, data, .. }, mut again) = (&self.mems[&mem], 0);
                call!(self.driver, cuIpcOpenMemHandle_v2(&mut again, *data, LAZY))?;
                call!(self.driver, cuIpcCloseMemHandle(again))?;
                let _ = write!(said, "again {mem} {}", again == *at);
            }
            Act::Misuse { mem } => {
                let (at, stream, mut data) = (self.mems[&mem].at, self.streams[0], [0; 8]);
                let driver = self.driver.unchecked();
                let answers = [
                    driver.cuMemFree_v2(at),
                    driver.cuMemFreeAsync(false, at, stream),
                    driver.cuIpcGetMemHandle(&mut data, at),
                    driver.cuIpcCloseMemHandle(at + 4),
                ];
                let _ = write!(said, "misuse {mem} {answers:?}");
            }
            Act::Close { mem } => {
                let one = self.mems.remove(&mem).ok_or("nothing is open")?;
                match one.way {
                    Way::Handle => call!(self.driver, cuIpcCloseMemHandle(one.at))?,
                    _ => self.give_up(&one)?,
                }
            }
            Act::Free { mem } => {
                let one = self.mems.remove(&mem).ok_or("nothing was allocated")?;
                if let Some(handle) = self.handles.remove(&mem) {
                    call!(self.driver, cuMemRelease(handle))?;
                }
                self.give_up(&one)?;
            }
            Act::Write { mem, seed, stream } => {
                let Mem { at, bytes, .. } = self.mems[&mem];
                self.launch(c"fill_hash", &[at, seed.into(), (bytes / 4).into()], stream)?;
            }
            Act::Add { to, from, stream } => {
                let (to, from) = (&self.mems[&to], &self.mems[&from]);
                let words = (to.bytes.min(from.bytes) / 4).into();
                self.launch(c"axpy", &[to.at, from.at, 0.5_f32.to_bits().into(), words], stream)?;
            }
            Act::Read { mem, stream } => {
                let Mem { at, bytes, .. } = self.mems[&mem];
                // The words have to come from the device, not be there by chance.
                let mut words = vec![0x5555_5555_u32; bytes as usize / 4];
                let to = words.as_mut_ptr().expose_provenance();
                call!(self.driver, cuMemcpyDtoHAsync_v2(to, at, bytes as usize, self.stream(stream)))?;
                call!(self.driver, cuStreamSynchronize(self.stream(stream)))?;
                let _ = write!(said, "memory {mem} {:016x}", digest(&words));
            }
            Act::Range { mem } => {
                let (at, mut base, mut bytes) = (self.mems[&mem].at, 0, 0);
                call!(self.driver, cuMemGetAddressRange_v2(&mut base, &mut bytes, at + 4))?;
                let _ = write!(said, "range {mem} {} {bytes}", at - base);
            }
            Act::PoolCreate => {
                call!(self.driver, cuMemPoolCreate(&mut self.pool, &PoolProperties::exportable(true)))?;
                self.pools.push(self.pool);
            }
            Act::PoolExport => {
                let mut descriptor = -1;
                let kind = DESCRIPTOR;
                call!(self.driver, cuMemPoolExportToShareableHandle(&mut descriptor, self.pool, kind, 0))?;
                out.descriptor = Some(owned(descriptor));
            }
            Act::PoolImport => {
                let shared = number(&passed)?;
                call!(self.driver, cuMemPoolImportFromShareableHandle(&mut self.imported, shared, DESCRIPTOR, 0))?;
                self.pools.push(self.imported);
            }
            Act::PoolDestroy => {
                let pool = self.pools.pop().ok_or("there is no pool")?;
                call!(self.driver, cuMemPoolDestroy(pool))?;
            }
            Act::EventCreate { event } => {
                let mut made = 0;
                call!(self.driver, cuEventCreate(&mut made, SHARED_EVENT))?;
                self.events.insert(event, made);
            }
            Act::EventExport { event } => call!(self.driver, cuIpcGetEventHandle(&mut out.data, self.events[&event]))?,
            Act::EventOpen { event } => {
                let mut opened = 0;
                call!(self.driver, cuIpcOpenEventHandle(&mut opened, passed.data))?;
                self.events.insert(event, opened);
            }
            Act::EventRecord { event, stream } => {
                call!(self.driver, cuEventRecord(self.events[&event], self.stream(stream)))?;
            }
            Act::EventWait { event, stream } => {
                call!(self.driver, cuStreamWaitEvent(self.stream(stream), self.events[&event], 0))?;
            }
            Act::EventSynchronize { event } => call!(self.driver, cuEventSynchronize(self.events[&event]))?,
            Act::EventDestroy { event } => call!(self.driver, cuEventDestroy_v2(self.events[&event]))?,
            Act::Synchronize { stream } => call!(self.driver, cuStreamSynchronize(self.stream(stream)))?,
            Act::Rest => self.rest(),
        }
        Ok((out, said))
    }

    fn stream(&self, stream: u8) -> Handle {
        self.streams[usize::from(stream)]
    }

    fn launch(&self, name: &CStr, words: &[u64], stream: u8) -> Done {
        let mut function = 0;
        call!(self.driver, cuLibraryGetKernel(&mut function, self.library, name.as_ptr()))?;
        let parameters: Vec<usize> = words.iter().map(|word| std::ptr::from_ref(word).expose_provenance()).collect();
        let (stream, list) = (self.stream(stream), parameters.as_ptr());
        call!(self.driver, cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, list, 0))
    }

    fn alloc(&mut self, mem: Id, way: Way, bytes: u32) -> Done {
        let (driver, mut at, size) = (&self.driver, 0, bytes as usize);
        match way {
            Way::Handle => call!(driver, cuMemAlloc_v2(&mut at, size))?,
            Way::Descriptor => {
                let mut handle = 0;
                call!(driver, cuMemCreate(&mut handle, size, &Properties::exportable(true), 0))?;
                self.handles.insert(mem, handle);
                at = self.map(handle, size)?;
            }
            Way::Pool => {
                call!(driver, cuMemAllocFromPoolAsync(&mut at, size, self.pool, self.streams[0]))?;
                // The pointer is there in streams that do not come after this one too.
                call!(driver, cuStreamSynchronize(self.streams[0]))?;
            }
        }
        self.mems.insert(mem, Mem { at, bytes, way, data: [0; 8] });
        Ok(())
    }

    fn map(&self, handle: u64, bytes: usize) -> Done<u64> {
        let mut at = 0;
        call!(self.driver, cuMemAddressReserve(&mut at, bytes, 0, 0, 0))?;
        call!(self.driver, cuMemMap(at, bytes, 0, handle, 0))?;
        call!(self.driver, cuMemSetAccess(at, bytes, &Access::FULL, 1))?;
        Ok(at)
    }

    fn export(&self, mem: Id, inside: u32, out: &mut Passed) -> Done {
        let (driver, Mem { at, way, .. }) = (&self.driver, &self.mems[&mem]);
        match way {
            Way::Handle => call!(driver, cuIpcGetMemHandle(&mut out.data, at + u64::from(inside))),
            Way::Descriptor => {
                let mut descriptor = -1;
                let handle = self.handles[&mem];
                call!(driver, cuMemExportToShareableHandle(&mut descriptor, handle, DESCRIPTOR, 0))?;
                out.descriptor = Some(owned(descriptor));
                Ok(())
            }
            Way::Pool => call!(driver, cuMemPoolExportPointer(&mut out.data, *at)),
        }
    }

    fn open(&mut self, mem: Id, way: Way, bytes: u32, passed: &Passed) -> Done {
        let (driver, data, mut at) = (&self.driver, passed.data, 0);
        match way {
            Way::Handle => call!(driver, cuIpcOpenMemHandle_v2(&mut at, data, LAZY))?,
            Way::Descriptor => {
                let mut handle = 0;
                call!(driver, cuMemImportFromShareableHandle(&mut handle, number(passed)?, DESCRIPTOR))?;
                at = self.map(handle, bytes as usize)?;
                call!(driver, cuMemRelease(handle))?;
            }
            Way::Pool => call!(driver, cuMemPoolImportPointer(&mut at, self.imported, &data))?,
        }
        self.mems.insert(mem, Mem { at, bytes, way, data });
        Ok(())
    }

    fn give_up(&self, one: &Mem) -> Done {
        let (driver, bytes) = (&self.driver, one.bytes as usize);
        match one.way {
            Way::Handle => call!(driver, cuMemFree_v2(one.at)),
            Way::Descriptor => {
                call!(driver, cuMemUnmap(one.at, bytes))?;
                call!(driver, cuMemAddressFree(one.at, bytes))
            }
            Way::Pool => {
                call!(driver, cuMemFreeAsync(one.at, self.streams[0]))?;
                call!(driver, cuStreamSynchronize(self.streams[0]))
            }
        }
    }

    fn rest(&self) {
        if self.rests {
            println!("rest");
            let _ = std::io::stdout().flush();
            let _ = std::io::stdin().read_line(&mut String::new());
        }
    }
}

/// A descriptor that the driver has made for us.
fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the driver gave it to the program, which owns it from then on.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// A descriptor in the place of a pointer.
fn number(passed: &Passed) -> Done<usize> {
    Ok(passed.descriptor.as_ref().ok_or("no descriptor came")?.as_raw_fd() as usize)
}

/// A digest of words.
fn digest(words: &[u32]) -> u64 {
    let mut digest = 0xCBF2_9CE4_8422_2325_u64;
    for word in words {
        digest = (digest ^ u64::from(*word)).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        digest ^= digest >> 29;
    }
    digest
}
