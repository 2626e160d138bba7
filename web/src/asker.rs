//! Asks the coordinator over a GPU's socket, as any tool does, so that nothing here can hold its thread up. It is asked once for all
//! readers.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_client as client;
use baton_messages::Message;
use baton_report::pod::Pod;
use baton_report::status::Status;
use baton_report::tenant::Tenant;
use tokio::sync::Mutex;

use crate::known::Known;
use crate::pods::PodFinder;

/// The age up to which an answer is good enough for metrics.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// The last answer, or the reason why there was none.
type Heard = Result<Arc<Known>, Message>;

#[derive(Debug, Default)]
struct Last {
    heard: Option<(Instant, Heard)>,
    /// The most GPU time ever reported of each present tenant. The coordinator subtracts time in which a program turns out to have been
    /// unable to work, but a counter must never go down.
    gpu_seconds: HashMap<u32, f64>,
    /// True if kubelet has not answered, and that has been reported.
    is_kubelet_missed: bool,
}

/// Asks about one GPU.
#[derive(Debug)]
pub(crate) struct Asker {
    socket: PathBuf,
    /// Finds the programs' pods, if metrics are to name them.
    pods: Option<Arc<dyn PodFinder>>,
    last: Mutex<Last>,
}

impl Asker {
    pub(crate) fn new(socket: PathBuf, pods: Option<Arc<dyn PodFinder>>) -> Self {
        Self { socket, pods, last: Mutex::default() }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// True if the coordinator still serves this GPU.
    pub(crate) fn is_served(&self) -> bool {
        self.socket.exists()
    }

    /// Returns the status, at most this old. Others who ask meanwhile get the same answer.
    pub(crate) async fn status(&self, age: Duration) -> Heard {
        let mut last = self.last.lock().await;
        if let Some((at, heard)) = &last.heard
            && at.elapsed() < age
        {
            return heard.clone();
        }
        let socket = self.socket.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let text = client::status(&socket)?;
            serde_json::from_slice::<Status>(&text).map_err(baton_messages::coordinators_answer_is_unreadable)
        });
        let heard = match asked.await.unwrap_or_else(|error| Err(baton_messages::of_system(error))) {
            Ok(mut status) => {
                never_less(&mut last.gpu_seconds, &mut status);
                let pods = self.pods(&status, &mut last.is_kubelet_missed).await;
                Ok(Arc::new(Known { status, pods }))
            }
            Err(why) => Err(why),
        };
        last.heard = Some((Instant::now(), heard.clone()));
        heard
    }

    /// Returns each program's pod, if kubelet knows it.
    async fn pods(&self, status: &Status, is_missed: &mut bool) -> BTreeMap<u32, Pod> {
        let Some(pods) = &self.pods else { return BTreeMap::new() };
        let names: Vec<&str> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
        match pods.find(&status.gpu.uuid, &names).await {
            Ok(found) => {
                *is_missed = false;
                let of = |(tenant, pod): (&Tenant, Option<Pod>)| Some((tenant.id, pod?));
                return status.tenants.iter().zip(found).filter_map(of).collect();
            }
            Err(why) if !std::mem::replace(is_missed, true) => {
                baton_messages::warn!(pods_are_unknown(why));
            }
            Err(_) => {}
        }
        BTreeMap::new()
    }
}

fn never_less(most: &mut HashMap<u32, f64>, status: &mut Status) {
    let of = |(id, seconds): (u32, f64)| (id, most.get(&id).map_or(seconds, |before| before.max(seconds)));
    let now = status.tenants.iter().map(|tenant| (tenant.id, tenant.gpu_seconds));
    *most = now.map(of).collect();
    for tenant in &mut status.tenants {
        tenant.gpu_seconds = most[&tenant.id];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_time_never_goes_down_while_a_tenant_is_there_and_is_forgotten_with_it() {
        let mut most = HashMap::new();
        let mut see = |id, gpu_seconds| {
            let tenants = vec![Tenant { id, gpu_seconds, ..Tenant::default() }];
            let mut status = Status { tenants, ..Status::default() };
            never_less(&mut most, &mut status);
            status.tenants[0].gpu_seconds
        };
        assert_eq!([see(1, 2.0), see(1, 1.5), see(1, 2.5), see(2, 1.0), see(1, 0.5)], [2.0, 2.0, 2.5, 1.0, 0.5]);
    }
}
