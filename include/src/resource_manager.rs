//! The driver's resource manager: the part that takes a process's channels off the GPU and puts them back.
//!
//! NVIDIA's driver keeps a process's parts of its GPUs as **objects** of the resource manager: a client owns devices, a device has a
//! subdevice and **channel groups**, a group has **channels**, through which all work goes to an engine. They are made, changed and
//! freed by `ioctl` on `/dev/nvidiactl`. Any process that has that descriptor open may do so, unprivileged, even if another process
//! gave it the descriptor. All structures, numbers and names are those of the headers of NVIDIA's open kernel modules
//! (`src/common/sdk/nvidia/inc/`, MIT), where each is named below; the effects of the calls were measured (driver 580, H200).

mod lists;

use core::ffi::{c_int, c_ulong, c_void};
use core::mem::{offset_of, size_of};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use lists::MAX_CHANNELS;

/// The calls' numbers (`nv_escape.h`): in the low byte of the request, below the type `'F'`.
pub const FREE: u8 = 0x29;
/// A control call on an object.
pub const CONTROL: u8 = 0x2a;
/// A new object.
pub const ALLOC: u8 = 0x2b;
/// The type of all requests (`nv-ioctl-numbers.h`).
pub const MAGIC: u8 = b'F';

/// The first request of a process that opens the device for unified memory: the whole request (`UVM_INITIALIZE`, `uvm_linux_ioctl.h`).
pub const UVM_INITIALIZE: u32 = 0x3000_0001;
/// The second request of such a process (`UVM_MM_INITIALIZE`, `uvm_ioctl.h`).
pub const UVM_MM_INITIALIZE: u32 = 75;

/// Classes of objects: a device (`cl0080.h`).
pub const DEVICE: u32 = 0x0080;
/// A subdevice (`cl2080.h`).
pub const SUBDEVICE: u32 = 0x2080;
/// A channel group (`cla06c.h`).
pub const CHANNEL_GROUP: u32 = 0xa06c;
/// The engine of graphics and compute (`NV2080_ENGINE_TYPE_GRAPHICS` in `cl2080_notification.h`).
pub const GRAPHICS: u32 = 1;

/// `NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS` (`ctrl2080fifo.h`).
const DISABLE_CHANNELS: u32 = 0x2080_110b;
/// `NV2080_CTRL_CMD_GPU_GET_GID_INFO` (`ctrl2080gpu.h`).
const GET_GID_INFO: u32 = 0x2080_014a;
/// `NVA06C_CTRL_CMD_SET_TIMESLICE` (`ctrla06c/ctrla06cgpfifo.h`).
const SET_TIMESLICE: u32 = 0xa06c_0103;

/// `NV_ERR_INVALID_CHANNEL` (`nvstatuscodes.h`).
const INVALID_CHANNEL: u32 = 0x21;
/// `NV_ERR_OBJECT_NOT_FOUND` (`nvstatuscodes.h`).
const OBJECT_NOT_FOUND: u32 = 0x57;

/// True if a class is a channel: `KEPLER_CHANNEL_GPFIFO_A` is 0xa06f, and since Volta each generation has its own, 0xc36f and up, which
/// all end in 6f (`clc36f.h`, `clc86f.h`, …).
pub fn is_channel(class: u32) -> bool {
    class & 0xff == 0x6f && class >= 0xc36f
}

/// A request for a new object, and its answer: `NVOS64_PARAMETERS`, or the older `NVOS21_PARAMETERS`, which lacks the rights and the
/// flags (`nvos.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The client that owns it; zero for a new client.
    pub client: u32,
    /// The object that it belongs to.
    pub parent: u32,
    /// Its own handle.
    pub object: u32,
    /// Its class.
    pub class: u32,
    /// Parameters of its class; null or readable as the class says.
    pub parameters: *const c_void,
}

/// A freed object, with all that belongs to it: `NVOS00_PARAMETERS` (`nvos.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The client that owns it.
    pub client: u32,
    /// Its handle.
    pub object: u32,
}

#[repr(C)]
struct Nvos21 {
    root: u32,
    parent: u32,
    object: u32,
    class: u32,
    parameters: *const c_void,
    size: u32,
    status: u32,
}

#[repr(C)]
struct Nvos64 {
    root: u32,
    parent: u32,
    object: u32,
    class: u32,
    parameters: *const c_void,
    rights: *const c_void,
    size: u32,
    flags: u32,
    status: u32,
}

