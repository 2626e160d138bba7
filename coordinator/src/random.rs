//! Unguessable numbers.

use rustix::rand::{GetRandomFlags, getrandom};

/// Draws bytes that no other process can guess.
pub(crate) fn bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    // getrandom(2) gives so few at once, whenever it gives any.
    while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(COUNT) {
        std::thread::yield_now();
    }
    bytes
}
