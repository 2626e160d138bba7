//! Tells whether the coordinator answers.

use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use crate::answer::{Answer, Refused, refused, said};
use crate::asker::{Asker, FRESH};
use crate::guard;

/// Answers `ok` if the coordinator answers.
pub(crate) async fn health(asker: &Asker, request: &Request<Incoming>) -> Result<Answer, Refused> {
    guard::check_reading(request)?;
    match asker.status(FRESH).await {
        Ok(_) => Ok(said(StatusCode::OK, "ok")),
        Err(error) => Err(refused(StatusCode::SERVICE_UNAVAILABLE, error)),
    }
}
