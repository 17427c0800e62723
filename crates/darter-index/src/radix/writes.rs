//! WRITEs collected and sent in large batches, by which a bulk load fills memory that is not
//! visible yet.

use crate::Result;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_pool::Client;

/// Words collected before they are written.
const BATCH_WORDS: usize = 16 << 10;

/// Counts the words in a batch of WRITEs, so that it is sent before it gets too large.
#[derive(Debug, Default)]
pub struct Backlog {
    words: usize,
    /// Whether sending has failed.
    has_failed: bool,
}

impl Backlog {
    /// Records that `words` words were added to `batch`, and sends it if it is large enough.
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

    /// Sends `batch` and waits for it. An empty batch costs nothing.
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
    /// Adds a WRITE, and sends the WRITEs collected so far if they are large enough.
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

    /// Returns whether a batch of WRITEs has failed. If so, their objects must not be read: they
    /// may hold the contents of earlier objects.
    pub fn may_be_lost(&self) -> bool {
        self.backlog.has_failed
    }

    /// Adds a WRITE that is sent with the next batch.
    pub fn post(&mut self, addr: GlobalAddr, words: &[u64]) {
        self.batch.write(addr, words);
    }

    /// Sends the remaining WRITEs and waits for them.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn flush<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        self.backlog.send(client, &mut self.batch).await
    }

    /// Sends the remaining WRITEs, then one CAS: in the same round trip if all of them go to the
    /// memory node of `at`. Returns the previous content of the word.
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
