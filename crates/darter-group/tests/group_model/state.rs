//! What the miniature consists of: replicas with logs, a store of views, clients with one operation
//! each under way.
//!
//! There are no messages between replicas. A record is applied straight from the primary's log and
//! an acknowledgement is read straight from the backup's state: a message that is late is a step
//! that is not taken yet, one that is lost a step that is never taken, and one that was sent before
//! its sender died might as well have come before that.

/// Replicas: A, B, C. One that comes back with nothing is another replica.
pub(crate) const REPLICAS: usize = 3;
/// Clients.
pub(crate) const CLIENTS: usize = 2;
/// Most records of a log.
pub(crate) const RECORDS_MAX: usize = 6;

/// An operation on the one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Op {
    /// A FAA of one.
    Add,
    Read,
    /// Shuts the other client out.
    Fence,
}

/// An error planted in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A write is answered before the backups have acknowledged it.
    ReplyBeforeAcks,
    /// A read is answered though the backups have not acknowledged what it shows.
    ReadBeforeAcks,
    /// Reads are answered without a lease, and backups suspect at once.
    NoLease,
    /// Resent frames are executed again.
    NoDuplicates,
    /// A backup takes records of another view than its own.
    NoViewCheck,
    /// A replica that comes back serves what it had.
    OldServes,
    /// A learner that lacks content becomes a backup.
    LearnerPromoted,
    /// A learner becomes a backup while the primary does not wait for its acknowledgements.
    LearnerUnawaited,
    /// A new primary does not know whom the one before has fenced.
    FencesForgotten,
    /// A record is lost, and the next one is taken.
    Gap,
    /// A replica that a view leaves out keeps its log, and goes on with it.
    SuffixKept,
    /// A new primary reads what the one before has executed as if all backups had it.
    FloorForgotten,
}

impl Flaw {
    pub(crate) const ALL: [Self; 12] = [
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
    ];
}

/// Who serves and who follows; all others learn. Sets are bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct View {
    pub(crate) number: u8,
    pub(crate) primary: u8,
    pub(crate) backups: u8,
}

/// One record: which operation of which client, and the view that it was made in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Record {
    pub(crate) view: u8,
    pub(crate) client: u8,
    pub(crate) index: u8,
    pub(crate) op: Op,
    /// It was lost on the way ([`Flaw::Gap`]).
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

    /// Whether the other log goes on where this one ends, as far as a replica can tell: by the view
    /// of this one's last record.
    pub(crate) fn is_begun_by(&self, beginning: &Self) -> bool {
        match beginning.len.checked_sub(1) {
            None => true,
            Some(last) => {
                self.get(last).map(|record| record.view) == beginning.get(last).map(|record| record.view)
            }
        }
    }

    /// The word's value, and who is fenced, after the first `records`.
    pub(crate) fn value(&self, records: u8) -> u8 {
        let adds = |record: &Record| record.op == Op::Add && !record.is_hole;
        self.iter().take(usize::from(records)).filter(adds).count() as u8
    }

    /// Where the record of a client's operation is.
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
    /// It may leave without a lease: it has an effect, or a lease held when it was executed.
    pub(crate) is_free: bool,
}

/// A memory node.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) is_alive: bool,
    /// The view that it goes by.
    pub(crate) view: View,
    pub(crate) log: Log,
    /// It has everything that was ever answered.
    pub(crate) is_sound: bool,
    /// A backup that acknowledges nothing and grants nothing any more in this view.
    pub(crate) suspects: bool,
    /// Backups that have answered a candidate.
    pub(crate) answered: u8,
    /// It has come back with the memory of a primary that was alone in its view.
    pub(crate) resumes: bool,
    /// It has asked the store for the next view, and does not know what came of it.
    pub(crate) has_proposed: bool,
    /// That request, while it is under way.
    pub(crate) proposal: Option<View>,
    /// A primary that hands over executes nothing.
    pub(crate) is_stopped: bool,
    /// Whether all backups grant it a lease.
    pub(crate) has_lease: bool,
    /// Learners that it waits for as for backups.
    pub(crate) extra: u8,
    /// Replicas that take its records.
    pub(crate) attached: u8,
    pub(crate) acked: [u8; REPLICAS],
    /// Nothing behind this record was ever answered.
    pub(crate) told: u8,
    pub(crate) held: [Option<Held>; CLIENTS],
}

/// A client: which operation, whether it waits, whom it asks, how often it may ask another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) index: u8,
    pub(crate) waits: bool,
    pub(crate) target: u8,
    pub(crate) switches: u8,
}

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// The views so far; the last one is the store's.
    pub(crate) views: [View; 5],
    pub(crate) current: u8,
    pub(crate) replicas: [Replica; REPLICAS],
    pub(crate) clients: [Client; CLIENTS],
    /// Requests in sockets: a bit for each replica, client and operation.
    pub(crate) requests: u16,
    /// Deaths that may still happen.
    pub(crate) deaths: u8,
    pub(crate) judgement: u32,
}

impl State {
    pub(crate) fn store(&self) -> View {
        self.views[usize::from(self.current)]
    }

    /// The same with the second and the third replica exchanged.
    pub(crate) fn mirrored(mut self) -> Self {
        let bits = |set: u8| set & 0b001 | (set & 0b010) << 1 | (set & 0b100) >> 1;
        let place = |index: u8| if index == 0 { 0 } else { 3 - index };
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
            replica.acked.swap(1, 2);
        }
        self.clients.iter_mut().for_each(|client| client.target = place(client.target));
        let requests = self.requests;
        self.requests = requests & 0x00f | (requests & 0x0f0) << 4 | (requests & 0xf00) >> 4;
        self
    }

    pub(crate) fn request(replica: usize, client: usize, index: u8) -> u16 {
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

    /// Whether its view has no other member.
    pub(crate) fn is_alone(&self, me: usize) -> bool {
        self.view.number > 0 && usize::from(self.view.primary) == me && self.view.backups == 0
    }

    /// The replicas whose acknowledgements count.
    pub(crate) fn awaited(&self) -> u8 {
        self.view.backups | self.extra
    }

    /// Records that all of them have.
    pub(crate) fn everywhere(&self) -> u8 {
        let all = (0..REPLICAS).filter(|&other| self.awaited() >> other & 1 != 0);
        all.map(|other| self.acked[other]).min().unwrap_or(self.log.len())
    }
}
