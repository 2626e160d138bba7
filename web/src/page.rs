//! The page: its files, its content, and the actions of its buttons.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use baton_client as client;
use baton_contract::class::Class;
use baton_contract::messages::{MAX_NAME, Opening};
use baton_contract::scheduling::Change;
use baton_messages::Message;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use crate::answer::{Answer, Busy, Flow, Refused, of_type, other_method, refused};
use crate::asker::FRESH;
use crate::guard;
use crate::health::health;
use crate::hub::Hub;
use crate::scrape::Scrape;
use crate::token::Token;

/// Maximum number of pages open at once.
pub(crate) const STREAMS: usize = 64;
/// Maximum number of buttons' actions at once.
const ACTIONS: usize = 4;
/// Maximum size of a button's request in bytes, and the longest time for it to arrive.
const SAID_BYTES: usize = 4 << 10;
const SAYING: Duration = Duration::from_secs(5);

/// All files of the page. They are part of the program, and contain no secret.
const FILES: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../page/page.js")),
    ("/ribbon.js", "text/javascript; charset=utf-8", include_str!("../page/ribbon.js")),
    ("/tables.js", "text/javascript; charset=utf-8", include_str!("../page/tables.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
];

/// The page of one coordinator.
pub(crate) struct Page {
    /// The news of each GPU.
    pub(crate) hubs: Vec<Arc<Hub>>,
    pub(crate) scrape: Arc<Scrape>,
    pub(crate) token: Token,
    /// True if its buttons work.
    pub(crate) control: bool,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) actions: Arc<Semaphore>,
}

/// The action of a button.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Action {
    Suspend { name: String },
    Resume { name: String },
    Evict { name: String },
    Class { name: String, class: String },
}

impl Page {
    pub(crate) fn new(hubs: Vec<Arc<Hub>>, scrape: Arc<Scrape>, token: Token, control: bool) -> Self {
        let [streams, actions] = [STREAMS, ACTIONS].map(|most| Arc::new(Semaphore::new(most)));
        Self { hubs, scrape, token, control, streams, actions }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>, busy: Busy) -> Result<Answer, Refused> {
        guard::check_host(&request)?;
        let path = request.uri().path();
        if let Some((_, kind, text)) = FILES.iter().find(|(name, ..)| *name == path) {
            guard::check_reading(&request)?;
            return Ok(of_type(Bytes::from_static(text.as_bytes()), kind));
        }
        match path {
            "/healthz" => health(&self.scrape, &request).await,
            "/events" => {
                guard::check_reading(&request)?;
                guard::check_token(&request, &self.token)?;
                self.events(self.hub(&request)?, busy)
            }
            "/state.json" => {
                guard::check_reading(&request)?;
                guard::check_token(&request, &self.token)?;
                match self.hub(&request)?.now().await {
                    Some(state) => Ok(of_type(state, "application/json")),
                    None => {
                        Err(refused(StatusCode::SERVICE_UNAVAILABLE, baton_messages::coordinator_does_not_answer()))
                    }
                }
            }
            "/gpus.json" => {
                guard::check_reading(&request)?;
                guard::check_token(&request, &self.token)?;
                Ok(of_type(self.gpus().await.into(), "application/json"))
            }
            "/control" => {
                if request.method() != Method::POST {
                    return Err(other_method("POST"));
                }
                guard::check_token(&request, &self.token)?;
                guard::check_origin(&request)?;
                if !self.control {
                    return Err(refused(StatusCode::FORBIDDEN, baton_messages::page_only_shows()));
                }
                self.act(request).await
            }
            _ => Err(refused(StatusCode::NOT_FOUND, baton_messages::nothing_is_here())),
        }
    }

    /// The GPU that a request is about: by its place among those that the coordinator serves, `?gpu=1`; without a word, the first.
    fn hub(&self, request: &Request<Incoming>) -> Result<&Arc<Hub>, Refused> {
        let asked = request.uri().query().and_then(|query| query.split('&').find_map(|part| part.strip_prefix("gpu=")));
        let found = asked.map_or(Some(0), |number| number.parse().ok()).and_then(|number: usize| self.hubs.get(number));
        found.ok_or_else(|| refused(StatusCode::NOT_FOUND, baton_messages::nothing_is_here()))
    }

