//! Who is answered what: each listener has one site behind it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::asker::{Asker, FRESH};
use crate::door::Busy;
use crate::guard;
use crate::metrics::{self, CLASSIC, OPENMETRICS};
use crate::page::Page;
use crate::token::Token;

/// What is sent back.
pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What a listener shows.
pub(crate) enum Site {
    /// Metrics; with a token, only to whoever knows it. `local`: only what is on this machine can have sent a request, so one for
    /// another host's name comes from a page that has no business here.
    Metrics {
        asker: Arc<Asker>,
        token: Option<Token>,
        local: bool,
    },
    Page(Page),
}

impl Site {
    pub(crate) async fn answer(&self, request: Request<Incoming>, busy: Busy) -> Answer {
        let answered = match self {
            Self::Metrics { asker, token, local } => of_metrics(asker, token.as_ref(), *local, &request).await,
            Self::Page(page) => page.answer(request, busy).await,
        };
        let mut answer = answered.unwrap_or_else(Refused::answer);
        guard::harden(answer.headers_mut());
        answer
    }
}

async fn of_metrics(
    asker: &Asker,
    token: Option<&Token>,
    local: bool,
    request: &Request<Incoming>,
) -> Result<Answer, Refused> {
    if local {
        guard::check_host(request)?;
    }
    match request.uri().path() {
        "/healthz" => health(asker, request).await,
        "/metrics" => {
            guard::check_reading(request)?;
            if let Some(token) = token {
                guard::check_token(request, token)?;
            }
            let heard = asker.status(FRESH).await;
            let heard = heard.map_err(|error| refused(StatusCode::SERVICE_UNAVAILABLE, error))?;
            let accepted = guard::header(request, &header::ACCEPT).unwrap_or_default();
            let is_classic = !metrics::is_openmetrics(accepted);
            let made = tokio::task::spawn_blocking(move || {
                let text = heard.metrics();
                if is_classic {
                    (metrics::classic(&String::from_utf8_lossy(&text)).into(), CLASSIC)
                } else {
                    (text, OPENMETRICS)
                }
            });
            match made.await {
                Ok((text, kind)) => Ok(of_type(text, kind)),
                Err(error) => Err(refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
            }
        }
        _ => Err(refused(StatusCode::NOT_FOUND, "there is /metrics and /healthz")),
    }
}

/// Whether the coordinator answers.
pub(crate) async fn health(asker: &Asker, request: &Request<Incoming>) -> Result<Answer, Refused> {
    guard::check_reading(request)?;
    match asker.status(FRESH).await {
        Ok(_) => Ok(said(StatusCode::OK, "ok")),
        Err(error) => Err(refused(StatusCode::SERVICE_UNAVAILABLE, error)),
    }
}

/// A sentence.
pub(crate) fn said(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = of_type((text.into() + "\n").into(), "text/plain; charset=utf-8");
    *answer.status_mut() = status;
    answer
}

/// Something of a type.
pub(crate) fn of_type(text: Bytes, kind: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(text).boxed());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Why a request gets nothing.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    text: String,
    header: Option<(HeaderName, &'static str)>,
}

pub(crate) fn refused(status: StatusCode, text: impl Into<String>) -> Refused {
    Refused { status, text: text.into(), header: None }
}

impl Refused {
    /// With a header that says more.
    pub(crate) fn with(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    fn answer(self) -> Answer {
        let mut answer = said(self.status, self.text);
        if let Some((name, value)) = self.header {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

/// That a method does not fit.
pub(crate) fn other_method(allowed: &'static str) -> Refused {
    refused(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed} is answered here")).with(header::ALLOW, allowed)
}

/// A body that goes on until its sender ends.
pub(crate) struct Flow(pub(crate) mpsc::Receiver<Bytes>);

impl Body for Flow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
