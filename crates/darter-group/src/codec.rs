//! Messages as bytes for transport over a wire, and entries as bytes for a log: little-endian words,
//! and runs of bytes prefixed with their lengths.
//!
//! ```text
//! message    kind 8 | its fields, in the order of their declaration
//!   view     group | number | primary | backups | each
//!   stream   view | primary | number
//!   position view | lsn
//!   record   position | kind: 0 frame, 1 fenced
//!              frame    session | channel | id | answered | results | effects
//!              fenced   session
//!   names    each
//!   beside   position | starts, each a position | channels | fenced, each a session
//!     channel  session | number | answered | frames, each: id | lsn | results
//! entry      kind 8 | its fields
//! logged     names | whole: 0 or 1 | beside
//! run        length in bytes 8 | the bytes
//! list       number of items 8 | each
//! ```
//!
//! The claimed length of a list is checked against the bytes that are present before anything is
//! allocated.

use super::disk::{Entry, Logged};
use super::duplicates::Duplicates;
use super::message::{Beside, Message};
use super::record::{Content, FrameId, Position, Record, StreamId};
use super::view::{ReplicaId, View};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl Message {
    /// Appends the message's bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut out = Put(out);
        match self {
            Self::View(view) => out.word(0).view(view),
            Self::Join => out.word(1),
            Self::Attach { stream, view } => out.word(2).stream(*stream).view(view),
            Self::Attached { stream, last } => {
                let last = last.map_or((0, Position::default()), |last| (1, last));
                out.word(3).stream(*stream).word(last.0).position(last.1)
            }
            Self::Resume { stream } => out.word(4).stream(*stream),
            Self::Begin { stream, state } => out.word(5).stream(*stream).beside(state),
            Self::Records { stream, records, everywhere } => {
                out.word(6).stream(*stream).word(*everywhere).records(records)
            }
            Self::Copy { stream, number, offset, bytes, content, is_last } => {
                out.word(7).stream(*stream).word(*number).word(*offset).word(*bytes).word((*is_last).into());
                match content {
                    Some(content) => out.word(1).run(content),
                    None => out.word(0),
                }
            }
            Self::Lost { stream } => out.word(8).stream(*stream),
            Self::Acknowledge { stream, lsn, copies } => out.word(9).stream(*stream).word(*lsn).word(*copies),
            Self::Heartbeat { view, sent, everywhere } => {
                out.word(10).view(view).time(*sent).word(*everywhere)
            }
            Self::Granted { view, sent } => out.word(11).word(*view).time(*sent),
            Self::Leave => out.word(14),
            Self::Return { view, names } => out.word(15).word(*view).names(names),
            Self::Survey { view, last } => out.word(12).word(*view).position(*last),
            Self::Surveyed { view, last, fits, records } => {
                out.word(13).word(*view).position(*last).word((*fits).into()).records(records)
            }
        };
    }

    /// Returns the message encoded by these bytes; `None` if they are not exactly one message.
    pub fn take(bytes: &[u8]) -> Option<Self> {
        let mut rest = Take(bytes);
        let message = match rest.word()? {
            0 => Self::View(rest.view()?),
            1 => Self::Join,
            2 => Self::Attach { stream: rest.stream()?, view: rest.view()? },
            3 => {
                let stream = rest.stream()?;
                let (is_some, last) = (rest.flag()?, rest.position()?);
                Self::Attached { stream, last: is_some.then_some(last) }
            }
            4 => Self::Resume { stream: rest.stream()? },
            5 => Self::Begin { stream: rest.stream()?, state: Arc::new(rest.beside()?) },
            6 => {
                let (stream, everywhere) = (rest.stream()?, rest.word()?);
                Self::Records { stream, records: rest.records()?, everywhere }
            }
            7 => {
                let (stream, number) = (rest.stream()?, rest.word()?);
                let (offset, bytes, is_last) = (rest.word()?, rest.word()?, rest.flag()?);
                let content = if rest.flag()? { Some(rest.run()?.into()) } else { None };
                Self::Copy { stream, number, offset, bytes, content, is_last }
            }
            8 => Self::Lost { stream: rest.stream()? },
            9 => Self::Acknowledge { stream: rest.stream()?, lsn: rest.word()?, copies: rest.word()? },
            10 => Self::Heartbeat { view: rest.view()?, sent: rest.time()?, everywhere: rest.word()? },
            11 => Self::Granted { view: rest.word()?, sent: rest.time()? },
            12 => Self::Survey { view: rest.word()?, last: rest.position()? },
            13 => {
                let (view, last, fits) = (rest.word()?, rest.position()?, rest.flag()?);
                Self::Surveyed { view, last, fits, records: rest.records()? }
            }
            14 => Self::Leave,
            15 => Self::Return { view: rest.word()?, names: rest.list(8, Take::word)? },
            _ => return None,
        };
        rest.0.is_empty().then_some(message)
    }
}

