//! The user's request to end (Ctrl-C): programs and coordinator end, and their folder is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Error;

/// A flag: true once the user wants everything to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes one that no signal raises.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Takes over SIGINT and SIGTERM from here on.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn on_signals() -> std::io::Result<Self> {
        let stop = Self::never();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// True once the user wants everything to end.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Fails once the user wants everything to end. Every wait calls it.
    ///
    /// # Errors
    ///
    /// When everything is to end.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
impl Stop {
    /// Raises it as a signal does.
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
