//! Ctrl-C meanwhile: programs and coordinator are to be gone afterwards, and their folder too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Error;

/// Whether the user wants all of it to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes SIGINT and SIGTERM over from here on.
    pub fn on_signals() -> std::io::Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, raised.clone())?;
        }
        Ok(Self(raised))
    }

    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error if it is to end: whoever waits for something asks this all the while.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_waiting() {
        let stop = Stop(Arc::default());
        assert!(stop.check().is_ok());
        stop.0.store(true, Ordering::SeqCst);
        assert!(matches!(stop.check(), Err(Error::Interrupted)));
    }
}
