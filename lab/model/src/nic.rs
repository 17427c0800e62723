//! The resources that work waits for: servers that process work sequentially, and their costs.

use super::parameters::ModelSpec;

/// Virtual time in picoseconds: fine enough for a word at 400 Gbit/s, with a range of half a year.
pub(super) type Ps = u64;

/// Picoseconds in a nanosecond.
pub(super) const PS: u64 = 1000;

/// A queue with one server.
///
/// It accepts work when the work is known, not when it becomes ready, and then reserves its time:
/// the sum of the work is never exceeded, and work that is ready early need not wait for work
/// reserved before it that is ready late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Server {
    /// When all reserved work would be done.
    free_at: Ps,
    /// Time spent working.
    pub busy: Ps,
}

impl Server {
    /// Returns when all reserved work would be done.
    pub(super) fn free_at(&self) -> Ps {
        self.free_at
    }

    /// Queues work of `service` that is known `now` and ready at `ready`; returns when it begins
    /// and when it is done.
    #[inline]
    pub(super) fn serve(&mut self, now: Ps, ready: Ps, service: Ps) -> (Ps, Ps) {
        let start = ready.max(self.free_at);
        self.free_at = self.free_at.max(now) + service;
        self.busy += service;
        (start, start + service)
    }
}

/// A NIC's parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Nic {
    /// Processes verbs that its machine sends.
    pub posts: Server,
    /// Processes verbs on its host's memory.
    pub serves: Server,
    pub send: Server,
    pub receive: Server,
    /// Serves atomics on its host's memory.
    pub atomics: Server,
    /// Serves verbs on its own memory.
    pub chip: Server,
    pub verbs_sent: u64,
    pub verbs_served: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// Costs in picoseconds, computed once.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    pub half_rtt: Ps,
    pub jitter: Ps,
    pub send_verb: Ps,
    pub serve_verb: Ps,
    pub atomic: Ps,
    pub address_atomic: Ps,
    pub chip_verb: Ps,
    pub chip_address_atomic: Ps,
    pub fetch: Ps,
    pub post: Ps,
    pub verb: Ps,
    pub poll: Ps,
    pub wake: Ps,
    pub op: Ps,
    pub call: Ps,
    /// A byte on the wire, in 65,536ths of a picosecond.
    byte: u64,
    header: u64,
    mtu: u64,
    pub inline: u64,
}

impl Prices {
    pub(super) fn new(spec: &ModelSpec) -> Self {
        let each = |per_s: u64| (PS * 1_000_000_000 + per_s / 2) / per_s;
        Self {
            half_rtt: spec.rtt_ns * PS / 2,
            jitter: spec.jitter_ns * PS,
            send_verb: each(spec.cn_verbs_per_s),
            serve_verb: each(spec.mn_verbs_per_s),
            atomic: each(spec.atomics_per_s),
            address_atomic: each(spec.address_atomics_per_s),
            chip_verb: each(spec.onchip_verbs_per_s),
            chip_address_atomic: each(spec.onchip_address_atomics_per_s),
            fetch: spec.fetch_ns * PS,
            post: spec.post_ns * PS,
            verb: spec.verb_ns * PS,
            poll: spec.poll_ns * PS,
            wake: spec.wake_ns * PS,
            op: spec.op_ns * PS,
            call: spec.call_ns * PS,
            byte: ((8 * PS * 1_000_000_000) << 16) / spec.nic_bits_per_s,
            header: spec.header_bytes,
            mtu: spec.mtu_bytes,
            inline: spec.inline_bytes,
        }
    }

    /// Returns the bytes on the wire of a message with `payload` bytes.
    #[inline]
    pub(super) fn message_bytes(&self, payload: u64) -> u64 {
        let packets = if payload <= self.mtu { 1 } else { payload.div_ceil(self.mtu) };
        payload + packets * self.header
    }

    /// Returns the time that `bytes` bytes take on a link.
    #[inline]
    pub(super) fn bytes(&self, bytes: u64) -> Ps {
        bytes.saturating_mul(self.byte) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;

    #[test]
    fn a_server_never_does_more_than_it_can() {
        let mut server = Server::default();
        assert_eq!(server.serve(0, 50, 10), (50, 60));
        // It is ready before the first, and so does not wait for it, but its time is reserved.
        assert_eq!(server.serve(0, 5, 10), (10, 20));
        let mut end = 0;
        for _ in 0..98 {
            (_, end) = server.serve(0, 0, 10);
        }
        assert_eq!((end, server.busy), (1000, 1000));
        assert_eq!(server.serve(2000, 2000, 10), (2000, 2010));
    }

    #[test]
    fn prices_follow_from_the_parameters() {
        let prices = Prices::new(&ModelSpec::preset(Preset::Dart));
        assert_eq!((prices.serve_verb, prices.address_atomic), (22_222, 400_000));
        assert_eq!(prices.bytes(125), 10_000);
        assert_eq!([8, 4096, 4097].map(|payload| prices.message_bytes(payload)), [48, 4136, 4177]);
    }
}
