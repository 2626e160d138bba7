//! Threads beside the script's, each of which does one thing over and over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use baton_tests::generated::script::Churn;

use crate::machine::{Done, Machine, Trouble, call, made};
use baton_tests::driver::{Handle, KERNELS};

/// The threads, and what ends each.
#[derive(Default)]
pub(crate) struct Churns(Mutex<Vec<Running>>);

struct Running {
    churn: Churn,
    goes_on: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

const BYTES: usize = 64 << 10;
const NON_BLOCKING: u32 = 1;
const RELAXED: u32 = 2;
/// Calls that are over at once are made so many times in a round.
const IN_A_ROW: usize = 200;
/// Between two rounds, so that the script's threads get on.
const PAUSE: Duration = Duration::from_micros(300);

impl Churns {
    pub(crate) fn begin(&self, machine: &'static Machine, churn: Churn) {
        let goes_on = Arc::new(AtomicBool::new(true));
        let seen = goes_on.clone();
        let thread = std::thread::spawn(move || {
            if let Err(Trouble { what, answer }) = machine.churn(churn, &seen) {
                crate::end(machine, &format!("beside the threads, {churn:?}: {what} answered {answer}\n"), 4);
            }
        });
        self.all().push(Running { churn, goes_on, thread });
    }

    /// Ends such calls without waiting for their threads, which a call of the script's that waits for work may keep up.
    pub(crate) fn end(&self, churn: Churn) {
        for running in self.all().iter().filter(|running| running.churn == churn) {
            running.goes_on.store(false, Ordering::Relaxed);
        }
    }

    /// Waits for all that has been ended.
    pub(crate) fn join(&self) {
        let all = std::mem::take(&mut *self.all());
        for Running { thread, .. } in all {
            thread.join().expect("a thread of ours does not panic");
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    fn churn(&self, churn: Churn, goes_on: &AtomicBool) -> Done {
        let (driver, mut mode) = (&self.driver, RELAXED);
        // Its calls are in no capture's way.
        call!(driver, cuThreadExchangeStreamCaptureMode(&mut mode))?;
        let again = || {
            std::thread::sleep(PAUSE);
            goes_on.load(Ordering::Relaxed)
        };
        match churn {
            Churn::Primary => {
                while again() {
                    for _ in 0..IN_A_ROW {
                        made(|out| call!(driver, cuDevicePrimaryCtxRetain(out, self.device)))?;
                        call!(driver, cuDevicePrimaryCtxRelease_v2(self.device))?;
                    }
                }
            }
            Churn::Contexts => {
                while again() {
                    let context = self.own_context()?;
                    let (stream, at) = self.own_work()?;
                    call!(driver, cuStreamSynchronize(true, stream))?;
                    call!(driver, cuMemFree_v2(at))?;
                    call!(driver, cuCtxDestroy_v2(context))?;
                }
            }
            Churn::Modules => {
                let context = self.own_context()?;
                while again() {
                    let module = made(|out| call!(driver, cuModuleLoadData(out, KERNELS.as_ptr())))?;
                    call!(driver, cuModuleUnload(module))?;
                }
                call!(driver, cuCtxDestroy_v2(context))?;
            }
            Churn::Frees => {
                call!(driver, cuCtxSetCurrent(self.all.contexts.get(0)))?;
                while again() {
                    let (stream, at) = self.own_work()?;
                    call!(driver, cuMemFreeAsync(true, at, stream))?;
                    call!(driver, cuStreamDestroy_v2(stream))?;
                }
            }
        }
        Ok(())
    }

    fn own_context(&self) -> Done<Handle> {
        made(|out| call!(self.driver, cuCtxCreate_v2(out, 0, self.device)))
    }

    /// Memory, and a stream that works on it.
    fn own_work(&self) -> Done<(Handle, u64)> {
        let (driver, mut at) = (&self.driver, 0);
        let stream = made(|out| call!(driver, cuStreamCreate(out, NON_BLOCKING)))?;
        call!(driver, cuMemAlloc_v2(&mut at, BYTES))?;
        call!(driver, cuMemsetD8Async(true, at, 7, BYTES, stream))?;
        Ok((stream, at))
    }
}
