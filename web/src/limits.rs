//! The listeners: a limited number of connections, each with limited time, for any input.
//!
//! A connection on which a complete request is being answered stays. A connection that is only held open makes way for others, so
//! silent peers cannot keep others out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio_io_timeout::TimeoutStream;

use crate::answer::Busy;
use crate::site::Site;

/// Longest time for a request's head, and for a connection's rest between two requests.
const HEAD: Duration = Duration::from_secs(5);
/// Longest time in which a peer may read nothing of an answer.
const STALLED: Duration = Duration::from_secs(20);
/// Maximum size of a request's head, in bytes.
const HEAD_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;
/// Delay before the next attempt when no descriptor is left.
const AGAIN: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

impl Listener {
    async fn accept(&self) -> io::Result<Pin<Box<dyn Stream>>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Messages are written whole, so each is sent at once.
                stream.set_nodelay(true)?;
                Box::pin(stream)
            }
            Self::Unix(listener) => Box::pin(listener.accept().await?.0),
        })
    }
}

#[derive(Default)]
struct Places {
    count: u64,
    /// Connections in the order in which they came.
    taken: BTreeMap<u64, (Arc<AtomicUsize>, AbortHandle)>,
}

/// A place for a connection. Dropping it frees the place.
struct Place {
    number: u64,
    places: Arc<Mutex<Places>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.places).taken.remove(&self.number);
    }
}

fn locked(places: &Mutex<Places>) -> std::sync::MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves connections for ever.
pub(crate) async fn serve(listener: Listener, most: usize, site: Arc<Site>) {
    let places = Arc::new(Mutex::new(Places::default()));
    loop {
        let Ok(stream) = listener.accept().await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let mut there = locked(&places);
        if there.taken.len() >= most {
            let silent = there.taken.iter().find(|(_, (busy, _))| busy.load(Ordering::Relaxed) == 0);
            let Some((&number, _)) = silent else { continue };
            if let Some((_, task)) = there.taken.remove(&number) {
                task.abort();
            }
        }
        let (number, busy) = (there.count, Arc::new(AtomicUsize::new(0)));
        there.count += 1;
        let place = Place { number, places: Arc::clone(&places) };
        let task = tokio::spawn(serve_one(stream, Arc::clone(&site), Arc::clone(&busy), place));
        there.taken.insert(number, (busy, task.abort_handle()));
    }
}

async fn serve_one(stream: Pin<Box<dyn Stream>>, site: Arc<Site>, busy: Arc<AtomicUsize>, _place: Place) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALLED));
    let answer = service_fn(|request| {
        let (site, busy) = (Arc::clone(&site), Busy::new(&busy));
        async move { Ok::<_, Infallible>(site.answer(request, busy).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    // Any end is fine, also one with an error.
    let _ = server.serve_connection(TokioIo::new(Box::pin(stream)), answer).await;
}
