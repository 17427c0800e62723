//! The status page of a gateway, and its data: `/` for browsers, `/status.json`, `/history.json`
//! and `/tree.json` for the page's script, `/metrics` for Prometheus, `/healthz` and `/readyz` for
//! supervisors and load balancers.
//!
//! The page is one response, assembled here from the files in `page/`; it loads nothing else. The
//! contents of the pool are untrusted: the script shows them as text and never as markup, and a
//! content security policy permits no other script. Responses are bounded. Walks over the tree
//! proceed in small steps (`survey.rs`), for a limited number of requests at a time
//! (`darter_telemetry::http`).
//!
//! If a password is set, the page and the tree require it, with Basic or Bearer authentication.
//! Without one they are served only to clients that use the gateway's address instead of a name,
//! which prevents DNS rebinding.

mod history;
mod metrics;
mod overview;
mod pool_map;
mod survey;
mod tree;

use super::acl::is_one_of;
use super::state::GatewayState;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use darter_fabric::random_word;
use darter_telemetry::exposition::scrape;
use darter_telemetry::http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, WWW_AUTHENTICATE,
};
use darter_telemetry::http::{Handler, HttpRequest, HttpResponse, Outcome, StatusCode, response, text};
use history::{History, HistoryQuery};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use survey::Survey;
use tokio::sync::Semaphore;

/// The page, with placeholders for its style, its script and the nonce that permits both.
const PAGE: &str = include_str!("page/page.html");
const NONCE: &str = "NONCE-OF-THIS-ANSWER";
const STYLE: (&str, &str) = ("STYLE-OF-THE-PAGE", include_str!("page/page.css"));
const SCRIPT: &str = "SCRIPT-OF-THE-PAGE";
/// The script, in parts that build on one another.
const SCRIPTS: [&str; 5] = [
    include_str!("page/units.js"),
    include_str!("page/charts.js"),
    include_str!("page/panels.js"),
    include_str!("page/tree.js"),
    include_str!("page/main.js"),
];
/// Most requests for parts of the tree in progress at once.
const TREES_MAX: usize = 2;
/// The age of a thread's last update of its counts from which the gateway counts as stuck; threads
/// update them twice a second.
const STUCK: Duration = Duration::from_secs(10);

/// The pages of a gateway.
#[derive(Debug)]
struct Status {
    shared: Arc<GatewayState>,
    survey: Survey,
    history: History,
    trees: Arc<Semaphore>,
}

/// Returns the HTTP handler of a gateway.
pub(super) fn handler(shared: &Arc<GatewayState>) -> Arc<impl Handler> {
    let survey = Survey::new(Arc::clone(shared));
    let trees = Arc::new(Semaphore::new(TREES_MAX));
    Arc::new(Status { shared: Arc::clone(shared), survey, history: History::new(), trees })
}

impl Handler for Status {
    fn handle(self: Arc<Self>, request: &HttpRequest<'_>) -> Outcome {
        match request.path {
            "/healthz" => return Outcome::Ready(health(&self.shared, Instant::now(), StatusCode::OK)),
            "/readyz" => {
                let degraded = StatusCode::SERVICE_UNAVAILABLE;
                return Outcome::Ready(health(&self.shared, Instant::now(), degraded));
            }
            "/metrics" => {
                let accept = request.accept.map(str::to_owned);
                return Outcome::Blocking(Box::new(move || {
                    self.survey.go_on();
                    scrape(&metrics::registry(self), accept.as_deref())
                }));
            }
            "/" | "/status.json" | "/history.json" | "/tree.json" => {}
            _ => {
                return Outcome::Ready(text(
                    StatusCode::NOT_FOUND,
                    "try / or /metrics or /healthz or /readyz\n",
                ));
            }
        }
        if let Some(refused) = self.refusal(request) {
            return Outcome::Ready(refused);
        }
        match request.path {
            "/" => Outcome::Ready(page()),
            "/status.json" => Outcome::Blocking(Box::new(move || {
                self.survey.go_on();
                as_json(StatusCode::OK, &overview::overview(&self.shared, &self.survey.result()))
            })),
            "/history.json" => match HistoryQuery::parse(request.query) {
                Ok(query) => Outcome::Blocking(Box::new(move || {
                    as_json(StatusCode::OK, &self.history.json(query, self.shared.uptime_ms()))
                })),
                Err(why) => Outcome::Ready(as_json(StatusCode::BAD_REQUEST, &json!({ "error": why }))),
            },
            _ => self.tree(request.query),
        }
    }

    fn tick(&self) {
        self.history.tick(&self.shared);
    }
}

fn as_json(status: StatusCode, value: &Value) -> HttpResponse {
    response(status, "application/json", value.to_string())
}

/// Returns the page with its style and script, and a new nonce for both. The policy also turns off
/// every function that would parse a string as markup or as a script (`trusted-types`).
fn page() -> HttpResponse {
    let nonce = format!("{:016x}{:016x}", random_word(), random_word());
    let page = PAGE.replace(NONCE, &nonce).replace(STYLE.0, STYLE.1).replace(SCRIPT, &SCRIPTS.concat());
    let mut page = response(StatusCode::OK, "text/html; charset=utf-8", page);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    );
    let headers = page.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let name = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(name, HeaderValue::from_static("same-origin"));
    page
}

