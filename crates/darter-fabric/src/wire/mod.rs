//! Communication between a client and a memory node, for both ends: the format of frames, buffers
//! and sockets that never block, proofs of a shared token, TLS, files with credentials.
//!
//! It does not include how a client finds its nodes ([`crate::tcp`]) or how a node executes a frame
//! ([`crate::local::LocalEndpoint::execute_frame`], `darter-memnode`). Gateways use the buffers and
//! channels too.

mod buffer;
mod calls;
mod channel;
mod credentials;
mod format;
#[cfg(not(feature = "tls"))]
mod no_tls;
pub mod proof;
#[cfg(feature = "tls")]
mod tls;
mod verbs;
mod versions;

pub use buffer::{Inbox, Outbox};
pub use calls::{put_call, put_fault, take_call, take_fault, take_words};
pub use channel::Channel;
pub use credentials::{
    Content, Credential, CredentialStatus, Expiry, Loaded, SecretList, Secrets, SecretsError, Watched,
};
pub use format::{
    Challenge, Control, DIGEST_BYTES, Digest, FRAME_BYTES_MAX, FramedHead, GroupStatus, HEADER_BYTES, Hello,
    IS_DURABLE, IS_REPLICA, KNOWS_READ_ONLY, MAGIC, MESSAGE_BYTES_MAX, Opening, Pairing, READS_ONLY,
    RELAY_BYTES_MAX, RELAY_CHANNEL, Refusal, ReplyHead, RequestHead, RequestKind, SERVES_GROUP, SERVES_RDMA,
    SLOTS_MAX, TEXT_BYTES_MAX, TOKEN_BYTES_MAX, VERBS_MAX, VERSION, Welcome, as_bytes, error_of, head,
};
pub use tls::{ClientTls, NodeTls};
#[cfg(feature = "tls")]
pub use tls::{IdentityFiles, TlsError};
pub(crate) use verbs::take_answers;
pub use verbs::{FrameVerbs, first_verb, put_verb};
pub(crate) use versions::Answer;
pub use versions::Versions;

#[cfg(not(feature = "tls"))]
use no_tls as tls;
