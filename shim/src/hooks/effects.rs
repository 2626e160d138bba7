//! Effects: the ways in which a call affects the memory that an argument names.
//!
//! Each argument of the driver's functions that is an address, a handle of memory, or a description with such in it declares its effect by
//! its type, which has no meaning for the compiler. `cuMemcpyDtoD(dst: Writes<CUdeviceptr>, src: Reads<CUdeviceptr>, …)` is thereby also
//! the list of Baton's duties for that call. `crate::signatures` compares the rows with the signatures in `cuda.h`: no argument can be
//! forgotten, and a row's action has to suit its declaration.
//!
//! A host address is an address too: the driver accepts either for the other.

/// The queued work reads the memory: it is there until that work has ended.
pub(super) type Reads<T> = T;

/// The queued work writes the memory: it is there until that work has ended.
pub(super) type Writes<T> = T;

/// A description of memory that is read and written, a launch's parameters, or a graph: all of the memory is there until the work has
/// ended.
pub(super) type Uses<T> = T;

/// An out-parameter: new memory. It is ours, or counted as unmanaged.
pub(super) type Allocates<T> = T;

/// An out-parameter: memory that others have made. It stays where it is, and is not scanned for pointers.
pub(super) type Imports<T> = T;

/// The program gives it up. Memory of ours goes back once earlier work has ended; records of other memory are forgotten.
pub(super) type Frees<T> = T;

/// Afterwards the object means other memory, or others may use it: addresses that are mapped, a stream's or a graph's settings. Only the
/// shim changes the memory behind addresses of ours, so for them the call is refused.
pub(super) type Changes<T> = T;

/// Afterwards another process, device or handle can access the memory, past its addresses. It can no longer move: memory of ours is first
/// made to stay where it is, or the call is refused. Or the other process gets it from the coordinator, which moves it for both.
pub(super) type Escapes<T> = T;

/// Remembered beyond the call: a texture's memory, a node's parameters. The memory that the GPU can reach by it has to be known when it is
/// used; where the driver checks the addresses, the memory has to be there now.
pub(super) type Keeps<T> = T;

/// A question about it, or a setting that does not concern memory. The answer is that for the program's allocation, not for the mapping
/// behind it.
pub(super) type Asks<T> = T;

/// An out-parameter: an address, handle or description of an existing object, or a handle of a new object without memory of its own.
pub(super) type Tells<T> = T;

/// A stream, or an argument that names one, in which the call queues work. The call passes the gate.
pub(super) type Queues<T> = T;

/// Host memory that only the driver reads during the call, a function, or a number in a pointer's place.
pub(super) type HostOnly<T> = T;

/// A row of the table or of the forwarded functions, as it is written.
#[cfg(test)]
pub(crate) struct Declared {
    pub(crate) symbols: &'static [&'static str],
    /// The first words of the row; empty for a forwarded function.
    pub(crate) body: &'static str,
    /// The types of the arguments.
    pub(crate) arguments: &'static [&'static str],
}
