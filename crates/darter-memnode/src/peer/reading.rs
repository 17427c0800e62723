//! The requests of a client whose token is a read-only one: which of them are refused.

use super::Peer;
use crate::group::Group;
use crate::service::Service;
use crate::sessions::Access;
use darter_fabric::VerbKind;
use darter_fabric::local::LocalEndpoint;
use darter_fabric::member_lines::{MEMBER_LINE_BYTES, OwnLine};
use darter_fabric::wire::{FrameVerbs, FramedHead, RequestHead, RequestKind};

/// Why a request that would change data is refused.
const MAY_ONLY_READ: &str = "this session may only read, since its token is a read-only one; nothing was changed: to \
                             change data, open the pool with a token of the node's --token-file";

impl Peer {
    /// Returns why a request is refused because its session may only read; `None` if it is not.
    pub(super) fn beyond_reading(
        &self,
        kind: RequestKind,
        head: &RequestHead,
        payload: &[u8],
        service: &mut Service<'_>,
        endpoint: &LocalEndpoint,
    ) -> Option<&'static str> {
        if self.access == Access::Write {
            return None;
        }
        let verbs = match kind {
            RequestKind::Batch => payload,
            // A replica that does not serve refuses all frames.
            RequestKind::Framed if !service.group.as_ref().is_some_and(Group::serves) => return None,
            RequestKind::Framed => payload.get(size_of::<FramedHead>()..)?,
            RequestKind::Release => {
                self.leave_line(service, endpoint);
                return None;
            }
            RequestKind::Claim | RequestKind::Status | RequestKind::Digest => return None,
            RequestKind::Fence
            | RequestKind::Persist
            | RequestKind::Pair
            | RequestKind::Call
            | RequestKind::Relay
            | RequestKind::HandOver => return Some(MAY_ONLY_READ),
        };
        // A malformed request is refused as such.
        let verbs = FrameVerbs::new(verbs, head.verbs, service.options.frame_bytes_max)?;
        (!self.keeps_to_its_line(verbs, service, endpoint)).then_some(MAY_ONLY_READ)
    }

    /// Returns whether verbs change nothing but the session's member line.
    fn keeps_to_its_line(
        &self,
        mut verbs: FrameVerbs<'_>,
        service: &mut Service<'_>,
        endpoint: &LocalEndpoint,
    ) -> bool {
        let [_, changes @ ..] = verbs.counts();
        if changes == [0; 3] {
            return true;
        }
        let slot = service.sessions.line_of(self.session);
        let slot = slot.or_else(|| self.find_line(verbs.clone(), service, endpoint));
        let line = slot.map(|slot| OwnLine { slot, holder: self.session });
        line.is_some_and(|line| verbs.all(|(verb, carried)| line.may_change(&verb, carried)))
    }

    /// Returns the slot of the line that the first of these verbs changes, and records it, if the line
    /// says that this session holds it and this node does not know otherwise: the claim was made before
    /// the node was started, or before this replica served.
    fn find_line(
        &self,
        mut verbs: FrameVerbs<'_>,
        service: &mut Service<'_>,
        endpoint: &LocalEndpoint,
    ) -> Option<u64> {
        let (changed, _) = verbs.find(|(verb, _)| verb.kind != VerbKind::Read)?;
        let slot = OwnLine::slot_at(changed.addr.offset())?;
        let line = OwnLine { slot, holder: self.session };
        let bytes = read(line, endpoint)?;
        if !service.sessions.is_unclaimed(slot) || !line.is_held(&bytes) {
            return None;
        }
        service.sessions.hold_to_read(slot, self.session);
        Some(slot)
    }

    /// Lets the session's slot rest if its line says that a member is live there. Others will have to
    /// fence the session then.
    fn leave_line(&self, service: &mut Service<'_>, endpoint: &LocalEndpoint) {
        let line = service.sessions.line_of(self.session).map(|slot| OwnLine { slot, holder: self.session });
        let is_live =
            line.and_then(|line| read(line, endpoint)).is_some_and(|bytes| OwnLine::is_live(&bytes));
        if is_live {
            service.sessions.rest(self.session);
        }
    }
}

/// Returns the bytes of a line, if the region has it.
fn read(line: OwnLine, endpoint: &LocalEndpoint) -> Option<[u8; MEMBER_LINE_BYTES as usize]> {
    let mut bytes = [0; MEMBER_LINE_BYTES as usize];
    endpoint.copy_words(line.offset(), &mut bytes).ok()?;
    Some(bytes)
}
