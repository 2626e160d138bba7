//! The answers of each listener: it has one site behind it.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header;
use hyper::{Request, StatusCode};

use crate::answer::{Answer, Busy, Refused, of_type, refused};
use crate::guard;
use crate::health::health;
use crate::metrics::{self, CLASSIC, OPENMETRICS};
use crate::page::Page;
use crate::scrape::Scrape;
use crate::token::Token;

/// The content behind a listener.
pub(crate) enum Site {
    /// Metrics; with a token, only for a request that has it. `local`: only programs of this machine can have sent a request, so one
    /// that names another host comes from a foreign page.
    Metrics {
        scrape: Arc<Scrape>,
        token: Option<Token>,
        local: bool,
    },
    Page(Page),
}

impl Site {
    pub(crate) async fn answer(&self, request: Request<Incoming>, busy: Busy) -> Answer {
        let answered = match self {
            Self::Metrics { scrape, token, local } => of_metrics(scrape, token.as_ref(), *local, &request).await,
            Self::Page(page) => page.answer(request, busy).await,
        };
        let mut answer = answered.unwrap_or_else(Refused::answer);
        guard::harden(answer.headers_mut());
        answer
    }
}

async fn of_metrics(
    scrape: &Arc<Scrape>,
    token: Option<&Token>,
    local: bool,
    request: &Request<Incoming>,
) -> Result<Answer, Refused> {
    if local {
        guard::check_host(request)?;
    }
    match request.uri().path() {
        "/healthz" => health(scrape, request).await,
        "/metrics" => {
            guard::check_reading(request)?;
            if let Some(token) = token {
                guard::check_token(request, token)?;
            }
            let heard = scrape.known().await;
            let heard = heard.map_err(|error| refused(StatusCode::SERVICE_UNAVAILABLE, error))?;
            let accepted = guard::header(request, &header::ACCEPT).unwrap_or_default();
            let is_classic = !metrics::is_openmetrics(accepted);
            let scrape = Arc::clone(scrape);
            let made = tokio::task::spawn_blocking(move || {
                let text = scrape.metrics(heard);
                if is_classic {
                    (metrics::classic(&String::from_utf8_lossy(&text)).into(), CLASSIC)
                } else {
                    (text, OPENMETRICS)
                }
            });
            match made.await {
                Ok((text, kind)) => Ok(of_type(text, kind)),
                Err(error) => Err(refused(StatusCode::INTERNAL_SERVER_ERROR, baton_messages::of_system(error))),
            }
        }
        _ => Err(refused(StatusCode::NOT_FOUND, baton_messages::there_are_metrics())),
    }
}
