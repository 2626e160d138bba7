//! Metrics and a page about one coordinator, over HTTP.
//!
//! All of it runs in a thread of its own, in the coordinator's process, and asks the coordinator over its socket as any tool does. So
//! whatever somebody sends, and however slowly, the coordinator's thread has nothing to do with it.
//!
//! | file | what it does |
//! |---|---|
//! | `door` | connections: so many, each with so much time |
//! | `guard` | what a request has to be before it is looked at |
//! | `token` | tokens |
//! | `site` | who is answered what |
//! | `metrics` | how things stand, as OpenMetrics |
//! | `page` | the page's files, and its buttons |
//! | `asker` | asks the coordinator how things stand, once for all |
//! | `hub` | tells all open pages |
//! | `live`, `lanes` | what they are told |

mod answer;
mod asker;
mod door;
mod guard;
mod health;
mod hub;
mod known;
mod lanes;
mod live;
mod metrics;
mod page;
mod site;
mod token;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

pub use metrics::{METRICS, Metric};
pub use token::{NoToken, Token};

use asker::Asker;
use door::Listener;
use hub::Hub;
use page::Page;
use site::Site;

/// How many may be connected at once, and no more descriptors are taken for them.
const OWN: usize = 16;
const SCRAPERS: usize = 32;
const PAGES: usize = 128;

/// What is shown to whom.
#[derive(Debug, Default)]
pub struct Doors {
    /// Metrics for this user: a socket that only they can reach.
    pub own: Option<UnixListener>,
    /// Metrics for whoever can reach this, and knows the token if there is one.
    pub metrics: Option<(TcpListener, Option<Token>)>,
    /// The page.
    pub page: Option<Shown>,
    /// kubelet's socket, for metrics that name pods.
    pub pod_resources: Option<PathBuf>,
}

/// The page, and for whom it is.
#[derive(Debug)]
pub struct Shown {
    /// Where it is.
    pub listener: TcpListener,
    /// Who knows this may see it.
    pub token: Token,
    /// Whether its buttons work.
    pub control: bool,
}

/// Listens at an address.
///
/// # Errors
///
/// As `bind`.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
}

/// Shows the coordinator at this socket, from a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// When the system gives no thread, or nothing to wait with.
pub fn start(coordinator: PathBuf, doors: Doors) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .thread_name("web-asks")
        .build()?;
    let served = {
        let _entered = runtime.enter();
        serve(coordinator, doors)?
    };
    std::thread::Builder::new().name("web".to_owned()).spawn(move || runtime.block_on(served))?;
    Ok(())
}

/// What is served, once somebody waits for it.
fn serve(coordinator: PathBuf, doors: Doors) -> io::Result<impl Future<Output = ()> + Send> {
    let asker = Arc::new(Asker::new(coordinator, doors.pod_resources));
    let mut all = Vec::new();
    if let Some(own) = doors.own {
        own.set_nonblocking(true)?;
        let site = Site::Metrics { asker: Arc::clone(&asker), token: None, local: false };
        all.push((Listener::Unix(tokio::net::UnixListener::from_std(own)?), OWN, site));
    }
    if let Some((listener, token)) = doors.metrics {
        let site = Site::Metrics { asker: Arc::clone(&asker), local: token.is_none(), token };
        all.push((tcp(listener)?, SCRAPERS, site));
    }
    let mut hub = None;
    if let Some(Shown { listener, token, control }) = doors.page {
        let told = hub.insert(Arc::new(Hub::new(asker, control)));
        all.push((tcp(listener)?, PAGES, Site::Page(Page::new(Arc::clone(told), token, control))));
    }
    Ok(async move {
        for (listener, most, site) in all {
            tokio::spawn(door::serve(listener, most, Arc::new(site)));
        }
        match hub {
            Some(hub) => hub.run().await,
            None => std::future::pending().await,
        }
    })
}

fn tcp(listener: TcpListener) -> io::Result<Listener> {
    listener.set_nonblocking(true)?;
    Ok(Listener::Tcp(tokio::net::TcpListener::from_std(listener)?))
}
