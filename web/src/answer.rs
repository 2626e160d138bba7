//! Answers to requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use baton_messages::Message;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

/// The answer that is sent back.
pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Answers with a sentence.
pub(crate) fn said(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = of_type((text.into() + "\n").into(), "text/plain; charset=utf-8");
    *answer.status_mut() = status;
    answer
}

/// Answers with content of a type.
pub(crate) fn of_type(text: Bytes, kind: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(text).boxed());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The reason why a request is refused.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    text: String,
    header: Option<(HeaderName, &'static str)>,
}

pub(crate) fn refused(status: StatusCode, message: Message) -> Refused {
    Refused { status, text: message.into(), header: None }
}

impl Refused {
    /// Adds a header that says more.
    pub(crate) fn with(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    pub(crate) fn answer(self) -> Answer {
        let mut answer = said(self.status, self.text);
        if let Some((name, value)) = self.header {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

/// Refuses a method.
pub(crate) fn other_method(allowed: &'static str) -> Refused {
    refused(StatusCode::METHOD_NOT_ALLOWED, baton_messages::other_method(allowed)).with(header::ALLOW, allowed)
}

/// A body that ends when its sender does.
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

/// Marks a connection as busy while its request is being answered.
#[derive(Debug)]
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Busy {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
