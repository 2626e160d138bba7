//! Effects: what a call does with the memory that an argument names.
//!
//! Each argument of the driver's functions that is an address, a handle of memory, or a description with such in it says
//! so by its type, here without a meaning for the compiler. `cuMemcpyDtoD(dst: Writes<CUdeviceptr>, src:
//! Reads<CUdeviceptr>, …)` is thereby also what Baton owes to that call. `crate::signatures` compares the rows with
//! the signatures in `cuda.h`: no argument can be forgotten, and what a row does has to suit what it declares.
//!
//! A host address is an address too: the driver takes either for the other.

/// The work that is queued reads the memory: it is there until that has ended.
pub(super) type Reads<T> = T;

/// The work that is queued writes the memory: it is there until that has ended.
pub(super) type Writes<T> = T;

/// A description of what is read and what is written, a launch's parameters, or a graph: all of it is there until the work
/// has ended.
pub(super) type Uses<T> = T;

/// An out-parameter: new memory. It is ours, or counted as unmanaged.
pub(super) type Allocates<T> = T;

/// An out-parameter: memory that others have made. It stays where it is, and nobody looks into it for pointers.
pub(super) type Imports<T> = T;

/// The program gives it up. Memory of ours goes back once earlier work has ended; what was kept for the rest is forgotten.
pub(super) type Frees<T> = T;

/// Afterwards something else is behind it, or others may use it: addresses that are mapped, a stream's or a graph's settings.
/// What is behind addresses of ours changes nobody but us, so for them the call is refused.
pub(super) type Changes<T> = T;

/// Afterwards another process, device or handle can reach the memory, past its addresses. It cannot move any more: memory
/// of ours is made to stay where it is first, or the call is refused. Or the other process gets it from the coordinator, which moves
/// it for both.
pub(super) type Escapes<T> = T;

/// Remembered beyond the call: a texture's memory, a node's parameters. What the GPU can reach by it has to be known when it is
/// used; where the driver looks at the addresses, they have to be there now.
pub(super) type Keeps<T> = T;

/// A question about it, or a setting that has nothing to do with memory. The answer is that for the program's allocation, not for
/// what is behind it.
pub(super) type Asks<T> = T;

/// An out-parameter: an address, handle or description of what there is already, or a handle of something new without
/// memory of its own.
pub(super) type Tells<T> = T;

/// A stream, or what names one, into which the call puts work. It passes the gate.
pub(super) type Queues<T> = T;

/// Host memory that the driver alone looks at during the call, a function, or a number in a pointer's place.
pub(super) type HostOnly<T> = T;

/// A row of the table or of what is only forwarded, as it is written.
#[cfg(test)]
pub(crate) struct Declared {
    pub(crate) symbols: &'static [&'static str],
    /// How the row begins, word by word; nothing where it is only forwarded.
    pub(crate) body: &'static str,
    /// The types of the arguments.
    pub(crate) arguments: &'static [&'static str],
}
