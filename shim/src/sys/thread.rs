//! Threads of ours, and threads of the program that sleep for us.

use core::time::Duration;

use super::cancel;

/// Sleeps for so long.
pub(crate) fn sleep(time: Duration) {
    let _uncancelled = cancel::Off::begin();
    std::thread::sleep(time);
}

/// Starts a thread of ours. The program's signals are not for it: it is started with all of them blocked.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let _uncancelled = cancel::Off::begin();
    // SAFETY: signal sets are plain memory; the old one is put back.
    unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(work).is_ok();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        started
    }
}