#[repr(C)]
struct Nvos00 {
    root: u32,
    parent: u32,
    object: u32,
    status: u32,
}

#[repr(C)]
struct Nvos54 {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: *mut c_void,
    size: u32,
    status: u32,
}

#[repr(C)]
struct DisableChannels {
    disable: u8,
    count: u32,
    only_scheduling: u8,
    rewind: u8,
    event: u64,
    clients: [u32; MAX_CHANNELS],
    channels: [u32; MAX_CHANNELS],
}

#[repr(C)]
struct GidInfo {
    index: u32,
    flags: u32,
    length: u32,
    data: [u8; 256],
}

const _: () = {
    assert!(size_of::<Nvos21>() == 32 && size_of::<Nvos64>() == 48 && size_of::<Nvos54>() == 32);
    assert!(size_of::<DisableChannels>() == 536 && offset_of!(DisableChannels, clients) == 24);
    assert!(size_of::<GidInfo>() == 268);
};

/// The time slice that the driver gives each process, in microseconds (measured).
pub const USUAL_TIMESLICE: u64 = 2_000;

/// The objects of a process that can be taken off one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// The client.
    pub client: u32,
    /// The GPU's subdevice.
    pub subdevice: u32,
    /// Its channels, of all engines.
    pub channels: Vec<u32>,
    /// Those channels that compute.
    pub compute: Vec<u32>,
    /// Its channel groups of graphics and compute.
    pub groups: Vec<u32>,
}

/// The new state of channels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disable {
    /// They are enabled.
    No,
    /// They are off the GPU when the call returns.
    Preempt,
    /// They get no more time.
    OnlyScheduling,
}

/// The reason why a call failed.
#[derive(Debug)]
pub enum Error {
    /// The system refused the call.
    System(io::Error),
    /// The resource manager's answer (`nvstatuscodes.h`).
    Status(u32),
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::System(error) => baton_messages::control_device_failed(error).fmt(f),
            Self::Status(status) => baton_messages::resource_manager_answers(format_args!("{status:#x}")).fmt(f),
        }
    }
}

impl core::error::Error for Error {}

impl Objects {
    /// Takes all channels off the GPU, in the middle of their work. When it returns, none of them runs (measured: 0.5 to 1.5 ms). The
    /// driver counts: a process that is paused twice has to be resumed twice (measured).
    ///
    /// # Errors
    ///
    /// If the driver refuses; then none of them is paused by this.
    pub fn pause(&self, control: BorrowedFd<'_>) -> Result<(), Error> {
        self.disable_all(control, &self.channels, Disable::Preempt)
    }

    /// Gives the compute work no more time on the GPU (measured: 0.3 ms). Running work goes on until another process has work, or its
    /// time slice ends. Other processes' running work does not notice, whereas [`Objects::pause`] makes it stop for a moment (measured:
    /// 0.15 ms).
    ///
    /// # Errors
    ///
    /// As [`Objects::pause`].
    pub fn deschedule(&self, control: BorrowedFd<'_>) -> Result<(), Error> {
        self.disable_all(control, &self.compute, Disable::OnlyScheduling)
    }

    /// Ends [`Objects::deschedule`] (measured: 0.3 ms). The GPU chooses anew only when work of some process comes or ends: without any
    /// work of another process after this, the descheduled work never goes on (measured).
    ///
    /// # Errors
    ///
    /// As [`Objects::resume`].
    pub fn reschedule(&self, control: BorrowedFd<'_>) -> Result<(), Error> {
        self.enable_all(control, &self.compute)
    }

    /// Lets all channels go on (measured: 0.3 to 0.5 ms). Channels that are not paused are unaffected.
    ///
    /// # Errors
    ///
    /// If the driver refuses; some channels may then go on and others not.
    pub fn resume(&self, control: BorrowedFd<'_>) -> Result<(), Error> {
        self.enable_all(control, &self.channels)
    }

    /// Lets all channels go on, if they were paused, descheduled, or neither.
    ///
    /// # Errors
    ///
    /// As [`Objects::resume`].
    pub fn restore(&self, control: BorrowedFd<'_>, coordinators: u32) -> Result<(), Error> {
        // Paused work goes on by itself when it is resumed; descheduled work does not. If the pause is refused, there is all the more
        // reason to resume.
        let _ = self.pause(control);
        (0..=coordinators).try_for_each(|_| self.resume(control))
    }

    fn disable_all(&self, control: BorrowedFd<'_>, channels: &[u32], how: Disable) -> Result<(), Error> {
        lists::disable(channels, how, &mut |some, how| self.disable(control, some, how))
    }

