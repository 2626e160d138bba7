//! The pods of programs. Another crate asks kubelet for them, so that this one needs no gRPC.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use baton_report::pod::Pod;

/// The pod of each program that was asked about, in that order; or the reason why none is known.
pub type Found = Result<Vec<Option<Pod>>, Box<dyn Error + Send + Sync>>;

/// An answer that comes later.
pub type Finding<'a> = Pin<Box<dyn Future<Output = Found> + Send + 'a>>;

/// Finds the pods of programs.
pub trait PodFinder: Debug + Send + Sync {
    /// Finds the pods of the programs with these names on this GPU. It is called in the runtime that serves the metrics.
    fn find<'a>(&'a self, gpu: &'a str, names: &'a [&'a str]) -> Finding<'a>;
}