impl Entry {
    /// Appends the entry's bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut out = Put(out);
        match self {
            Self::Names(names) => _ = out.word(0).names(names),
            Self::Record(record) => out.word(1).record(record),
            Self::Began(beside) => _ = out.word(2).beside(beside),
            Self::Part { offset, content } => _ = out.word(3).word(*offset).run(content),
            Self::Whole => _ = out.word(4),
        }
    }

    /// Returns the entry encoded by these bytes; `None` if they are not exactly one entry.
    pub fn take(bytes: &[u8]) -> Option<Self> {
        let mut rest = Take(bytes);
        let entry = match rest.word()? {
            0 => Self::Names(rest.list(8, Take::word)?),
            1 => Self::Record(Arc::new(rest.record()?)),
            2 => Self::Began(Arc::new(rest.beside()?)),
            3 => Self::Part { offset: rest.word()?, content: rest.run()?.into() },
            4 => Self::Whole,
            _ => return None,
        };
        rest.0.is_empty().then_some(entry)
    }
}

impl Logged {
    /// Appends the state's bytes, without the newest records.
    pub fn put(&self, out: &mut Vec<u8>) {
        Put(out).names(&self.names).word(self.is_whole.into()).beside(&self.beside);
    }

    /// Returns the state encoded by these bytes; `None` if they are not exactly one state.
    pub fn take(bytes: &[u8]) -> Option<Self> {
        let mut rest = Take(bytes);
        let (names, is_whole, beside) = (rest.list(8, Take::word)?, rest.flag()?, rest.beside()?);
        rest.0.is_empty().then_some(Self { names, is_whole, beside, ..Self::default() })
    }
}

/// Buffer that bytes are appended to.
struct Put<'o>(&'o mut Vec<u8>);

