//! The start of everything.

use crate::bench::Subject;

/// `cuInit`.
pub(crate) fn init(subject: &Subject, init: extern "C" fn(u32) -> u32) {
    let devices = || {
        let mut count = 77;
        let result = subject.bench.cuDeviceGetCount(&mut count);
        format!("devices {result} {count}")
    };
    for (case, flags) in [("a flag", 1), ("no flags", 0), ("no flags, again", 0), ("a flag, afterwards", 1)] {
        subject.say(case, init(flags), devices());
    }
}