    /// The name and UUID of each GPU, in order; null for one that does not answer.
    async fn gpus(&self) -> String {
        let mut all = Vec::new();
        for hub in &self.hubs {
            let known = hub.asker().status(FRESH).await.ok();
            all.push(known.map(|known| json!({ "name": known.status.gpu.name, "uuid": known.status.gpu.uuid })));
        }
        json!(all).to_string()
    }

    /// Streams events to a page until it is closed.
    fn events(&self, hub: &Arc<Hub>, busy: Busy) -> Result<Answer, Refused> {
        let Ok(place) = Arc::clone(&self.streams).try_acquire_owned() else {
            let many = baton_messages::many_pages(STREAMS);
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, many).with(header::RETRY_AFTER, "5"));
        };
        // The channel holds one message: a slower page misses some, and then gets everything anew.
        let (sender, receiver) = mpsc::channel(1);
        let hub = Arc::clone(hub);
        tokio::spawn(async move {
            hub.tell(sender).await;
            drop((place, busy));
        });
        let mut answer = Response::new(Flow(receiver).boxed());
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        Ok(answer)
    }

    async fn act(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        let socket = self.hub(&request)?.asker().socket().to_owned();
        let Ok(place) = Arc::clone(&self.actions).try_acquire_owned() else {
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, baton_messages::many_requests()));
        };
        if guard::header(&request, &header::CONTENT_TYPE) != Some("application/json") {
            return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, baton_messages::say_it_as_json()));
        }
        let body = Limited::new(request.into_body(), SAID_BYTES).collect();
        let body = match tokio::time::timeout(SAYING, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                let large = baton_messages::request_is_too_large(SAID_BYTES);
                return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, large));
            }
            Err(_) => return Err(refused(StatusCode::REQUEST_TIMEOUT, baton_messages::request_is_too_slow())),
        };
        let asked: Result<Action, _> = serde_json::from_slice(&body);
        let asked = asked.map_err(|error| refused(StatusCode::BAD_REQUEST, baton_messages::request_is_wrong(error)))?;
        let question = opening(asked).map_err(|error| refused(StatusCode::BAD_REQUEST, error))?;
        let is_eviction = matches!(question, Opening::Evict { .. });
        let answered = tokio::task::spawn_blocking(move || {
            let answer = client::ask(&socket, &question);
            drop(place);
            answer
        });
        let told = |status, error: &dyn Display| Err(refused(status, baton_messages::answered(error)));
        match answered.await {
            Ok(Ok(text)) => {
                let answer: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
                answer["error"].as_str().map_or_else(
                    || Ok(of_type(Bytes::from_static(b"{}"), "application/json")),
                    |error| told(StatusCode::CONFLICT, &error),
                )
            }
            Ok(Err(_)) if is_eviction => told(StatusCode::GATEWAY_TIMEOUT, &baton_messages::work_has_not_ended()),
            Ok(Err(error)) => told(StatusCode::BAD_GATEWAY, &error),
            Err(error) => told(StatusCode::INTERNAL_SERVER_ERROR, &error),
        }
    }
}

/// Returns the request to the coordinator for this action.
fn opening(action: Action) -> Result<Opening, Message> {
    let set = |name, change| Opening::Set { name, change };
    let usual = Change::default();
    let opening = match action {
        Action::Suspend { name } => set(name, Change { suspended: Some(true), ..usual }),
        Action::Resume { name } => set(name, Change { suspended: Some(false), ..usual }),
        Action::Class { name, class } => {
            let class = class.parse::<Class>().map_err(baton_messages::request_is_wrong)?;
            set(name, Change { class: Some(class), ..usual })
        }
        Action::Evict { name } => Opening::Evict { name },
    };
    match &opening {
        Opening::Set { name, .. } | Opening::Evict { name } if name.len() > MAX_NAME => {
            Err(baton_messages::name_is_too_long(MAX_NAME))
        }
        _ => Ok(opening),
    }
}
