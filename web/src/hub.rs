//! The stream of news for all open pages. The coordinator is asked once for all of them, and only while pages are open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use baton_client as client;
use baton_messages::Message;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};

use crate::asker::Asker;
use crate::live::Live;

/// Shortest time between two requests to the coordinator.
const PERIOD: Duration = Duration::from_millis(500);
/// Asking a coordinator that has much to tell takes at most one part in this many of the time, unless a page has just been opened.
const REST: u32 = 15;
/// Longest wait between two requests.
const LONGEST: Duration = Duration::from_secs(3);
/// Maximum number of answers about events that are read at once: as many as a coordinator keeps.
const ANSWERS: usize = 80;
/// Age up to which a tick is sent to a new page.
const RECENT: Duration = Duration::from_secs(4);

/// The state at one moment.
#[derive(Debug)]
struct Tick {
    number: u64,
    at: Instant,
    /// The message for a page that knows nothing yet, and the one for a page that knows the tick before. Without the second, the
    /// coordinator has not answered, and the first gives the reason.
    all: Bytes,
    news: Option<Bytes>,
}

/// Sends the state to all pages.
#[derive(Debug)]
pub(crate) struct Hub {
    asker: Arc<Asker>,
    ticks: watch::Sender<Arc<Tick>>,
    wanted: Notify,
    live: Arc<Mutex<Live>>,
}

impl Hub {
    pub(crate) fn new(asker: Arc<Asker>, control: bool) -> Self {
        let first = Tick { number: 0, at: Instant::now(), all: Bytes::new(), news: None };
        let live = Arc::new(Mutex::new(Live::new(control)));
        Self { asker, ticks: watch::Sender::new(Arc::new(first)), wanted: Notify::new(), live }
    }

    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// Asks while any page listens, for ever.
    pub(crate) async fn run(&self) {
        for number in 1.. {
            while self.ticks.receiver_count() == 0 {
                self.wanted.notified().await;
            }
            let start = Instant::now();
            let (all, news) = match self.ask().await {
                Ok((all, news)) => (all, Some(news)),
                Err(error) => (serde_json::json!({ "error": error.to_string() }).to_string().into(), None),
            };
            self.ticks.send_replace(Arc::new(Tick { number, at: Instant::now(), all, news }));
            let took = start.elapsed();
            tokio::time::sleep(PERIOD.saturating_sub(took)).await;
            let rest = (took * REST).min(LONGEST).saturating_sub(PERIOD);
            // A new page gets the state at once.
            let _ = tokio::time::timeout(rest, self.wanted.notified()).await;
        }
    }

    async fn ask(&self) -> Result<(Bytes, Bytes), Message> {
        let known = self.asker.status(Duration::ZERO).await?;
        let (live, socket) = (Arc::clone(&self.live), self.asker.socket().to_owned());
        let made = tokio::task::spawn_blocking(move || {
            let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..ANSWERS {
                let history = client::events(&socket, live.next())?;
                live.hear(&history);
                if !history.more {
                    break;
                }
            }
            Ok(live.show(&known.status))
        });
        made.await.unwrap_or_else(|error| Err(baton_messages::of_system(error)))
    }

    fn listen(&self) -> watch::Receiver<Arc<Tick>> {
        let ticks = self.ticks.subscribe();
        self.wanted.notify_one();
        ticks
    }

    /// Sends one page the whole state, and then the news, until the page is closed.
    pub(crate) async fn tell(&self, page: mpsc::Sender<Bytes>) {
        let (mut ticks, mut last) = (self.listen(), None);
        loop {
            let tick = Arc::clone(&ticks.borrow_and_update());
            if tick.number > 0 && tick.at.elapsed() < RECENT && last != Some(tick.number) {
                let knows_before = last.is_some_and(|last| last + 1 == tick.number);
                let text = tick.news.as_ref().filter(|_| knows_before).unwrap_or(&tick.all);
                let message = [b"data: ", text.as_ref(), b"\n\n"].concat();
                if page.send(message.into()).await.is_err() {
                    return;
                }
                // After a failed request, everything is sent again.
                last = tick.news.as_ref().map(|_| tick.number);
            }
            tokio::select! {
                changed = ticks.changed() => if changed.is_err() { return },
                () = page.closed() => return,
            }
        }
    }

    /// Returns the present state, as a page gets it first; none if the coordinator does not answer.
    pub(crate) async fn now(&self) -> Option<Bytes> {
        let mut ticks = self.listen();
        ticks.mark_unchanged();
        ticks.changed().await.ok()?;
        let tick = Arc::clone(&ticks.borrow());
        tick.news.as_ref().map(|_| tick.all.clone())
    }
}
