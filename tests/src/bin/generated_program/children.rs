//! Children: those that only wait, and those that make calls with what they have inherited.

use std::fmt::Write as _;
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

use baton_tests::generated::script::{Id, Touch};

use crate::machine::{Done, Machine};
use baton_tests::driver::{Handle, PoolProperties};

/// How long a child may take for all its calls, in seconds. Its driver answers each at once.
const PATIENCE: u32 = 10;

/// The handles that a child uses, looked up before.
#[derive(Clone, Copy)]
struct Inherited {
    mem: u64,
    host: usize,
    context: Handle,
}

impl Machine {
    pub(crate) fn fork(&self, milliseconds: u32) -> Done {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
        // SAFETY: the child does nothing but sleep and exit, which it may in a process that had many threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::nanosleep(&pause, null_mut());
                libc::_exit(7);
            }
        }
        assert!(child > 0, "no child");
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        Ok(())
    }

    /// A child that makes these calls; prints each answer, and how the child ended.
    pub(crate) fn fork_touch(&self, mem: Id, host: Option<Id>, touches: &[Touch], said: &mut String) -> Done {
        let inherited = Inherited {
            mem: self.all.address(mem),
            host: host.map_or(0, |host| self.all.hosts.get(host).at),
            context: self.current()?,
        };
        let bytes = size_of::<[AtomicU32; 64]>();
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new page, which the child has too.
        let page = unsafe { libc::mmap(null_mut(), bytes, prot, flags, -1, 0) };
        assert!(page != libc::MAP_FAILED, "no memory");
        // SAFETY: zeroes are atomics, and it is unmapped below, when nothing uses it any more.
        let answers = unsafe { &*page.cast::<[AtomicU32; 64]>() };
        // SAFETY: the child makes calls of the driver, which answers them in a forked child, and uses no lock of this program.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a signal that is not caught ends the child.
            unsafe { libc::alarm(PATIENCE) };
            for (touch, answer) in touches.iter().zip(answers) {
                answer.store(self.touch(*touch, inherited) + 1, Ordering::Relaxed);
            }
            // SAFETY: ends the child, and runs nothing that the parent has left to be run.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "no child");
        let mut status = 0;
        // SAFETY: a child of ours, and an out-parameter.
        unsafe { libc::waitpid(child, &mut status, 0) };
        let _ = write!(said, "touching");
        for (touch, answer) in touches.iter().zip(answers) {
            match answer.load(Ordering::Relaxed).checked_sub(1) {
                Some(answer) => drop(write!(said, " {touch:?} {answer}")),
                None => drop(write!(said, " {touch:?} never")),
            }
        }
        let _ = write!(said, ", ended {status}");
        // SAFETY: mapped above, and the child has ended.
        unsafe { libc::munmap(page, bytes) };
        Ok(())
    }

    /// A call of a child's.
    fn touch(&self, touch: Touch, Inherited { mem, host, context }: Inherited) -> u32 {
        const MEMORY_TYPE: i32 = 2;
        let (driver, mut words, mut made, mut at, mut size) = (&self.driver, [0_u64; 8], 0, 0, 0);
        let buffer = words.as_mut_ptr().expose_provenance();
        match touch {
            Touch::Free => driver.cuMemFree_v2(mem),
            Touch::FreeAsync => driver.cuMemFreeAsync(false, mem, 0),
            Touch::Range => driver.cuMemGetAddressRange_v2(&mut at, &mut size, mem),
            Touch::Attribute => driver.cuPointerGetAttribute(&mut at, MEMORY_TYPE, mem),
            Touch::CopyOut => driver.cuMemcpyDtoH_v2(false, buffer, mem, 8),
            Touch::CopyIn => driver.cuMemcpyHtoD_v2(false, mem, buffer, 8),
            Touch::Fill => driver.cuMemsetD8_v2(false, mem, 1, 8),
            Touch::FillAsync => driver.cuMemsetD8Async(true, mem, 1, 8, 0),
            Touch::Alloc => driver.cuMemAlloc_v2(&mut at, 4096),
            Touch::AllocAsync => driver.cuMemAllocAsync(false, &mut at, 4096, 0),
            Touch::HostAlloc => driver.cuMemHostAlloc(&mut size, 4096, 0),
            Touch::HostFree => driver.cuMemFreeHost(host),
            Touch::ContextSynchronize => driver.cuCtxSynchronize(),
            Touch::SetCurrent => driver.cuCtxSetCurrent(context),
            Touch::StreamCreate => driver.cuStreamCreate(&mut made, 0),
            Touch::StreamQuery => driver.cuStreamQuery(false, 0),
            Touch::EventCreate => driver.cuEventCreate(&mut made, 0),
            Touch::Retain => driver.cuDevicePrimaryCtxRetain(&mut made, self.device),
            Touch::GraphCreate => driver.cuGraphCreate(&mut made, 0),
            Touch::PoolCreate => driver.cuMemPoolCreate(&mut made, &PoolProperties::exportable(false)),
            Touch::Info => driver.cuMemGetInfo_v2(&mut size, &mut made),
            Touch::Init => driver.cuInit(0),
        }
    }
}