    fn enable_all(&self, control: BorrowedFd<'_>, channels: &[u32]) -> Result<(), Error> {
        lists::enable(channels, &mut |some, how| self.disable(control, some, how))
    }

    fn disable(&self, control: BorrowedFd<'_>, some: &[u32], how: Disable) -> Result<(), Error> {
        let mut parameters = DisableChannels {
            disable: (how != Disable::No).into(),
            count: some.len() as u32,
            only_scheduling: (how == Disable::OnlyScheduling).into(),
            rewind: 0,
            event: 0,
            clients: [self.client; MAX_CHANNELS],
            channels: [0; MAX_CHANNELS],
        };
        parameters.channels[..some.len()].copy_from_slice(some);
        self.call(control, self.subdevice, DISABLE_CHANNELS, &mut parameters)
    }

    /// Sets the time for which the compute work runs in a row while other processes have work too, in microseconds. It is about 2,000
    /// for each process at first. A group that has gone needs none.
    ///
    /// # Errors
    ///
    /// As [`Objects::pause`].
    pub fn set_timeslice(&self, control: BorrowedFd<'_>, micros: u64) -> Result<(), Error> {
        self.groups.iter().try_for_each(|group| match self.call(control, *group, SET_TIMESLICE, &mut { micros }) {
            Err(Error::Status(OBJECT_NOT_FOUND)) => Ok(()),
            result => result,
        })
    }

    /// Returns the UUID of the subdevice's GPU.
    ///
    /// # Errors
    ///
    /// As [`Objects::pause`].
    pub fn gpu(&self, control: BorrowedFd<'_>) -> Result<[u8; 16], Error> {
        // The format: raw bytes, of the kind of hash that every GPU has.
        const BINARY_SHA1: u32 = 2;
        let mut info = GidInfo { index: 0, flags: BINARY_SHA1, length: 0, data: [0; 256] };
        self.call(control, self.subdevice, GET_GID_INFO, &mut info)?;
        Ok(core::array::from_fn(|at| info.data[at]))
    }

    fn call<T>(&self, control: BorrowedFd<'_>, object: u32, command: u32, parameters: &mut T) -> Result<(), Error> {
        let mut call = Nvos54 {
            client: self.client,
            object,
            command,
            flags: 0,
            parameters: core::ptr::from_mut(parameters).cast(),
            size: size_of::<T>() as u32,
            status: 0,
        };
        let number = request(CONTROL, size_of::<Nvos54>());
        loop {
            // SAFETY: the kernel reads and writes the two structures within their sizes. The call goes straight to the system:
            // libraries that replace `ioctl` must not see it.
            let answer = unsafe { libc::syscall(libc::SYS_ioctl, control.as_raw_fd(), number, &raw mut call) };
            if answer == 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(Error::System(error));
            }
        }
        if call.status == 0 { Ok(()) } else { Err(Error::Status(call.status)) }
    }
}

/// Makes a request's number: both directions, the size, the type and the call (`asm-generic/ioctl.h`).
const fn request(call: u8, size: usize) -> c_ulong {
    3 << 30 | (size as c_ulong) << 16 | (MAGIC as c_ulong) << 8 | call as c_ulong
}

/// True if a descriptor is the driver's control device (`NV_MAJOR_DEVICE_NUMBER` and `NV_MINOR_DEVICE_NUMBER_CONTROL_DEVICE` in
/// `nv-chardev-numbers.h`).
pub fn is_control_device(descriptor: c_int) -> bool {
    // SAFETY: zeros are a valid structure, and the system fills it in.
    let (answer, stat) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::fstat(descriptor, &mut stat), stat)
    };
    answer == 0
        && stat.st_mode & libc::S_IFMT == libc::S_IFCHR
        && (libc::major(stat.st_rdev), libc::minor(stat.st_rdev)) == (195, 255)
}

/// Reads the object that a successful call has made; none if it was another call, or made nothing.
///
/// # Safety
///
/// `request` and `argument` are those of an `ioctl` on the control device that answered 0.
pub unsafe fn made(number: c_ulong, argument: *const c_void) -> Option<Allocation> {
    // SAFETY: by this function's contract.
    let (allocation, status) = unsafe { asked_for(number, argument) }?;
    (status == 0).then_some(allocation)
}

