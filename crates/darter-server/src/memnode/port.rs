//! The port where an operator asks how a memory node does: `/metrics` and `/healthz` over HTTP, from a thread of its own
//! that reads the counters and touches nothing else.
//!
//! It is bounded like the data path: so many connections at once, a request's head of so many bytes, so many seconds for
//! all of it, one request a connection. It has no credentials, so it belongs on a network of the operator's.

use super::exposition::registry;
use super::metrics::{Health, MemNodeMetrics};
use super::{MemNodeError, system};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// From a connection's beginning to the end of its request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);
/// From a connection's beginning to the last byte of its answer.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Before trying again to accept, when the system would not.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves a memory node's numbers until dropped.
#[derive(Debug)]
pub struct MetricsPort {
    address: SocketAddr,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsPort {
    /// Listens at an address, port 0 for any.
    ///
    /// # Errors
    /// When the address is taken or the system refuses a thread.
    pub fn open(address: SocketAddr, metrics: Arc<MemNodeMetrics>) -> Result<Self, MemNodeError> {
        let listen = |source| MemNodeError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("set up the metrics thread"))?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(listen)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                runtime.spawn(accept(
                    listener,
                    Arc::new(Page { registry: registry(Arc::clone(&metrics)), metrics }),
                ));
                // An error is the other end being dropped, which is all it does; the runtime takes its tasks along.
                let _ = runtime.block_on(stopped);
            })
            .map_err(system("start the metrics thread"))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsPort {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is asked for.
struct Page {
    registry: Registry,
    metrics: Arc<MemNodeMetrics>,
}

async fn accept(listener: tokio::net::TcpListener, page: Arc<Page>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            let answer = hyper::service::service_fn(|request| std::future::ready(page.answer(&request)));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .max_headers(HEADERS_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            // Whoever asked badly or slowly has been answered or hung up on.
            let _ = tokio::time::timeout(TIME_MAX, connection).await;
            drop(place);
        });
    }
}

impl Page {
    fn answer(&self, request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
        const PLAIN: &str = "text/plain; charset=utf-8";
        let reply = |status, kind: &str, text: String| {
            Response::builder().status(status).header(CONTENT_TYPE, kind).body(Full::new(Bytes::from(text)))
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let answer = Response::builder().status(StatusCode::METHOD_NOT_ALLOWED);
            return answer.header(ALLOW, "GET, HEAD").body(Full::default());
        }
        match request.uri().path() {
            "/metrics" => {
                let mut text = String::new();
                match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
                    Ok(()) => {
                        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                        reply(StatusCode::OK, kind, text)
                    }
                    Err(_) => reply(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, String::new()),
                }
            }
            "/healthz" => {
                let (status, word) = match self.metrics.health() {
                    Health::Serving => (StatusCode::OK, "serving\n"),
                    Health::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
                    Health::Stuck => (StatusCode::SERVICE_UNAVAILABLE, "stuck\n"),
                };
                reply(status, PLAIN, word.to_owned())
            }
            _ => reply(StatusCode::NOT_FOUND, PLAIN, "try /metrics or /healthz\n".to_owned()),
        }
    }
}
