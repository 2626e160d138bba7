//! The state of the GPUs' coordinators: their responses, and the memory of their programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton_client as client;
use serde_json::Value;
use tokio::sync::watch;

/// Delay between two rounds of questions.
const PERIOD: Duration = Duration::from_secs(2);

/// The state of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// True if its coordinator answers.
    pub(crate) is_healthy: bool,
    /// Memory of its programs, on the GPU and on the host.
    pub(crate) used_bytes: u64,
}

/// The states of all GPUs, in their order.
#[derive(Debug)]
pub(crate) struct Health {
    sockets: Vec<PathBuf>,
    states: watch::Sender<Vec<State>>,
}

impl Health {
    pub(crate) fn new(sockets: Vec<PathBuf>) -> Self {
        let states = watch::Sender::new(vec![State::default(); sockets.len()]);
        Self { sockets, states }
    }

    /// Returns the states, now and after each change.
    pub(crate) fn states(&self) -> watch::Receiver<Vec<State>> {
        self.states.subscribe()
    }

    /// Asks all coordinators once.
    pub(crate) async fn look(&self) {
        let asked = self.sockets.iter().cloned().map(|socket| tokio::task::spawn_blocking(move || state(&socket)));
        let asked: Vec<_> = asked.collect();
        let mut states = Vec::with_capacity(asked.len());
        for state in asked {
            states.push(state.await.unwrap_or_default());
        }
        self.states.send_if_modified(|known| {
            for ((was, is), socket) in known.iter().zip(&states).zip(&self.sockets) {
                match (was.is_healthy, is.is_healthy) {
                    (false, true) => baton_messages::info!(coordinator_answers(socket.display())),
                    (true, false) => baton_messages::warn!(coordinator_is_silent(socket.display())),
                    _ => {}
                }
            }
            let is_new = *known != states;
            *known = states;
            is_new
        });
    }

    /// Asks all coordinators again and again.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.look().await;
        }
    }
}

/// Returns the state of a coordinator's GPU.
fn state(socket: &Path) -> State {
    let Ok(text) = client::status(socket) else { return State::default() };
    let Ok(status) = serde_json::from_slice::<Value>(&text) else { return State::default() };
    let bytes = |tenant: &Value| {
        let of = |name: &str| tenant[name].as_u64().unwrap_or_default();
        of("resident_bytes") + of("evicted_bytes")
    };
    let used_bytes = status["tenants"].as_array().map_or(0, |tenants| tenants.iter().map(bytes).sum());
    State { is_healthy: true, used_bytes }
}
