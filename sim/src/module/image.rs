//! Images as programs give them: only texts have kernels here.

use super::ptx::Ptx;
use crate::border::{bytes_at, text_at};
use crate::errors::{Outcome, Status};

/// Reads an image as `cuModuleLoadData` gets it: a text that ends with a zero byte.
pub(crate) fn read_image(image: usize) -> Outcome<Ptx> {
    let text = text_at(image);
    // An image that is no text is recognised by its first bytes, of which any image has four.
    let first = bytes_at(image, 1)?;
    if first == [0x7F] || first == [0x50] || first == [0xB1] || first == [0x44] {
        let magic: [u8; 4] = bytes_at(image, 4)?.try_into().map_err(|_| Status::INVALID_IMAGE)?;
        if is_binary(magic) {
            return Err(Status::NO_BINARY_FOR_GPU);
        }
    }
    read_text(text.bytes()?)
}

/// Reads a file's or a linker's text.
pub(crate) fn read_text(text: &[u8]) -> Outcome<Ptx> {
    if text.first_chunk().copied().is_some_and(is_binary) {
        return Err(Status::NO_BINARY_FOR_GPU);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| Status::INVALID_PTX)?;
    let ptx = Ptx::read(text).map_err(|_| Status::INVALID_PTX)?;
    if ptx.version > NEWEST_VERSION {
        return Err(Status::UNSUPPORTED_PTX_VERSION);
    }
    if ptx.target > DEVICE_TARGET { Err(Status::NO_BINARY_FOR_GPU) } else { Ok(ptx) }
}

/// The newest PTX of the CUDA version that is simulated, as major * 10 + minor.
const NEWEST_VERSION: u32 = 90;

/// The device's own `sm_NN`.
const DEVICE_TARGET: u32 = 90;

/// ELF (a cubin), or one of the two wrappings of a fat binary.
fn is_binary(magic: [u8; 4]) -> bool {
    magic == *b"\x7FELF" || magic == [0x50, 0xED, 0x55, 0xBA] || magic == [0xB1, 0x43, 0x62, 0x46]
}
