//! `CLIENT TRACKING`, `CLIENT CACHING` and `CLIENT TRACKINGINFO`; and what commands do for clients that
//! track keys: they enter the keys that they read, and report those that they have changed.

use super::permission::keys_used;
use crate::call::{Caching, Call};
use crate::clients::ClientInfo;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::Changes;
use crate::number;
use crate::state::GatewayState;
use crate::table::{Command, CommandId};
use crate::tracking::{Mode, Settings, report};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most prefixes of a client.
const PREFIXES_MAX: usize = 1000;

/// The changes of a command that are not reported yet. If they never are, because the client's task
/// was ended in the middle, all keys count as changed.
pub(super) struct Unreported<'s> {
    shared: &'s GatewayState,
    is_reported: bool,
}

impl Drop for Unreported<'_> {
    fn drop(&mut self) {
        if !self.is_reported {
            report(self.shared, Changes::Everything, None);
        }
    }
}

/// Prepares the keyspace for the changes of the next command.
#[inline]
pub(super) fn begin<'s>(call: &mut Call<'s>) -> Unreported<'s> {
    call.keys.begin_changes(call.shared.are_changes_wanted());
    Unreported { shared: call.shared, is_reported: false }
}

impl Unreported<'_> {
    /// Reports the changes of a command that has run, whether or not it has failed.
    pub(super) fn report(mut self, call: &mut Call<'_>) {
        report(self.shared, call.keys.take_changes(), Some(call.client.info.id));
        self.is_reported = true;
    }
}

/// Lets a client that tracks keys track those that a command reads. Must be called before it reads
/// them.
#[inline]
pub(super) fn will_read(call: &Call<'_>, command: &Command) {
    if call.client.tracking.is_some() && command.is("readonly") {
        track(call, command);
    }
}

#[cold]
fn track(call: &Call<'_>, command: &Command) {
    let Some(tracking) = &call.client.tracking else { return };
    let is_tracked = match tracking.settings.mode {
        Mode::Read => true,
        Mode::OptIn => call.client.caching == Caching::Exception,
        Mode::OptOut => call.client.caching == Caching::Usual,
        Mode::Broadcast(_) => false,
    };
    // The scripts' own commands count.
    let is_script = matches!(command.id, CommandId::EvalRo | CommandId::EvalshaRo | CommandId::FcallRo);
    if !is_tracked || is_script {
        return;
    }
    if let Some(keys) = &call.client.script_keys {
        tracking.will_read(keys.iter().map(Vec::as_slice));
        return;
    }
    let keys = keys_used(command, &call.args, 0);
    if !keys.is_empty() {
        tracking.will_read(keys.iter().map(|key| call.args.get(key.at)));
    }
}

/// The options of `CLIENT TRACKING`.
#[derive(Default)]
struct Options<'a> {
    redirection: Option<Arc<ClientInfo>>,
    prefixes: Vec<&'a [u8]>,
    words: Vec<Word>,
}

