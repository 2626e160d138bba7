//! Metrics and a page about the GPUs of one coordinator, over HTTP.
//!
//! All of it runs in a thread of its own, in the coordinator's process, and asks the coordinator over each GPU's socket as any tool does.
//! So no request, however slow, ever reaches a coordinator's thread.
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
//! | `asker` | asks for a GPU's status, once for all |
//! | `scrape` | the metrics of several GPUs, made once for all |
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
mod scrape;
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
use scrape::Scrape;
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
    /// The sockets of the coordinator's GPUs, each with one for its metrics that only this user can reach.
    pub gpus: Vec<(PathBuf, Option<UnixListener>)>,
    /// Metrics of all GPUs for all who can reach this address, and know the token if there is one.
    pub metrics: Option<(TcpListener, Option<Token>)>,
    /// The page about all GPUs.
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

/// Shows the coordinator of these GPUs, from a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// If the system gives no thread, or no means to wait for events.
pub fn start(listeners: Listeners) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .thread_name("web-asks")
        .build()?;
    let served = {
        let _entered = runtime.enter();
        serve(listeners)?
    };
    std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || runtime.block_on(served))?;
    Ok(())
}

/// Prepares the listeners. The future that it returns serves them.
fn serve(listeners: Listeners) -> io::Result<impl Future<Output = ()> + Send> {
    let pods: Option<Arc<dyn PodFinder>> = listeners.pods.map(Arc::from);
    let (mut all, mut askers) = (Vec::new(), Vec::new());
    for (socket, own) in listeners.gpus {
        let asker = Arc::new(Asker::new(socket, pods.clone()));
        if let Some(own) = own {
            own.set_nonblocking(true)?;
            let site = Site::Metrics { scrape: Scrape::of(vec![Arc::clone(&asker)]), token: None, local: false };
            all.push((Listener::Unix(tokio::net::UnixListener::from_std(own)?), OWN, site));
        }
        askers.push(asker);
    }
    if let Some((listener, token)) = listeners.metrics {
        let site = Site::Metrics { scrape: Scrape::of(askers.clone()), local: token.is_none(), token };
        all.push((tcp(listener)?, SCRAPERS, site));
    }
    let mut hubs = Vec::new();
    if let Some(Shown { listener, token, control }) = listeners.page {
        hubs = askers.iter().map(|asker| Arc::new(Hub::new(Arc::clone(asker), control))).collect();
        all.push((tcp(listener)?, PAGES, Site::Page(Page::new(hubs.clone(), Scrape::of(askers), token, control))));
    }
    Ok(async move {
        for (listener, most, site) in all {
            tokio::spawn(limits::serve(listener, most, Arc::new(site)));
        }
        for hub in hubs {
            tokio::spawn(async move { hub.run().await });
        }
        std::future::pending().await
    })
}

fn tcp(listener: TcpListener) -> io::Result<Listener> {
    listener.set_nonblocking(true)?;
    Ok(Listener::Tcp(tokio::net::TcpListener::from_std(listener)?))
}
