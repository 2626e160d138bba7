//! Values as they cross from the program: pointers it gave us, each with what it promised about it.
//!
//! A value of these types is made by the C calling convention and nowhere else (tests go through
//! `new`, which is unsafe). So holding one means that the program stands behind the promise in the type's
//! description, as cuda.h asks of it, and reading or writing through it is sound as far as the driver
//! can know. A null pointer is an answer, not a crash: `CUDA_ERROR_INVALID_VALUE`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};

use crate::errors::{Outcome, Status};

/// Where the driver puts an answer: null, or writable for one `T`.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// A parameter block: null, or readable for one `T`.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

/// A list whose length comes beside it: null, or readable (for `OutList` writable) for that many `T`.
#[repr(transparent)]
pub(crate) struct List<T>(*const T);

/// See [`List`].
#[repr(transparent)]
pub(crate) struct OutList<T>(*mut T);

/// A text: null, or readable up to and with a zero byte.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

macro_rules! plain_pointer {
    ($($name:ident),*) => {$(
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
    )*};
}
plain_pointer!(Out, In, List, OutList);

impl Clone for Text {
    fn clone(&self) -> Self {
        *self
    }
}
impl Copy for Text {}

impl<T> Out<T> {
    /// No place: the program does not want the answer.
    pub(crate) fn nowhere() -> Out<T> {
        Out(std::ptr::null_mut())
    }

    /// Fails if the program gave no place for the answer.
    pub(crate) fn required(self) -> Outcome {
        if self.0.is_null() { Err(Status::INVALID_VALUE) } else { Ok(()) }
    }

    /// True if the place is at a multiple of this.
    pub(crate) fn is_aligned(self, alignment: usize) -> bool {
        self.0.addr().is_multiple_of(alignment)
    }

    /// Puts the answer, which the program must have given a place for.
    pub(crate) fn set(self, value: T) -> Outcome {
        self.required()?;
        // SAFETY: not null, so writable for a `T` by this type's promise.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Puts the answer if the program wants it.
    pub(crate) fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so writable for a `T` by this type's promise.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<T: Copy> Out<T> {
    /// A part of the block that is there, from an offset on.
    pub(crate) fn part<P>(self, offset: usize) -> Out<P> {
        Out(self.0.wrapping_byte_add(offset).cast())
    }

    /// The value there now: some answers are questions first (a count).
    pub(crate) fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T: Copy> In<T> {
    /// The block, copied.
    pub(crate) fn get(self) -> Outcome<T> {
        self.optional().ok_or(Status::INVALID_VALUE)
    }

    /// The block, copied, if there is one.
    pub(crate) fn optional(self) -> Option<T> {
        // SAFETY: if not null, readable for a `T` by this type's promise.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

impl<T: Copy> List<T> {
    /// The first `count` items, copied. An empty list may be null.
    pub(crate) fn read(self, count: usize) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so readable for the count that came beside it by this type's promise.
        Ok((0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }

    /// True if there is a list at all.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> List<T> {
    /// One item; the program's list is long enough by its own rules (say, a zero at the end).
    pub(crate) fn item(self, at: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller stays within the list's own rule for its end.
        Ok(unsafe { self.0.add(at).read_unaligned() })
    }
}

impl<T: Copy> OutList<T> {
    /// Writes the items, for which the program promised room.
    pub(crate) fn write(self, items: &[T]) -> Outcome {
        if items.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        for (at, item) in items.iter().enumerate() {
            // SAFETY: not null, so writable for the count that came beside it by this type's promise.
            unsafe { self.0.add(at).write_unaligned(*item) };
        }
        Ok(())
    }

    /// True if the program wants the items.
    pub(crate) fn wanted(self) -> bool {
        !self.0.is_null()
    }
}

impl Text {
    /// The text's bytes.
    pub(crate) fn bytes<'a>(self) -> Outcome<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so a text by this type's promise, which holds during the call; no caller
        // keeps the slice beyond it.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// The text, which must be UTF-8: names and paths here are.
    pub(crate) fn str<'a>(self) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Status::INVALID_VALUE)
    }
}

/// Reads plain words at an address the program gave inside a block (an array of pointers, say).
///
/// The program's promise is the block's: cuda.h says what each of its pointers leads to.
pub(crate) fn read_at<T: Copy>(address: usize) -> Outcome<T> {
    In(std::ptr::with_exposed_provenance::<T>(address)).get()
}

/// The bytes at an address the program gave inside a block; the promise is the block's.
pub(crate) fn bytes_at(address: usize, count: usize) -> Outcome<Vec<u8>> {
    List(std::ptr::with_exposed_provenance::<u8>(address)).read(count)
}

/// The list at an address the program gave inside a block; the promise is the block's.
pub(crate) fn list_at<T>(address: usize) -> List<T> {
    List(std::ptr::with_exposed_provenance(address))
}

/// Writes at an address the program gave as an untyped answer (`void *data`).
pub(crate) fn write_at<T>(address: usize, value: T) -> Outcome {
    Out(std::ptr::with_exposed_provenance_mut::<T>(address)).set(value)
}

/// The text at an address the program gave as an untyped image.
pub(crate) fn text_at(address: usize) -> Text {
    Text(std::ptr::with_exposed_provenance(address))
}

/// As a program would make them; the tests keep what they point to until the call is over.
#[cfg(test)]
pub(crate) mod from_tests {
    use super::{In, List, Out, OutList, Text};
    use std::ffi::CStr;

    /// Makes a call that answers in one place; its result and the answer.
    pub(crate) fn ask<T: Default>(call: impl FnOnce(Out<T>) -> u32) -> (u32, T) {
        let mut answer = T::default();
        let code = call(Out(&raw mut answer));
        (code, answer)
    }

    /// The answer of a call that must succeed.
    #[track_caller]
    pub(crate) fn given<T: Default>(call: impl FnOnce(Out<T>) -> u32) -> T {
        let (code, answer) = ask(call);
        assert_eq!(code, 0);
        answer
    }

    /// No place for an answer.
    pub(crate) fn nowhere<T>() -> Out<T> {
        Out::nowhere()
    }

    pub(crate) fn block<T>(block: &T) -> In<T> {
        In(block)
    }

    pub(crate) fn list<T>(items: &[T]) -> List<T> {
        List(items.as_ptr())
    }

    pub(crate) fn no_list<T>() -> List<T> {
        List(std::ptr::null())
    }

    /// A place that is a question too, or that is looked at later.
    pub(crate) fn place<T>(place: &mut T) -> Out<T> {
        Out(place)
    }

    /// No room for a list: only its length is asked for.
    pub(crate) fn no_room<T>() -> OutList<T> {
        OutList(std::ptr::null_mut())
    }

    /// Room for a list.
    pub(crate) fn room<T>(items: &mut [T]) -> OutList<T> {
        OutList(items.as_mut_ptr())
    }

    pub(crate) fn text(text: &CStr) -> Text {
        Text(text.as_ptr())
    }

    /// The address of a value, for calls that take untyped pointers.
    pub(crate) fn address<T>(value: &T) -> usize {
        std::ptr::from_ref(value).expose_provenance()
    }

    /// The address of a value to be written.
    pub(crate) fn address_mut<T: ?Sized>(value: &mut T) -> usize {
        std::ptr::from_mut(value).cast::<()>().expose_provenance()
    }
}
