//! A point in a capture, as streams and events keep it.

use std::any::Any;
use std::sync::Arc;

/// The next node comes after this point.
#[derive(Clone)]
pub(crate) struct Tail {
    /// The capture; [`crate::graph::capture`] knows what it is.
    pub(crate) capture: Arc<dyn Any + Send + Sync>,
    /// Nodes of its graph.
    pub(crate) after: Vec<usize>,
}
