//! Takes lists of channels off the GPU and puts them back, while some of them may be freed.
//!
//! A caller that names a channel learns late that it was freed: its program frees channels whenever it destroys a context. A list with
//! such a channel in it is answered with an error **and carried out all the same**: the others are disabled, or those before it enabled
//! (measured: `bench/results/driver_facts.json`, H1). And the driver counts: a channel that is disabled twice has to be enabled twice
//! (H2). So the effect of such a call is undone, channel by channel, which also shows the freed ones; then the rest is tried again.

use super::{Disable, Error, INVALID_CHANNEL};

/// The most channels that one call takes (`NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES` in `ctrl2080fifo.h`).
pub(super) const MAX_CHANNELS: usize = 64;

/// Disables all channels that still exist, once each, with calls for at most [`MAX_CHANNELS`]. Freed channels are not an error.
///
/// # Errors
///
/// When a channel that exists cannot be disabled: then none is. Only if the driver also refuses to enable one again, some may stay
/// disabled.
pub(super) fn disable(
    channels: &[u32],
    how: Disable,
    call: &mut impl FnMut(&[u32], Disable) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut living = channels.to_vec();
    loop {
        let Err(error) = living.chunks(MAX_CHANNELS).try_for_each(|some| call(some, how)) else { return Ok(()) };
        let before = living.len();
        living = enable_each(&living, call)?;
        if !has_gone(&error) || living.len() == before {
            return Err(error);
        }
    }
}

/// Enables all channels that still exist. An enabled channel stays so.
pub(super) fn enable(
    channels: &[u32],
    call: &mut impl FnMut(&[u32], Disable) -> Result<(), Error>,
) -> Result<(), Error> {
    channels.chunks(MAX_CHANNELS).try_for_each(|some| match call(some, Disable::No) {
        Err(error) if has_gone(&error) => enable_each(some, call).map(drop),
        result => result,
    })
}

/// Enables one channel after the other. Returns those that still exist.
fn enable_each(
    channels: &[u32],
    call: &mut impl FnMut(&[u32], Disable) -> Result<(), Error>,
) -> Result<Vec<u32>, Error> {
    let mut living = Vec::new();
    for channel in channels {
        match call(&[*channel], Disable::No) {
            Ok(()) => living.push(*channel),
            Err(error) if has_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(living)
}

fn has_gone(error: &Error) -> bool {
    matches!(error, Error::Status(INVALID_CHANNEL))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Channels in the driver, with the number of times that each is disabled.
    struct Driver {
        channels: BTreeMap<u32, u32>,
        /// Channels that are freed before the call of this number, counted down to zero.
        going: Vec<(u32, u32)>,
        /// A channel, and the answer to calls that name it.
        refuses: Option<(u32, u32)>,
    }

    impl Driver {
        fn with(channels: impl IntoIterator<Item = u32>) -> Self {
            Self { channels: channels.into_iter().map(|one| (one, 0)).collect(), going: Vec::new(), refuses: None }
        }

        fn call(&mut self, channels: &[u32], how: Disable) -> Result<(), Error> {
            assert!(!channels.is_empty() && channels.len() <= MAX_CHANNELS);
            for (when, channel) in &mut self.going {
                match when.checked_sub(1) {
                    Some(left) => *when = left,
                    None => drop(self.channels.remove(channel)),
                }
            }
            let mut answer = Ok(());
            for one in channels {
                if let Some((_, answer)) = self.refuses.filter(|(refused, _)| refused == one && how != Disable::No) {
                    return Err(Error::Status(answer));
                }
                match (self.channels.get_mut(one), how) {
                    (Some(count), Disable::No) => *count = count.saturating_sub(1),
                    (Some(count), _) => *count += 1,
                    (None, Disable::No) => return Err(Error::Status(INVALID_CHANNEL)),
                    (None, _) => answer = Err(Error::Status(INVALID_CHANNEL)),
                }
            }
            answer
        }

        fn disable(&mut self, channels: &[u32]) -> Result<(), Error> {
            disable(channels, Disable::Preempt, &mut |some, how| self.call(some, how))
        }

        fn enable(&mut self, channels: &[u32]) -> Result<(), Error> {
            enable(channels, &mut |some, how| self.call(some, how))
        }

        fn all_are(&self, count: u32) -> bool {
            self.channels.values().all(|one| *one == count)
        }
    }

    /// Returns 100 channels, so that no one call takes all.
    fn listed() -> Vec<u32> {
        (0..100).collect()
    }

    #[test]
    fn a_channel_that_has_gone_leaves_no_other_disabled_when_all_are_enabled() {
        for gone in [0, 1, 63, 64, 98, 99] {
            let mut driver = Driver::with(listed());
            driver.channels.remove(&gone);
            driver.disable(&listed()).expect("the others are there");
            assert!(driver.all_are(1), "without {gone}: {:?}", driver.channels);
            // Its end is known by now, and it is no longer named.
            let rest: Vec<u32> = driver.channels.keys().copied().collect();
            driver.enable(&rest).expect("all are there");
            assert!(driver.all_are(0), "without {gone}: {:?}", driver.channels);
        }
    }

    #[test]
    fn channels_that_go_in_the_middle_of_it_change_nothing_for_the_others() {
        for first in 0..110 {
            let mut driver = Driver::with(listed());
            driver.going = vec![(first, 70), (first + 1, 3), (first + 60, 20)];
            driver.disable(&listed()).expect("the others are there");
            assert!(driver.all_are(1), "from call {first}: {:?}", driver.channels);
            driver.enable(&listed()).expect("the others are there");
            assert!(driver.all_are(0), "from call {first}: {:?}", driver.channels);
        }
    }

    #[test]
    fn nothing_is_disabled_if_one_channel_cannot_be() {
        const REFUSED: u32 = 0x65;
        let mut driver = Driver::with(listed());
        driver.refuses = Some((80, REFUSED));
        assert!(matches!(driver.disable(&listed()), Err(Error::Status(REFUSED))));
        assert!(driver.all_are(0));
        driver.refuses = Some((80, INVALID_CHANNEL));
        assert!(matches!(driver.disable(&listed()), Err(Error::Status(INVALID_CHANNEL))), "though it is there");
        assert!(driver.all_are(0));
    }

    #[test]
    fn channels_that_have_all_gone_need_nothing() {
        let mut driver = Driver::with([]);
        driver.disable(&listed()).expect("nothing to do");
        driver.enable(&listed()).expect("nothing to do");
    }
}
