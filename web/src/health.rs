//! Tells if the coordinator answers.

use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use crate::answer::{Answer, Refused, refused, said};
use crate::guard;
use crate::scrape::Scrape;

/// Answers `ok` if the coordinator answers for each GPU.
pub(crate) async fn health(scrape: &Scrape, request: &Request<Incoming>) -> Result<Answer, Refused> {
    guard::check_reading(request)?;
    match scrape.known().await {
        Ok(_) => Ok(said(StatusCode::OK, "ok")),
        Err(error) => Err(refused(StatusCode::SERVICE_UNAVAILABLE, error)),
    }
}
