//! The checks that a request must pass before it is read.
//!
//! A browser sends requests for any page that it shows. So a request from this machine is not trusted for that: a foreign name that
//! leads here (DNS rebinding) is refused, showing anything needs the token, which no other page knows, and changing anything needs a
//! request from our own page too.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};

use crate::answer::{Refused, other_method, refused};
use crate::token::Token;

/// Headers of each answer: a page may load only its own scripts and styles, be part of no other page, and be stored nowhere.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Sets these headers.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A header's text, if there is exactly one.
pub(crate) fn header<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<&'a str> {
    let mut all = request.headers().get_all(name).iter();
    all.next().filter(|_| all.next().is_none())?.to_str().ok()
}

/// Checks that a request only reads.
pub(crate) fn check_reading<B>(request: &Request<B>) -> Result<(), Refused> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(other_method("GET")),
    }
}

/// Checks that a request is for an address, or for this machine by name. An attacker can make any other name lead here.
pub(crate) fn check_host<B>(request: &Request<B>) -> Result<(), Refused> {
    let host = header(request, &header::HOST).unwrap_or_default();
    if is_ours(host) {
        return Ok(());
    }
    Err(refused(StatusCode::MISDIRECTED_REQUEST, baton_messages::open_by_an_address()))
}

fn is_ours(host: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::Ipv4Addr>().is_ok()
        || inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}

/// Checks that a request has the token.
pub(crate) fn check_token<B>(request: &Request<B>, token: &Token) -> Result<(), Refused> {
    let said_token = header(request, &header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if said_token.is_some_and(|said| token.is(said)) {
        return Ok(());
    }
    let refused = refused(StatusCode::UNAUTHORIZED, baton_messages::needs_the_token());
    Err(refused.with(header::WWW_AUTHENTICATE, "Bearer"))
}

/// Checks that a request comes from our own page.
pub(crate) fn check_origin<B>(request: &Request<B>) -> Result<(), Refused> {
    let host = header(request, &header::HOST).unwrap_or_default();
    let origin = header(request, &header::ORIGIN);
    let site = header(request, &SEC_FETCH_SITE);
    let is_own =
        origin.is_some_and(|origin| origin.strip_prefix("http://").is_some_and(|from| from.eq_ignore_ascii_case(host)));
    if is_own && matches!(site, None | Some("same-origin")) {
        return Ok(());
    }
    Err(refused(StatusCode::FORBIDDEN, baton_messages::only_for_the_page()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let request = headers.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("a request")
    }

    #[test]
    fn addresses_and_this_machine_are_ours_and_other_names_are_not() {
        for host in ["127.0.0.1:7878", "127.0.0.1", "localhost:80", "LOCALHOST", "[::1]:7878", "[::1]", "10.0.0.5:7878"]
        {
            assert!(check_host(&request(&[("host", host)])).is_ok(), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7878",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "::1",
            "a:b",
            "[::1",
        ] {
            assert!(check_host(&request(&[("host", host)])).is_err(), "{host}");
        }
        assert!(check_host(&request(&[])).is_err());
        assert!(check_host(&request(&[("host", "localhost"), ("host", "localhost")])).is_err(), "two of them");
    }

    #[test]
    fn only_our_own_page_may_change_anything() {
        let own = ("origin", "http://localhost:7878");
        let host = ("host", "localhost:7878");
        for headers in [vec![host, own], vec![host, own, ("sec-fetch-site", "same-origin")]] {
            assert!(check_origin(&request(&headers)).is_ok(), "{headers:?}");
        }
        for headers in [
            vec![host],
            vec![host, ("sec-fetch-site", "same-origin")],
            vec![host, ("origin", "http://evil.example")],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "http://localhost:9999")],
            vec![host, ("origin", "https://localhost:7878")],
            vec![host, own, ("sec-fetch-site", "cross-site")],
            vec![host, own, ("sec-fetch-site", "same-site")],
            vec![host, own, own],
        ] {
            assert!(check_origin(&request(&headers)).is_err(), "{headers:?}");
        }
    }

    #[test]
    fn a_token_has_to_be_the_one_and_said_once() {
        let token = Token::drawn().expect("random numbers");
        let right = format!("Bearer {}", token.text());
        assert!(check_token(&request(&[("authorization", &right)]), &token).is_ok());
        for wrong in [&right[..right.len() - 1], token.text(), "Bearer ", "Basic eDp5"] {
            assert!(check_token(&request(&[("authorization", wrong)]), &token).is_err(), "{wrong}");
        }
        assert!(check_token(&request(&[("authorization", &right), ("authorization", &right)]), &token).is_err());
    }
}
