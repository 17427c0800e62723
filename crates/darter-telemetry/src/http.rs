//! The HTTP port for operators of a daemon, served by its own thread. A [`Handler`] defines the
//! pages.
//!
//! The port has limits, like the data path: concurrent connections, bytes of a request's head,
//! seconds for a whole exchange, one request per connection, and concurrent responses that need
//! more than reading counters.

use header::{ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
pub use hyper::{StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::MissedTickBehavior;

/// Maximum concurrent connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// Maximum bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Maximum headers of a request.
const HEADERS_MAX: usize = 64;
/// Timeout from the start of a connection to the end of its request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);
/// Timeout from the start of a connection to the last byte of its response.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum concurrent blocking responses; a further request waits up to `BLOCKING_WAIT_MAX`, then
/// gets status 503.
const BLOCKING_MAX: usize = 4;
const BLOCKING_WAIT_MAX: Duration = Duration::from_secs(2);
/// Delay before the next attempt to accept a connection after the system refused one.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval between two calls of [`Handler::tick`].
const TICK: Duration = Duration::from_secs(1);
/// How long a response in progress may take when the port closes.
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// A response with its complete body.
pub type HttpResponse = Response<Full<Bytes>>;

/// The pages of a daemon.
pub trait Handler: Send + Sync + 'static {
    /// Handles a GET (or a HEAD, whose response is sent without its body).
    fn handle(self: Arc<Self>, request: &HttpRequest<'_>) -> Outcome;

    /// Called every second in the port's own thread, so it must not block.
    fn tick(&self) {}
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'r> {
    /// The path, without the query.
    pub path: &'r str,
    /// The query without the question mark, empty if there is none.
    pub query: &'r str,
    /// The header `Host`: the name under which the client reached this port.
    pub host: Option<&'r str>,
    /// The header `Authorization`.
    pub authorization: Option<&'r str>,
    /// The header `Accept`: the media types that the client can read.
    pub accept: Option<&'r str>,
}

/// How a response is produced.
pub enum Outcome {
    /// Immediately.
    Ready(HttpResponse),
    /// By work that may block, in a separate thread.
    Blocking(Box<dyn FnOnce() -> HttpResponse + Send>),
}

/// Returns a response of a content type, which must not be cached.
pub fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns a response of plain text.
pub fn text(status: StatusCode, body: &'static str) -> HttpResponse {
    response(status, "text/plain; charset=utf-8", body)
}

/// Errors of opening a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// Cannot listen on the address.
    #[error("cannot listen on {address} for HTTP: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused to start a thread.
    #[error("cannot start the thread that serves HTTP: {0}")]
    Thread(io::Error),
}

/// Serves a daemon's pages until dropped.
#[derive(Debug)]
pub struct HttpPort {
    address: SocketAddr,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpPort {
    /// Listens on an address; port 0 chooses a free port.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on, or the system refuses to start a thread.
    pub fn open(address: SocketAddr, handler: Arc<impl Handler>) -> Result<Self, PortError> {
        let listen = |source| PortError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_MAX)
            .build()
            .map_err(PortError::Thread)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(listen)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || {
                runtime.spawn(tick(Arc::clone(&handler)));
                runtime.spawn(accept(listener, handler));
                // An error means that the other end was dropped, which is the signal to stop; the
                // runtime drops its tasks.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_timeout(SHUTDOWN_MAX);
            })
            .map_err(PortError::Thread)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address that the port listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpPort {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn tick(handler: Arc<impl Handler>) {
    let mut seconds = tokio::time::interval(TICK);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        handler.tick();
    }
}

async fn accept(listener: tokio::net::TcpListener, handler: Arc<impl Handler>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let blocking = Arc::new(Semaphore::new(BLOCKING_MAX));
    // The semaphores are never closed.
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (handler, blocking) = (Arc::clone(&handler), Arc::clone(&blocking));
        tokio::spawn(async move {
            let respond = |request| respond(Arc::clone(&handler), Arc::clone(&blocking), request);
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .max_headers(HEADERS_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), hyper::service::service_fn(respond));
            // A client with a bad or slow request got its response or was disconnected.
            let _ = tokio::time::timeout(TIME_MAX, connection).await;
            drop(permit);
        });
    }
}

async fn respond(
    handler: Arc<impl Handler>,
    blocking: Arc<Semaphore>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    let header = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let request = HttpRequest {
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        host: header(HOST),
        authorization: header(AUTHORIZATION),
        accept: header(ACCEPT),
    };
    let work = match handler.handle(&request) {
        Outcome::Ready(response) => return Ok(response),
        Outcome::Blocking(work) => work,
    };
    let Ok(Ok(permit)) = tokio::time::timeout(BLOCKING_WAIT_MAX, blocking.acquire_owned()).await else {
        return Ok(text(StatusCode::SERVICE_UNAVAILABLE, "too many requests in progress; try again later\n"));
    };
    let worked = tokio::task::spawn_blocking(move || {
        let response = work();
        drop(permit);
        response
    });
    Ok(worked.await.unwrap_or_else(|_| text(StatusCode::INTERNAL_SERVER_ERROR, "the request failed\n")))
}
