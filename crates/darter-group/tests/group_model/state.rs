//! State of the model: replicas with logs, a store of views, clients with one operation each in
//! progress.
//!
//! Replicas exchange no messages. A record is applied directly from the primary's log, and an
//! acknowledgement is read directly from the backup's state. A late message is a step that is not
//! taken yet; a lost message is a step that is never taken; a message that was sent before its
//! sender died could have arrived before the death.

/// Replicas: A, B, C, and the names of those that return. A replica that returns is a new replica.
pub(crate) const REPLICAS: usize = 5;
/// Clients.
pub(crate) const CLIENTS: usize = 2;
/// Maximum number of records in a log.
pub(crate) const RECORDS_MAX: usize = 6;

/// An operation on the one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Op {
    /// A FAA of one.
    Add,
    Read,
    /// Fences the other client.
    Fence,
}

/// An error planted in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A write returns before the backups have acknowledged it.
    ReplyBeforeAcks,
    /// A read returns although the backups have not acknowledged the record that it shows.
    ReadBeforeAcks,
    /// Reads are served without a lease, and backups suspect at once.
    NoLease,
    /// Resent frames are executed again.
    NoDuplicates,
    /// A backup accepts records of another view than its own.
    NoViewCheck,
    /// A replica that returns serves its old memory.
    OldServes,
    /// A learner that lacks content becomes a backup.
    LearnerPromoted,
    /// A learner becomes a backup while the primary does not wait for its acknowledgements.
    LearnerUnawaited,
    /// A new primary does not know the clients that the previous one fenced.
    FencesForgotten,
    /// A record is lost, and the next one is accepted.
    Gap,
    /// A replica that a view leaves out keeps its log and continues with it.
    SuffixKept,
    /// A new primary treats the previous primary's executions as if all backups had them.
    FloorForgotten,
    /// A durable backup acknowledges records that its log may lose.
    AckBeforeSync,
    /// A durable primary replies before its own log has the record.
    OwnSyncForgotten,
    /// A replica that returns with its log requests a view although its earlier self has granted a
    /// lease.
    LeaseForgotten,
    /// A replica that returns with its log requests a view although the current one does not name
    /// it.
    LogOfEarlierView,
}

impl Flaw {
    pub(crate) const ALL: [Self; 16] = [
        Self::ReplyBeforeAcks,
        Self::ReadBeforeAcks,
        Self::NoLease,
        Self::NoDuplicates,
        Self::NoViewCheck,
        Self::OldServes,
        Self::LearnerPromoted,
        Self::LearnerUnawaited,
        Self::FencesForgotten,
        Self::Gap,
        Self::SuffixKept,
        Self::FloorForgotten,
        Self::AckBeforeSync,
        Self::OwnSyncForgotten,
        Self::LeaseForgotten,
        Self::LogOfEarlierView,
    ];
}

/// The primary and the backups; all others are learners. Sets are bit masks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct View {
    pub(crate) number: u8,
    pub(crate) primary: u8,
    pub(crate) backups: u8,
}

/// One record: the client's operation, and the view in which it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Record {
    pub(crate) view: u8,
    pub(crate) client: u8,
    pub(crate) index: u8,
    pub(crate) op: Op,
    /// It was lost in transit ([`Flaw::Gap`]).
    pub(crate) is_hole: bool,
}

/// The records that a replica has, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Log {
    records: [Option<Record>; RECORDS_MAX],
    len: u8,
}

impl Log {
    pub(crate) fn len(&self) -> u8 {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Record> + '_ {
        self.records[..usize::from(self.len)].iter().flatten().copied()
    }

    pub(crate) fn get(&self, at: u8) -> Option<Record> {
        if at < self.len { self.records[usize::from(at)] } else { None }
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records[usize::from(self.len)] = Some(record);
        self.len += 1;
    }

    pub(crate) fn truncate(&mut self, len: u8) {
        self.records[usize::from(len)..].fill(None);
        self.len = self.len.min(len);
    }

    /// Whether `beginning` is a prefix of this log, as far as a replica can tell: by the view of
    /// its last record.
    pub(crate) fn is_begun_by(&self, beginning: &Self) -> bool {
        match beginning.len.checked_sub(1) {
            None => true,
            Some(last) => {
                self.get(last).map(|record| record.view) == beginning.get(last).map(|record| record.view)
            }
        }
    }

    /// The word's value and the fenced clients after the first `records`.
    pub(crate) fn value(&self, records: u8) -> u8 {
        let adds = |record: &Record| record.op == Op::Add && !record.is_hole;
        self.iter().take(usize::from(records)).filter(adds).count() as u8
    }

    /// Index of the record of a client's operation.
    pub(crate) fn find(&self, client: u8, index: u8) -> Option<u8> {
        let is_it = |record: Record| (record.client, record.index, record.is_hole) == (client, index, false);
        self.iter().position(is_it).map(|at| at as u8)
    }
}

