//! WRITEs collected and sent in large batches: how a bulk load fills memory that nobody can see
//! yet.

use crate::Result;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_pool::Client;

/// Words collected before they are written.
const BATCH_WORDS: usize = 16 << 10;

/// How many words wait in a batch of WRITEs, to be sent before there are too many.
#[derive(Debug, Default)]
pub struct Backlog {
    words: usize,
    /// Whether sending has failed.
    has_failed: bool,
}

impl Backlog {
    /// Notes that so many words were added to `batch`, and sends it if it is large enough.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn add<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        batch: &mut Batch,
        words: usize,
    ) -> Result<()> {
        self.words += words;
        if self.words >= BATCH_WORDS {
            self.send(client, batch).await?;
        }
        Ok(())
    }

    /// Sends `batch` and waits for it; an empty one costs nothing.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn send<F: Fabric>(&mut self, client: &mut Client<F>, batch: &mut Batch) -> Result<()> {
        self.words = 0;
        if !batch.is_empty() {
            if let Err(error) = client.complete(std::mem::take(batch)).await {
                self.has_failed = true;
                return Err(error.into());
            }
            *batch = client.batch();
        }
        Ok(())
    }
}

/// WRITEs that wait to be sent.
#[derive(Debug, Default)]
pub struct Writes {
    batch: Batch,
    backlog: Backlog,
}

impl Writes {
    /// Adds a WRITE, and sends what has come together if that is much.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn write<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        addr: GlobalAddr,
        words: &[u64],
    ) -> Result<()> {
        self.batch.write(addr, words);
        self.backlog.add(client, &mut self.batch, words.len()).await
    }

    /// Returns whether a batch of WRITEs has failed. Then their objects must not be read: they may
    /// hold the contents of earlier objects.
    pub fn may_be_lost(&self) -> bool {
        self.backlog.has_failed
    }

    /// Adds a WRITE that is sent with the next ones.
    pub fn post(&mut self, addr: GlobalAddr, words: &[u64]) {
        self.batch.write(addr, words);
    }

    /// Sends what is left and waits for it.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn flush<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        self.backlog.send(client, &mut self.batch).await
    }

    /// Sends what is left, and one CAS behind it: in the same round trip if all of it goes to the
    /// memory node of `at`. Returns what the word held.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn link<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        at: GlobalAddr,
        expected: u64,
        desired: u64,
    ) -> Result<u64> {
        if self.batch.verbs().iter().any(|verb| verb.addr.node() != at.node()) {
            self.flush(client).await?;
        }
        let mut batch = std::mem::take(&mut self.batch);
        self.backlog = Backlog::default();
        let cas = batch.cas(at, expected, desired);
        Ok(client.complete(batch).await?.found(cas))
    }
}
