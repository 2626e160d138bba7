//! Ctrl-C meanwhile: programs and coordinator are to be gone afterwards, and their folder too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Error;

/// Whether the user wants all of it to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// For whoever leaves signals alone.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Takes SIGINT and SIGTERM over from here on.
    ///
    /// # Errors
    ///
    /// When the system does not let us.
    pub fn on_signals() -> std::io::Result<Self> {
        let stop = Self::never();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// Whether it is to end.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Asked all the while by whoever waits for something.
    ///
    /// # Errors
    ///
    /// When it is to end.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
impl Stop {
    /// As a signal does.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_waiting() {
        let stop = Stop::never();
        assert!(stop.check().is_ok());
        stop.raise();
        assert!(matches!(stop.check(), Err(Error::Interrupted)));
    }
}