/// A reply that waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Held {
    pub(crate) index: u8,
    pub(crate) result: u8,
    /// Records that all backups must have.
    pub(crate) need: u8,
    /// It may leave without a lease: it has an effect, or a lease was held when it was executed.
    pub(crate) is_free: bool,
}

/// A memory node.
#[allow(clippy::struct_excessive_bools)] // each is an independent fact
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) is_alive: bool,
    /// The view that it uses.
    pub(crate) view: View,
    pub(crate) log: Log,
    /// Records that a power failure leaves in the log.
    pub(crate) synced: u8,
    /// Its earlier names, under which its log has acknowledged records.
    pub(crate) formers: u8,
    /// It has every record on which a reply was ever based.
    pub(crate) is_sound: bool,
    /// A backup that no longer acknowledges or grants anything in this view.
    pub(crate) suspects: bool,
    /// Backups that have replied to its survey.
    pub(crate) answered: u8,
    /// It has returned with the memory of a primary that was alone in its view.
    pub(crate) resumes: bool,
    /// It has requested the next view from the store, and does not know the outcome.
    pub(crate) has_proposed: bool,
    /// That request, while it is in flight.
    pub(crate) proposal: Option<View>,
    /// A primary that hands over executes nothing.
    pub(crate) is_stopped: bool,
    /// Whether all backups grant it a lease.
    pub(crate) has_lease: bool,
    /// Learners whose acknowledgements it awaits like those of backups.
    pub(crate) extra: u8,
    /// Replicas that accept its records.
    pub(crate) attached: u8,
    pub(crate) acked: [u8; REPLICAS],
    /// No record after this one was ever the basis of a reply.
    pub(crate) told: u8,
    pub(crate) held: [Option<Held>; CLIENTS],
}

/// A client: its current operation, whether it waits, the replica that it contacts, and how often
/// it may switch to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) index: u8,
    pub(crate) waits: bool,
    pub(crate) target: u8,
    pub(crate) switches: u8,
}

/// The whole state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// The views so far; the last one is the store's.
    pub(crate) views: [View; 5],
    pub(crate) current: u8,
    pub(crate) replicas: [Replica; REPLICAS],
    pub(crate) clients: [Client; CLIENTS],
    /// Requests in sockets: a bit for each replica, client and operation.
    pub(crate) requests: u32,
    /// Deaths that may still happen.
    pub(crate) deaths: u8,
    pub(crate) judgement: u32,
}

impl State {
    pub(crate) fn store(&self) -> View {
        self.views[usize::from(self.current)]
    }

    /// The same state with the second and the third replica exchanged.
    pub(crate) fn mirrored(mut self) -> Self {
        let bits = |set: u8| set & !0b110 | (set & 0b010) << 1 | (set & 0b100) >> 1;
        let place = |index: u8| if index == 1 || index == 2 { 3 - index } else { index };
        let mirrored = |view: View| View {
            number: view.number,
            primary: if view.number == 0 { 0 } else { place(view.primary) },
            backups: bits(view.backups),
        };
        self.views = self.views.map(mirrored);
        self.replicas.swap(1, 2);
        for replica in &mut self.replicas {
            replica.view = mirrored(replica.view);
            replica.proposal = replica.proposal.map(mirrored);
            replica.answered = bits(replica.answered);
            replica.extra = bits(replica.extra);
            replica.attached = bits(replica.attached);
            replica.formers = bits(replica.formers);
            replica.acked.swap(1, 2);
        }
        self.clients.iter_mut().for_each(|client| client.target = place(client.target));
        let requests = self.requests;
        self.requests = requests & !0xff0 | (requests & 0x0f0) << 4 | (requests & 0xf00) >> 4;
        self
    }

    pub(crate) fn request(replica: usize, client: usize, index: u8) -> u32 {
        1 << (replica * 4 + client * 2 + usize::from(index))
    }
}

impl Replica {
    pub(crate) fn is_primary(&self, me: usize) -> bool {
        self.is_alive && self.is_sound && self.view.number > 0 && usize::from(self.view.primary) == me
    }

    pub(crate) fn is_backup(&self, me: usize) -> bool {
        self.is_alive && self.view.backups >> me & 1 != 0
    }

    /// Whether its view names it under an earlier name. Its log has all that it acknowledged.
    pub(crate) fn stands_in(&self) -> bool {
        let View { number, primary, backups } = self.view;
        self.is_alive && self.is_sound && number > 0 && self.formers & (backups | 1 << primary) != 0
    }

    /// Whether its view has no other member.
    pub(crate) fn is_alone(&self, me: usize) -> bool {
        self.view.number > 0 && usize::from(self.view.primary) == me && self.view.backups == 0
    }

    /// The replicas whose acknowledgements count.
    pub(crate) fn awaited(&self) -> u8 {
        self.view.backups | self.extra
    }

    /// Records that all awaited replicas have.
    pub(crate) fn everywhere(&self) -> u8 {
        let all = (0..REPLICAS).filter(|&other| self.awaited() >> other & 1 != 0);
        all.map(|other| self.acked[other]).min().unwrap_or(self.log.len())
    }
}
