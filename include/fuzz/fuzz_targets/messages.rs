//! Every message of a peer is read or refused; a message that is read is written again byte for byte.
//!
//!     include/fuzz/run 10
#![no_main]

use baton_contract::messages::{FromCoordinator, FromTenant, Message as _};
use baton_contract::wire::VERSION;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Kept inputs are of older versions, which are refused at once.
    let mut bytes = bytes.to_vec();
    if let Some(version) = bytes.first_chunk_mut() {
        *version = VERSION.to_le_bytes();
    }
    let bytes = bytes.as_slice();
    if let Ok((gpu, message)) = FromTenant::decode(bytes) {
        assert_eq!(message.encode(gpu), bytes);
    }
    if let Ok((gpu, message)) = FromCoordinator::decode(bytes) {
        assert_eq!(message.encode(gpu), bytes);
    }
});
