//! Metrics and a page about one coordinator, over HTTP.
//!
//! All of it runs in a thread of its own, in the coordinator's process, and asks the coordinator over its socket as any tool does. So
//! no request, however slow, ever reaches the coordinator's thread.
//!
//! | file | what it does |
//! |---|---|
//! | `limits` | connections: a limited number, each with limited time |
//! | `guard` | the checks that a request must pass before it is read |
//! | `token` | tokens |
//! | `site` | the answers of each listener |
//! | `metrics` | the state, as OpenMetrics |
//! | `page` | the page's files, and its buttons |
//! | `pods` | the source of programs' pods |
//! | `asker` | asks the coordinator for its status, once for all |
//! | `hub` | sends the news to all open pages |
//! | `live`, `lanes` | the content of these news |

mod answer;
mod asker;
mod guard;
mod health;
mod hub;
mod known;
mod lanes;
mod limits;
mod live;
mod metrics;
mod page;
mod pods;
mod site;
mod token;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

pub use metrics::{METRICS, Metric};
pub use pods::{Finding, Found, PodFinder};
pub use token::{NoToken, Token};

use asker::Asker;
use hub::Hub;
use limits::Listener;
use page::Page;
use site::Site;

/// Maximum number of connections of each listener. They use no more descriptors than that.
const OWN: usize = 16;
const SCRAPERS: usize = 32;
const PAGES: usize = 128;

/// The name of the thread that answers.
pub const THREAD: &str = "web";

/// The listeners, and their readers.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Metrics for this user: a socket that only they can reach.
    pub own: Option<UnixListener>,
    /// Metrics for all who can reach this address, and know the token if there is one.
    pub metrics: Option<(TcpListener, Option<Token>)>,
    /// The page.
    pub page: Option<Shown>,
    /// Finds the pods that metrics name.
    pub pods: Option<Box<dyn PodFinder>>,
}

/// The page, and its readers.
#[derive(Debug)]
pub struct Shown {
    /// The page's address.
    pub listener: TcpListener,
    /// The token that opens the page.
    pub token: Token,
    /// True if its buttons work.
    pub control: bool,
}

/// Listens on an address.
///
/// # Errors
///
/// Errors of `bind`.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
}

/// Shows the coordinator at this socket, from a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// If the system gives no thread, or no means to wait for events.
pub fn start(coordinator: PathBuf, listeners: Listeners) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .thread_name("web-asks")
        .build()?;
    let served = {
        let _entered = runtime.enter();
        serve(coordinator, listeners)?
    };
    std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || runtime.block_on(served))?;
    Ok(())
}

/// Prepares the listeners. The future that it returns serves them.
fn serve(coordinator: PathBuf, listeners: Listeners) -> io::Result<impl Future<Output = ()> + Send> {
    let asker = Arc::new(Asker::new(coordinator, listeners.pods));
    let mut all = Vec::new();
    if let Some(own) = listeners.own {
        own.set_nonblocking(true)?;
        let site = Site::Metrics { asker: Arc::clone(&asker), token: None, local: false };
        all.push((Listener::Unix(tokio::net::UnixListener::from_std(own)?), OWN, site));
    }
    if let Some((listener, token)) = listeners.metrics {
        let site = Site::Metrics { asker: Arc::clone(&asker), local: token.is_none(), token };
        all.push((tcp(listener)?, SCRAPERS, site));
    }
    let mut hub = None;
    if let Some(Shown { listener, token, control }) = listeners.page {
        let told = hub.insert(Arc::new(Hub::new(asker, control)));
        all.push((tcp(listener)?, PAGES, Site::Page(Page::new(Arc::clone(told), token, control))));
    }
    Ok(async move {
        for (listener, most, site) in all {
            tokio::spawn(limits::serve(listener, most, Arc::new(site)));
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