/// Reads the object that a call asks for, and the call's status, which is valid once it has been answered; none if it is another call.
///
/// # Safety
///
/// `request` and `argument` are those of an `ioctl` on the control device, whose caller can be trusted.
pub unsafe fn asked_for(number: c_ulong, argument: *const c_void) -> Option<(Allocation, u32)> {
    let allocation = |root, parent, object, class, parameters, status| {
        Some((Allocation { client: root, parent, object, class, parameters }, status))
    };
    if number == request(ALLOC, size_of::<Nvos64>()) {
        // SAFETY: the request says that it is this structure.
        let call = unsafe { argument.cast::<Nvos64>().read_unaligned() };
        allocation(call.root, call.parent, call.object, call.class, call.parameters, call.status)
    } else if number == request(ALLOC, size_of::<Nvos21>()) {
        // SAFETY: as above.
        let call = unsafe { argument.cast::<Nvos21>().read_unaligned() };
        allocation(call.root, call.parent, call.object, call.class, call.parameters, call.status)
    } else {
        None
    }
}

/// Reads the object that a successful call has freed; none if it was another call, or freed nothing.
///
/// # Safety
///
/// As [`made`].
pub unsafe fn freed(number: c_ulong, argument: *const c_void) -> Option<Freed> {
    if number != request(FREE, size_of::<Nvos00>()) {
        return None;
    }
    // SAFETY: the request says that it is this structure.
    let call = unsafe { argument.cast::<Nvos00>().read_unaligned() };
    (call.status == 0).then_some(Freed { client: call.root, object: call.object })
}

/// Returns the engine of a new channel group (`NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS` in `nvos.h`).
///
/// # Safety
///
/// The allocation was just made, and is of class [`CHANNEL_GROUP`].
pub unsafe fn engine(group: &Allocation) -> Option<u32> {
    // Handles of two error contexts and of an address space come first.
    // SAFETY: the class says that these are its parameters.
    (!group.parameters.is_null()).then(|| unsafe { group.parameters.cast::<u32>().add(3).read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_headers() {
        assert_eq!(request(CONTROL, 32), 0xc020_462a);
        assert_eq!(request(ALLOC, 48), 0xc030_462b);
        assert_eq!(request(FREE, 16), 0xc010_4629);
    }

    #[test]
    fn what_a_call_made_and_freed_is_read() {
        let parameters = [0u32, 0, 0x5c00_0009, 11];
        let mut call = Nvos64 {
            root: 1,
            parent: 2,
            object: 3,
            class: CHANNEL_GROUP,
            parameters: parameters.as_ptr().cast(),
            rights: core::ptr::null(),
            size: 0,
            flags: 0,
            status: 0,
        };
        // SAFETY: structures of the requests' sizes.
        let read = |call: &Nvos64| unsafe { made(0xc030_462b, core::ptr::from_ref(call).cast()) };
        let group = read(&call).expect("it was made");
        assert_eq!((group.client, group.parent, group.object, group.class), (1, 2, 3, CHANNEL_GROUP));
        // SAFETY: its parameters are here.
        assert_eq!(unsafe { engine(&group) }, Some(11));
        call.status = 0x1f;
        assert_eq!(read(&call), None, "refused");
        // SAFETY: as above.
        assert_eq!(unsafe { made(0xc030_4629, core::ptr::from_ref(&call).cast()) }, None, "another call");
        let gone = Nvos00 { root: 1, parent: 2, object: 3, status: 0 };
        // SAFETY: as above.
        let gone = unsafe { freed(0xc010_4629, core::ptr::from_ref(&gone).cast()) };
        assert_eq!(gone, Some(Freed { client: 1, object: 3 }));
    }

    #[test]
    fn other_devices_are_not_the_control_device_and_take_no_control_calls() {
        use std::os::fd::AsFd;
        let null = std::fs::File::open("/dev/null").expect("there");
        assert!(!is_control_device(null.as_raw_fd()));
        assert!(!is_control_device(-1));
        let objects = Objects { channels: vec![1], ..Default::default() };
        assert!(matches!(objects.pause(null.as_fd()), Err(Error::System(_))));
    }

    #[test]
    fn channels_of_every_generation_are_known() {
        for class in [0xc36f, 0xc46f, 0xc56f, 0xc86f, 0xc96f, 0xca6f] {
            assert!(is_channel(class), "{class:x}");
        }
        for class in [CHANNEL_GROUP, DEVICE, SUBDEVICE, 0xc8b5, 0xcbc0, 0x906f, 0xa06f] {
            assert!(!is_channel(class), "{class:x}");
        }
    }
}
