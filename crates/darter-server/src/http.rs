//! The port where an operator asks how a daemon does, over HTTP, from a thread of its own. What there is to ask is a [`Site`]'s.
//!
//! It is bounded like the data path: so many connections at once, a request's head of so many bytes, so many seconds for
//! all of it, one request a connection, so many answers at a time that need more than a look at counters.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's head at most.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// From a connection's beginning to the end of its request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);
/// From a connection's beginning to the last byte of its answer.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Answers at work at once; whoever comes beyond waits so long, and is told to come again.
const WORKS_MAX: usize = 4;
const WORK_WAIT_MAX: Duration = Duration::from_secs(2);
/// Before trying again to accept, when the system would not.
const PAUSE: Duration = Duration::from_millis(200);
/// How long an answer at work may take when the port closes.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// An answer as it is sent.
pub(crate) type Reply = Response<Full<Bytes>>;

/// What a daemon tells.
pub(crate) trait Site: Send + Sync + 'static {
    /// Answers a GET.
    fn answer(self: Arc<Self>, asked: &Asked<'_>) -> Answer;
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'r> {
    pub(crate) path: &'r str,
    /// What stands behind the question mark.
    pub(crate) query: &'r str,
    /// The name by which the asker reached us, where it says.
    pub(crate) host: Option<&'r str>,
    pub(crate) authorization: Option<&'r str>,
}

/// What comes of it.
pub(crate) enum Answer {
    /// At once.
    Now(Reply),
    /// By work that may wait, in a thread where that hurts nobody.
    Later(Box<dyn FnOnce() -> Reply + Send>),
}

/// An answer of a kind.
pub(crate) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// An answer of words.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> Reply {
    reply(status, "text/plain; charset=utf-8", text)
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The address cannot be listened on.
    #[error("{address}: cannot listen there for HTTP: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused a thread.
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
    /// Listens at an address, port 0 for any.
    pub(crate) fn open(address: SocketAddr, site: Arc<impl Site>) -> Result<Self, PortError> {
        let listen = |source| PortError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WORKS_MAX)
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
                runtime.spawn(accept(listener, site));
                // An error is the other end being dropped, which is all it does; the runtime takes its tasks along.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_timeout(END_PATIENCE);
            })
            .map_err(PortError::Thread)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
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

async fn accept(listener: tokio::net::TcpListener, site: Arc<impl Site>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let works = Arc::new(Semaphore::new(WORKS_MAX));
    // The semaphores are never closed.
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (site, works) = (Arc::clone(&site), Arc::clone(&works));
        tokio::spawn(async move {
            let answer = |request| respond(Arc::clone(&site), Arc::clone(&works), request);
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .max_headers(HEADERS_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer));
            // Whoever asked badly or slowly has been answered or hung up on.
            let _ = tokio::time::timeout(TIME_MAX, connection).await;
            drop(place);
        });
    }
}

async fn respond(
    site: Arc<impl Site>,
    works: Arc<Semaphore>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    let header = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let asked = Asked {
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        host: header(HOST),
        authorization: header(AUTHORIZATION),
    };
    let work = match site.answer(&asked) {
        Answer::Now(reply) => return Ok(reply),
        Answer::Later(work) => work,
    };
    let Ok(Ok(place)) = tokio::time::timeout(WORK_WAIT_MAX, works.acquire_owned()).await else {
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "too much is asked at once; come again\n"));
    };
    let worked = tokio::task::spawn_blocking(move || {
        let reply = work();
        drop(place);
        reply
    });
    Ok(worked.await.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "no answer came\n")))
}
