//! The keeper: a tiny process that starts the coordinator, and has what the next one needs if this one dies.
//!
//! It holds descriptors, and a few bytes with each, by GPU and [`Key`]: the socket that listens and the GPU's lock, the frames' memory, the host
//! pool's slabs, the table ([`baton_books::table`]), and of each tenant both sockets, its process and its page. As the keeper has the
//! tenants' sockets open, no tenant sees an end when the coordinator dies. It opens no driver, reads no memory, and decides nothing but
//! whether to start the next one.
//!
//! | file | what it does |
//! |---|---|
//! | `held` | what is held, and the messages between the two |
//! | `process` | the keeper itself |
//! | `client` | the coordinator's end |
//! | `ends` | the ends of either process |
//!
//! A frame's descriptor is sent before the frame is lent. If the coordinator dies in between, the message is still in the socket, and the
//! keeper reads it before it starts the next one. A frame's memory is free to the driver when the keeper has let go of it, too:
//! the coordinator does not wait, but counts the keeper's answers.
//!
//! The coordinator outlives its keeper. It starts another one in place of one that is gone, or that it has killed because it did not
//! answer, and has it hold everything.

mod client;
mod ends;
mod held;
mod process;

pub use client::{FrameFacts, Inherited, Keeper, KeptFrame, KeptTenant, Left, LetGo, Reach, Start};
pub use held::Key;
pub use process::{Again, Death, End, keep};