impl Status {
    /// Handles a request for a node of the tree.
    fn tree(self: Arc<Self>, query: &str) -> Outcome {
        let prefix = match tree::prefix_of(query) {
            Ok(prefix) => prefix,
            Err(why) => {
                return Outcome::Ready(as_json(StatusCode::BAD_REQUEST, &json!({ "error": why })));
            }
        };
        let Ok(place) = Arc::clone(&self.trees).try_acquire_owned() else {
            let why = json!({ "error": "too many requests for the tree are in progress; try again" });
            return Outcome::Ready(as_json(StatusCode::SERVICE_UNAVAILABLE, &why));
        };
        Outcome::Blocking(Box::new(move || {
            let _place = place;
            match tree::below(&self.shared.store, &prefix) {
                Ok(tree) => as_json(StatusCode::OK, &tree),
                Err(error) => {
                    let why = json!({ "error": overview::cut(&error.to_string()) });
                    as_json(StatusCode::INTERNAL_SERVER_ERROR, &why)
                }
            }
        }))
    }

    /// Returns the response that rejects a request, if it may not see keys.
    fn refusal(&self, request: &HttpRequest<'_>) -> Option<HttpResponse> {
        let passwords = self.shared.options.password.current();
        if passwords.is_empty() {
            let why = "without --password-file this page is served only by its address, not by a name\n";
            let is_named = !request.host.is_none_or(is_address);
            return is_named.then(|| text(StatusCode::FORBIDDEN, why));
        }
        let shown = request.authorization.and_then(shown_password).unwrap_or_default();
        if is_one_of(&passwords, &shown) {
            return None;
        }
        let mut refused = text(StatusCode::UNAUTHORIZED, "the gateway's password is required\n");
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"darter\""));
        Some(refused)
    }
}

/// Returns the gateway's health, in a word, and the reason. A gateway whose pool fails is
/// `degraded`. Restarting it would not help, so supervisors get 200 and load balancers 503.
fn health(shared: &GatewayState, now: Instant, degraded: StatusCode) -> HttpResponse {
    let stuck = STUCK.as_millis() as u64;
    let is_stuck = |looked: u64| shared.uptime_ms().saturating_sub(looked) > stuck;
    if shared.is_stopping.load(Ordering::Relaxed) {
        text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if shared.threads.iter().any(|thread| is_stuck(thread.looked_ms.get())) {
        text(StatusCode::SERVICE_UNAVAILABLE, "stuck\n")
    } else if let Some(why) = shared.degraded(now) {
        response(degraded, "text/plain; charset=utf-8", format!("degraded: {}\n", overview::cut(&why)))
    } else {
        text(StatusCode::OK, "serving\n")
    }
}

/// Returns whether a `Host` header names an address, or this machine.
fn is_address(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map_or(host, |(name, _)| name);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// Returns the password in an `Authorization` header, for any user name.
fn shown_password(header: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(rest.trim()).ok()?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::options::GatewayOptions;
    use darter_fabric::FabricError;

    #[test]
    fn the_page_is_whole_and_names_its_nonce_where_it_is_needed() {
        assert_eq!(PAGE.matches(NONCE).count(), 2, "one for the style, one for the script");
        for placeholder in [STYLE.0, SCRIPT] {
            assert_eq!(PAGE.matches(placeholder).count(), 1, "{placeholder}");
        }
        let whole = [PAGE, STYLE.1, &SCRIPTS.concat()].concat();
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "DOMParser",
            "srcdoc",
            "src=",
            "style=",
            "onclick",
            "@import",
            "url(",
            "https:",
            "http:",
        ] {
            assert!(!whole.contains(markup), "{markup}");
        }
    }

    #[test]
    fn a_gateway_that_cannot_reach_a_node_lives_and_is_not_ready() {
        let shared = GatewayState::new(darter::Store::open("mem:16M").unwrap(), GatewayOptions::default());
        let statuses = |now| {
            [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE]
                .map(|degraded| health(&shared, now, degraded).status())
        };
        assert_eq!(statuses(Instant::now()), [StatusCode::OK; 2]);
        let failure = darter::Error::Fabric(FabricError::Unreachable { node: 7 });
        shared.note_of_walk(&Fault::Store(failure), false);
        assert_eq!(statuses(Instant::now()), [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE]);
        let why = shared.degraded(Instant::now()).unwrap();
        assert!(why.contains("memory node 7"), "{why}");
        assert_eq!(statuses(Instant::now() + Duration::from_secs(31)), [StatusCode::OK; 2]);
    }

    #[test]
    fn a_password_is_shown_in_either_way() {
        assert_eq!(shown_password("Bearer open sesame"), Some(b"open sesame".to_vec()));
        assert_eq!(shown_password("basic ZGVmYXVsdDpvcGVuOnNlc2FtZQ=="), Some(b"open:sesame".to_vec()));
        for header in ["", "Basic", "Basic !!", "Basic bm9jb2xvbg==", "Digest abc"] {
            assert_eq!(shown_password(header), None, "{header}");
        }
    }

    #[test]
    fn addresses_are_distinguished_from_names() {
        for host in ["127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:80", "localhost", "LOCALHOST:1"] {
            assert!(is_address(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil:1", "[x]"]
        {
            assert!(!is_address(host), "{host}");
        }
    }
}