/// An option without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Broadcast,
    OptIn,
    OptOut,
    WithoutOwn,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Fault> {
        let (args, mut options, mut at) = (call.args, Self::default(), 3);
        while at < args.len() {
            let value = (at + 1 < args.len()).then(|| args.get(at + 1));
            match (&args.get(at).to_ascii_lowercase()[..], value) {
                (b"redirect", Some(id)) => {
                    if options.redirection.is_some() {
                        return Err(Fault::said("ERR A client can only redirect to a single other client"));
                    }
                    let id = number::integer(id).ok_or(NO_INTEGER)?;
                    let found = u64::try_from(id).ok().and_then(|id| call.shared.clients.find(id));
                    let none = || Fault::said("ERR The client ID you want redirect to does not exist");
                    options.redirection = Some(found.ok_or_else(none)?);
                    at += 1;
                }
                (b"prefix", Some(prefix)) => {
                    options.prefixes.push(prefix);
                    at += 1;
                }
                (b"bcast", _) => options.words.push(Word::Broadcast),
                (b"optin", _) => options.words.push(Word::OptIn),
                (b"optout", _) => options.words.push(Word::OptOut),
                (b"noloop", _) => options.words.push(Word::WithoutOwn),
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }

    fn has(&self, word: Word) -> bool {
        self.words.contains(&word)
    }

    /// Fails if the options are not compatible with each other, or with the mode so far.
    fn check(&self, before: Option<&Mode>) -> Result<(), Fault> {
        let switched = |what: &str| {
            Fault::said(format!(
                "ERR You can't switch {what} before disabling tracking for this client, and then re-enabling it with a \
                 different mode."
            ))
        };
        let prefixes = match before {
            Some(Mode::Broadcast(prefixes)) => Some(prefixes),
            _ => None,
        };
        if !self.has(Word::Broadcast) && !self.prefixes.is_empty() {
            return Err(Fault::said("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if before.is_some() && prefixes.is_some() != self.has(Word::Broadcast) {
            return Err(switched("BCAST mode on/off"));
        }
        if self.has(Word::Broadcast) && (self.has(Word::OptIn) || self.has(Word::OptOut)) {
            return Err(Fault::said("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.has(Word::OptIn) && self.has(Word::OptOut) {
            return Err(Fault::said("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        if self.has(Word::OptIn) && before == Some(&Mode::OptOut)
            || self.has(Word::OptOut) && before == Some(&Mode::OptIn)
        {
            return Err(switched("OPTIN/OPTOUT mode"));
        }
        self.check_prefixes(prefixes.unwrap_or(&BTreeSet::new()))
    }

    /// Fails if two prefixes, or one and an earlier one, are the beginning of the same keys.
    fn check_prefixes(&self, before: &BTreeSet<Vec<u8>>) -> Result<(), Fault> {
        if before.len() + self.prefixes.len() > PREFIXES_MAX {
            return Err(Fault::said(format!("ERR a client can track at most {PREFIXES_MAX} prefixes")));
        }
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        let fault = |one: &[u8], other: &[u8], which: &str| {
            let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
            Fault::said(format!(
                "ERR Prefix '{one}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not overlap."
            ))
        };
        for (at, one) in self.prefixes.iter().enumerate() {
            if let Some(other) = before.iter().find(|other| overlap(one, other)) {
                return Err(fault(one, other, "an existing"));
            }
            if let Some(other) = self.prefixes[at + 1..].iter().find(|other| overlap(one, other)) {
                return Err(fault(one, other, "another provided"));
            }
        }
        Ok(())
    }

    fn settings(self, before: Option<&Mode>) -> Settings {
        let mode = match before {
            _ if self.has(Word::OptIn) => Mode::OptIn,
            _ if self.has(Word::OptOut) => Mode::OptOut,
            _ if !self.has(Word::Broadcast) => Mode::Read,
            before => {
                let mut all = BTreeSet::new();
                if let Some(Mode::Broadcast(prefixes)) = before {
                    all.clone_from(prefixes);
                }
                if self.prefixes.is_empty() {
                    all.insert(Vec::new());
                }
                all.extend(self.prefixes.iter().map(|prefix| prefix.to_vec()));
                Mode::Broadcast(all)
            }
        };
        let is_without_own = self.has(Word::WithoutOwn);
        Settings { mode, redirection: self.redirection, is_without_own }
    }
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix]… [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`.
pub(super) async fn tracking(call: &mut Call<'_>) -> Result<(), Fault> {
    let options = Options::parse(call)?;
    match &call.args.get(2).to_ascii_lowercase()[..] {
        b"on" => {
            let before = call.client.tracking.take();
            let mode = before.as_ref().map(|before| before.settings.mode.clone());
            if let Err(fault) = options.check(mode.as_ref()) {
                call.client.tracking = before;
                return Err(fault);
            }
            let settings = options.settings(mode.as_ref());
            call.client.tracking = Some(match before {
                Some(before) => before.with(settings),
                None => call.shared.tracking.begin(&call.client.info, settings, &call.shared.peers).await,
            });
        }
        b"off" => (call.client.tracking, call.client.caching) = (None, Caching::Usual),
        _ => return Err(SYNTAX),
    }
    call.reply.ok();
    Ok(())
}

/// `CLIENT CACHING YES|NO`.
pub(super) fn caching(call: &mut Call<'_>) -> Result<(), Fault> {
    let Some(tracking) = &call.client.tracking else {
        return Err(Fault::said(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match (&call.args.get(2).to_ascii_lowercase()[..], &tracking.settings.mode) {
        (b"yes", Mode::OptIn) | (b"no", Mode::OptOut) => {}
        (b"yes", _) => {
            return Err(Fault::said(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        (b"no", _) => {
            return Err(Fault::said(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(SYNTAX),
    }
    call.client.caching = Caching::Exception;
    call.reply.ok();
    Ok(())
}

/// `CLIENT TRACKINGINFO`.
pub(super) fn tracking_info(call: &mut Call<'_>) {
    let (is_caching, info) = (call.client.caching == Caching::Exception, &call.client.info);
    let settings = call.client.tracking.as_ref().map(|tracking| Arc::clone(&tracking.settings));
    let mode = settings.as_ref().map(|settings| &settings.mode);
    let flags = [
        (Some(if mode.is_some() { "on" } else { "off" })),
        matches!(mode, Some(Mode::Broadcast(_))).then_some("bcast"),
        (mode == Some(&Mode::OptIn)).then_some("optin"),
        (mode == Some(&Mode::OptIn) && is_caching).then_some("caching-yes"),
        (mode == Some(&Mode::OptOut)).then_some("optout"),
        (mode == Some(&Mode::OptOut) && is_caching).then_some("caching-no"),
        settings.as_ref().is_some_and(|settings| settings.is_without_own).then_some("noloop"),
        info.tracking.is_broken().then_some("broken_redirect"),
    ];
    let reply = &mut call.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.iter().flatten().count());
    flags.iter().flatten().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(info.tracking.redirection());
    reply.bulk(b"prefixes");
    let none = BTreeSet::new();
    let prefixes = if let Some(Mode::Broadcast(prefixes)) = mode { prefixes } else { &none };
    reply.array(prefixes.len());
    for prefix in prefixes {
        reply.bulk(prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::GatewayOptions;
    use darter::Store;
    use tokio::runtime::Builder;

    #[test]
    fn a_command_that_is_cut_off_counts_as_a_change_of_all_keys() {
        let shared = GatewayState::new(Store::open("mem:16M").unwrap(), GatewayOptions::default());
        let address = "127.0.0.1:1".parse().unwrap();
        let info = shared.clients.admit(address, address, 0, false);
        let settings = Settings { mode: Mode::Read, redirection: None, is_without_own: false };
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let tracking = runtime.block_on(shared.tracking.begin(&info, settings, &shared.peers));
        let count = || {
            let mut count = 0;
            info.mail.mailbox(1 << 20).take_all(|message| {
                assert!(message.bytes.is_empty());
                count += 1;
            });
            count
        };
        drop(Unreported { shared: &shared, is_reported: true });
        assert_eq!(count(), 0);
        drop(Unreported { shared: &shared, is_reported: false });
        assert_eq!(count(), 1);
        drop(tracking);
        drop(Unreported { shared: &shared, is_reported: false });
        assert_eq!(count(), 0);
    }
}
