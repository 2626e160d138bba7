//! `cuLink`: texts put together into one.
//!
//! The linked image is a PTX text again, since kernels are known by their names and parameters here and not by
//! their instructions. Its directives may come several times.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::image::read_text;
use crate::errors::{Outcome, Status};

/// A link under way, or done.
#[derive(Default)]
pub(crate) struct Link {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: Vec<Vec<u8>>,
    image: Option<Box<[u8]>>,
}

impl Link {
    /// Adds a text.
    pub(crate) fn add(&self, text: &[u8]) -> Outcome {
        read_text(text)?;
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        self.state().parts.push(text.to_vec());
        Ok(())
    }

    /// Ends the link: where the image is and how long, both valid as long as `self`.
    pub(crate) fn complete(&self) -> Outcome<(usize, usize)> {
        let mut state = self.state();
        if state.parts.is_empty() {
            return Err(Status::INVALID_IMAGE);
        }
        let mut image = state.parts.join(&b'\n');
        image.push(0);
        let image = state.image.insert(image.into_boxed_slice());
        Ok((image.as_ptr().expose_provenance(), image.len()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::image::read_image;

    #[test]
    fn linked_texts_load_as_one() {
        let link = Link::default();
        link.add(b".version 7.0\n.target sm_75\n.visible .entry a() { ret; }\0").unwrap();
        link.add(b".version 7.0\n.target sm_75\n.visible .entry b() { ret; }").unwrap();
        assert_eq!(link.add(b"no ptx"), Err(Status::INVALID_PTX));
        let (image, bytes) = link.complete().unwrap();
        assert!(bytes > 100);
        assert_eq!(read_image(image).unwrap().entries.len(), 2);
    }
}