impl Put<'_> {
    fn word(&mut self, word: u64) -> &mut Self {
        self.0.extend_from_slice(&word.to_le_bytes());
        self
    }

    fn run(&mut self, bytes: &[u8]) -> &mut Self {
        self.word(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, put: impl Fn(&mut Self, T)) -> &mut Self {
        self.word(items.len() as u64);
        items.for_each(|item| put(self, item));
        self
    }

    fn time(&mut self, time: Duration) -> &mut Self {
        self.word(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    fn view(&mut self, view: &View) -> &mut Self {
        self.word(view.group).word(view.number).word(view.primary);
        self.list(view.backups.iter(), |out, &id| _ = out.word(id))
    }

    fn names(&mut self, names: &BTreeSet<ReplicaId>) -> &mut Self {
        self.list(names.iter(), |out, &name| _ = out.word(name))
    }

    fn stream(&mut self, stream: StreamId) -> &mut Self {
        self.word(stream.view).word(stream.primary).word(stream.number)
    }

    fn position(&mut self, position: Position) -> &mut Self {
        self.word(position.view).word(position.lsn)
    }

    fn records(&mut self, records: &[Arc<Record>]) -> &mut Self {
        self.list(records.iter(), |out, record| out.record(record))
    }

    fn record(&mut self, record: &Record) {
        self.position(record.position);
        match &record.content {
            Content::Frame { frame, results, effects } => {
                self.word(0).word(frame.session).word(frame.channel.into()).word(frame.id);
                self.word(frame.answered).run(results).run(effects)
            }
            Content::Fenced(session) => self.word(1).word(*session),
        };
    }

    fn beside(&mut self, beside: &Beside) -> &mut Self {
        self.position(beside.last);
        self.list(beside.starts.iter(), |out, &start| _ = out.position(start));
        let channels = beside.duplicates.channels();
        self.list(channels, |out, ((session, channel), answered, frames)| {
            out.word(session).word(channel.into()).word(answered);
            out.list(frames.iter(), |out, (id, lsn, results)| _ = out.word(*id).word(*lsn).run(results));
        });
        self.list(beside.fenced.iter(), |out, &session| _ = out.word(session))
    }
}

/// Buffer that bytes are taken from, at its front.
struct Take<'b>(&'b [u8]);

impl<'b> Take<'b> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn flag(&mut self) -> Option<bool> {
        let word = self.word()?;
        (word <= 1).then_some(word == 1)
    }

    fn run(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.word()?).ok()?;
        let (run, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(run)
    }

    /// Takes a list whose items take at least the given number of bytes each.
    fn list<C: FromIterator<T>, T>(
        &mut self,
        bytes_min: usize,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<C> {
        let count = usize::try_from(self.word()?).ok()?;
        if count > self.0.len() / bytes_min {
            return None;
        }
        (0..count).map(|_| take(self)).collect()
    }

    fn time(&mut self) -> Option<Duration> {
        self.word().map(Duration::from_nanos)
    }

    fn view(&mut self) -> Option<Arc<View>> {
        let (group, number, primary) = (self.word()?, self.word()?, self.word()?);
        let backups = self.list(8, Self::word)?;
        Some(Arc::new(View { group, number, primary, backups }))
    }

    fn stream(&mut self) -> Option<StreamId> {
        Some(StreamId { view: self.word()?, primary: self.word()?, number: self.word()? })
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position { view: self.word()?, lsn: self.word()? })
    }

    fn records(&mut self) -> Option<Vec<Arc<Record>>> {
        self.list(32, |rest| rest.record().map(Arc::new))
    }

    fn channel(&mut self) -> Option<u32> {
        self.word().and_then(|number| u32::try_from(number).ok())
    }

    fn record(&mut self) -> Option<Record> {
        let position = self.position()?;
        let content = match self.word()? {
            0 => {
                let (session, channel) = (self.word()?, self.channel()?);
                let frame = FrameId { session, channel, id: self.word()?, answered: self.word()? };
                Content::Frame { frame, results: self.run()?.into(), effects: self.run()?.into() }
            }
            1 => Content::Fenced(self.word()?),
            _ => return None,
        };
        Some(Record { position, content })
    }

    fn beside(&mut self) -> Option<Beside> {
        let (last, starts) = (self.position()?, self.list(16, Self::position)?);
        let mut duplicates = Duplicates::default();
        let _channels: Vec<()> = self.list(32, |rest| {
            let (session, channel, answered) = (rest.word()?, rest.channel()?, rest.word()?);
            let frames = rest.list(24, |rest| Some((rest.word()?, rest.word()?, rest.run()?.into())))?;
            duplicates.put_channel((session, channel), answered, frames);
            Some(())
        })?;
        Some(Beside { last, starts, duplicates, fenced: self.list(8, Self::word)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let view = Arc::new(View { number: 7, ..View::bootstrap(u64::MAX, [2, 3]) });
        let stream = StreamId { view: 7, primary: 1, number: 9 };
        let (last, sent) = (Position { view: 6, lsn: 5 }, Duration::from_millis(1234));
        let frame = FrameId { session: 4, channel: u32::MAX, id: 12, answered: 11 };
        let contents = [
            Content::Frame { frame, results: [1; 16].into(), effects: [2; 24].into() },
            Content::Frame { frame, results: [].into(), effects: [].into() },
            Content::Fenced(3),
        ];
        let record = |(lsn, content)| Arc::new(Record { position: Position { view: 7, lsn }, content });
        let records: Vec<_> = (8..).zip(contents).map(record).collect();
        let mut state = Beside { last, starts: vec![last, last], ..Beside::default() };
        state.duplicates.executed(&frame, 12, [7; 8].into());
        state.fenced.extend([1, 5]);
        let state = Arc::new(state);
        let content = Some([5; 64].into());
        vec![
            Message::View(Arc::clone(&view)),
            Message::Join,
            Message::Leave,
            Message::Return { view: 7, names: [3, 9].into() },
            Message::Attach { stream, view: Arc::clone(&view) },
            Message::Attached { stream, last: Some(last) },
            Message::Attached { stream, last: None },
            Message::Resume { stream },
            Message::Begin { stream, state },
            Message::Records { stream, records: records.clone(), everywhere: 3 },
            Message::Copy { stream, number: 2, offset: 64, bytes: 64, content, is_last: true },
            Message::Copy { stream, number: 3, offset: 128, bytes: 64, content: None, is_last: false },
            Message::Lost { stream },
            Message::Acknowledge { stream, lsn: 3, copies: 4 },
            Message::Heartbeat { view, sent, everywhere: 6 },
            Message::Granted { view: 7, sent },
            Message::Survey { view: 7, last },
            Message::Surveyed { view: 7, last, fits: true, records },
        ]
    }

    #[test]
    fn messages_survive_as_bytes_and_parts_of_them_do_not() {
        for message in messages() {
            let mut bytes = Vec::new();
            message.put(&mut bytes);
            let again = Message::take(&bytes).map(|again| format!("{again:?}"));
            assert_eq!(again, Some(format!("{message:?}")));
            for keep in 0..bytes.len() {
                assert!(Message::take(&bytes[..keep]).is_none(), "{keep} bytes of {message:?}");
            }
            bytes.push(0);
            assert!(Message::take(&bytes).is_none(), "one more than {message:?}");
        }
    }

    #[test]
    fn entries_survive_as_bytes_and_parts_of_them_do_not() {
        let mut beside = Beside { last: Position { view: 6, lsn: 5 }, ..Beside::default() };
        beside.fenced.extend([1, 5]);
        let record = Record { position: Position { view: 7, lsn: 6 }, content: Content::Fenced(3) };
        for entry in [
            Entry::Names([4, 8].into()),
            Entry::Record(Arc::new(record)),
            Entry::Began(Arc::new(beside.clone())),
            Entry::Part { offset: 64, content: [5; 64].into() },
            Entry::Whole,
        ] {
            let mut bytes = Vec::new();
            entry.put(&mut bytes);
            assert_eq!(Entry::take(&bytes).as_ref(), Some(&entry));
            for keep in 0..bytes.len() {
                assert_eq!(Entry::take(&bytes[..keep]), None, "{keep} bytes of {entry:?}");
            }
        }
        let logged = Logged { names: [4].into(), is_whole: false, beside, ..Logged::default() };
        let mut bytes = Vec::new();
        logged.put(&mut bytes);
        let again = Logged::take(&bytes).unwrap();
        assert_eq!((again.names, again.is_whole, again.beside), (logged.names, false, logged.beside));
        assert!((0..bytes.len()).all(|keep| Logged::take(&bytes[..keep]).is_none()));
    }

    #[test]
    fn a_list_that_is_longer_than_its_bytes_is_refused_before_it_is_kept() {
        let mut bytes = Vec::new();
        Put(&mut bytes).word(6).word(1).word(1).word(1).word(0).word(u64::MAX);
        assert!(Message::take(&bytes).is_none());
    }
}
