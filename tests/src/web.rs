//! A coordinator's page and metrics over HTTP, for tests that read them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::coordinator::Coordinator;
use crate::http::{self, Reply};
use crate::openmetrics::{self, Exposed};

use crate::LIMIT;

/// Where a page is, and its token.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its address.
    pub at: SocketAddr,
    /// The token that a reader has to know.
    pub token: String,
}

impl Page {
    /// The page of a coordinator that was started with `--http 127.0.0.1:0`.
    #[track_caller]
    pub fn of(coordinator: &Coordinator) -> Self {
        let said = coordinator.log();
        let (_, rest) = said.split_once("the page is at http://").expect("it says where");
        let (at, _) = rest.split_once('/').expect("a URL");
        let token = std::fs::read_to_string(coordinator.place.socket().with_extension("token")).unwrap_or_default();
        assert!(token.is_empty() || !said.contains(&token), "it is in no log");
        Self { at: at.parse().expect("an address"), token }
    }

    /// Asks for a path, with the token.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        http::get(self.at, path, &self.token)
    }

    /// Presses a button, as a browser would.
    #[track_caller]
    pub fn post(&self, body: &str) -> Reply {
        let (host, said) = (self.at.to_string(), format!("Bearer {}", self.token));
        let origin = format!("http://{host}");
        let headers = [("Authorization", said.as_str()), ("Origin", &origin), ("Content-Type", "application/json")];
        http::exchange(self.at, &http::request("POST", "/control", &host, &headers, body))
    }
}

/// Where a coordinator's metrics are, on a port that it was to choose.
#[track_caller]
pub fn metrics_port(coordinator: &Coordinator) -> SocketAddr {
    let said = coordinator.log();
    let (_, rest) = said.split_once("metrics at http://").expect("it says where");
    rest.split('/').next().and_then(|at| at.parse().ok()).expect("an address")
}

/// Where they are for this user.
pub fn metrics_socket(coordinator: &Coordinator) -> PathBuf {
    coordinator.place.socket().with_extension("metrics")
}

/// A coordinator's metrics, as they are.
#[track_caller]
pub fn metrics(coordinator: &Coordinator) -> Exposed {
    let reply = http::get_unix(&metrics_socket(coordinator), "/metrics");
    assert_eq!(reply.status, 200, "{reply:?}");
    openmetrics::read(&reply.body)
}

/// Asks again and again until two answers agree: one of them may be a second old.
#[track_caller]
pub fn until_same<T: PartialEq + std::fmt::Debug>(mut one: impl FnMut() -> T, mut other: impl FnMut() -> T) {
    let end = Instant::now() + LIMIT;
    loop {
        let (left, right) = (one(), other());
        if left == right {
            return;
        }
        assert!(Instant::now() < end, "they never agree: {left:?} and {right:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
