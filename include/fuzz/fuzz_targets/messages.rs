//! Whatever a peer sends is read or refused, and what is read is written as it came.
//!
//!     include/fuzz/run 10
#![no_main]

use baton_contract::messages::{FromCoordinator, FromTenant, Message as _};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((gpu, message)) = FromTenant::decode(bytes) {
        assert_eq!(message.encode(gpu), bytes);
    }
    if let Ok((gpu, message)) = FromCoordinator::decode(bytes) {
        assert_eq!(message.encode(gpu), bytes);
    }
});
