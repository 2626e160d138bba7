//! The metrics of several GPUs, made once for all readers.

use std::sync::{Arc, Mutex, PoisonError};

use baton_messages::Message;
use bytes::Bytes;

use crate::asker::{Asker, FRESH};
use crate::known::Known;
use crate::metrics;

/// The GPUs of a coordinator.
#[derive(Debug)]
pub(crate) struct Scrape {
    askers: Vec<Arc<Asker>>,
    /// The last metrics, and the answers that they were made of.
    last: Mutex<(Vec<Arc<Known>>, Bytes)>,
}

impl Scrape {
    pub(crate) fn of(askers: Vec<Arc<Asker>>) -> Arc<Self> {
        Arc::new(Self { askers, last: Mutex::default() })
    }

    /// Returns the present state of all GPUs that are still served. If one of them does not answer, the reason is returned.
    pub(crate) async fn known(&self) -> Result<Vec<Arc<Known>>, Message> {
        let served: Vec<_> = self.askers.iter().filter(|asker| asker.is_served()).collect();
        // Without any, the first one says why.
        let asked = if served.is_empty() { self.askers.iter().take(1).collect() } else { served };
        let asked: Vec<_> = asked
            .into_iter()
            .map(|asker| {
                let asker = Arc::clone(asker);
                tokio::spawn(async move { asker.status(FRESH).await })
            })
            .collect();
        let mut all = Vec::new();
        for heard in asked {
            all.push(heard.await.unwrap_or_else(|error| Err(baton_messages::of_system(error)))?);
        }
        Ok(all)
    }

    /// Returns the state as OpenMetrics.
    pub(crate) fn metrics(&self, known: Vec<Arc<Known>>) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            last.0.len() == known.len() && last.0.iter().zip(&known).all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_same {
            *last = (known.clone(), metrics::of(known).into());
        }
        last.1.clone()
    }
}
