//! `email`: synthetic e-mail addresses, domain first, 2 to 32 bytes, 18 on average, from a seeded
//! generator.
//!
//! The papers use a collection of real addresses that cannot be shipped. This stands in for it:
//! host-reversed addresses (`com.gmail@john.smith84`, the form of SMART and DART), popular
//! providers with skewed shares, a long tail of small sites, common names ahead of rare ones,
//! initials, nicknames, years and other digits. A sliver of addresses have lost their domain, as in
//! real collections; they are the shortest. **No address is real**, and figures on it are figures
//! on synthetic data.
//!
//! No address is stored, and none comes twice, because every step from record number to address is
//! injective:
//!
//! ```text
//!  record ──> round, position ──> domain, ordinal ──> class, ordinal ──> stem, digits ──> domain @ stem digits
//!          65,536 positions,      each domain owns    phases share the     a shuffle of     read back uniquely: no '@' in a
//!          shuffled               its positions       domain's ordinals    the class        domain, no digit in a stem
//!                                                     (`plan.rs`)                           (`stems.rs`)
//! ```
//!
//! Ascending order comes one domain at a time, in the order of domains: only the largest domain's
//! local parts, a fifth of all records at 32 bytes each, are held at once (0.4 GiB for 60 M
//! records).

mod domains;
mod names;
mod plan;
mod stems;

use super::{Dataset, RECORDS_MAX};
use darter_bench::permutation::{Permutation, derive_seed, mix64};
use domains::{Domain, Slot};
use plan::Plan;
use std::cmp::Reverse;
use stems::Stems;

/// Longest key in bytes.
const KEY_BYTES_MAX: usize = 32;
/// Positions in a round; each belongs to one domain.
const ROUND: u64 = 1 << 16;

/// Synthetic e-mail addresses.
#[derive(Debug)]
pub struct Email {
    seed: u64,
    domains: Vec<Domain>,
    slots: Vec<Slot>,
    stems: Stems,
    /// By the bytes a domain leaves for the local part.
    plans: Vec<Option<Plan>>,
    capacity: u64,
}

impl Email {
    /// The sequence that `seed` names.
    pub fn new(seed: u64) -> Self {
        let seed = derive_seed(seed, 0x456d_6169);
        let stems = Stems::new();
        let (domains, slots) = domains::assign(seed, ROUND);
        let mut plans: Vec<Option<Plan>> = (0..=KEY_BYTES_MAX).map(|_| None).collect();
        let mut capacity = RECORDS_MAX;
        for domain in &domains {
            let budget = domain.local_bytes_max();
            let plan = plans[budget].get_or_insert_with(|| Plan::new(&stems, budget, seed));
            capacity = capacity.min(plan.capacity() / u64::from(domain.slots) * ROUND);
        }
        Self { seed, domains, slots, stems, plans, capacity }
    }

    /// Appends the local part that is number `ordinal` in a domain.
    fn push_local(&self, domain: usize, ordinal: u64, out: &mut Vec<u8>) {
        let budget = self.domains[domain].local_bytes_max();
        let Some(plan) = &self.plans[budget] else { return };
        let place = plan.place(ordinal, mix64(self.seed ^ domain as u64));
        let key = derive_seed(self.seed, (domain as u64) << 8 | place.class as u64);
        let shuffled = Permutation::new(place.capacity).apply(place.ordinal, key);
        out.extend_from_slice(self.stems.get(place.kind, shuffled % place.stems));
        place.suffix.push(shuffled / place.stems, out);
    }

    /// Returns the number of the first `records` records in each domain.
    fn shares(&self, records: u64) -> Vec<u64> {
        let mut shares: Vec<u64> =
            self.domains.iter().map(|domain| records / ROUND * u64::from(domain.slots)).collect();
        for slot in &self.slots[..(records % ROUND) as usize] {
            shares[usize::from(slot.domain)] += 1;
        }
        shares
    }
}

impl Dataset for Email {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn key(&self, record: u64, key: &mut Vec<u8>) {
        let slot = self.slots[(record % ROUND) as usize];
        let domain = &self.domains[usize::from(slot.domain)];
        let ordinal = record / ROUND * u64::from(domain.slots) + u64::from(slot.rank);
        key.clear();
        key.extend_from_slice(&domain.host);
        self.push_local(usize::from(slot.domain), ordinal, key);
    }

    fn sorted(&self, records: u64) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_> {
        let shares = self.shares(records);
        let mut order: Vec<usize> = (0..self.domains.len()).filter(|&domain| shares[domain] > 0).collect();
        // Taken from the end.
        order.sort_unstable_by_key(|&domain| Reverse(&self.domains[domain].host));
        Box::new(SortedEmails { email: self, shares, order, domain: 0, locals: Vec::new().into_iter() })
    }

    fn has_integer_keys(&self) -> bool {
        false
    }

    fn key_bytes_mean(&self) -> u64 {
        18
    }

    fn note(&self) -> String {
        "synthetic host-reversed e-mail addresses from a seeded generator, none of them real".to_owned()
    }
}

/// A local part padded with zeros, as big-endian words, so that their order is the bytes' order.
type PackedLocal = [u64; 4];

/// Walks the domains in order, sorting the local parts of one at a time.
struct SortedEmails<'a> {
    email: &'a Email,
    shares: Vec<u64>,
    /// Domains still to come, the next one last.
    order: Vec<usize>,
    domain: usize,
    locals: std::vec::IntoIter<PackedLocal>,
}

impl SortedEmails<'_> {
    fn begin(&mut self, domain: usize) {
        let mut text = Vec::with_capacity(KEY_BYTES_MAX);
        let mut locals: Vec<PackedLocal> = (0..self.shares[domain])
            .map(|ordinal| {
                text.clear();
                self.email.push_local(domain, ordinal, &mut text);
                pack(&text)
            })
            .collect();
        locals.sort_unstable();
        self.domain = domain;
        self.locals = locals.into_iter();
    }
}

impl Iterator for SortedEmails<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(local) = self.locals.next() {
                let mut key = Vec::with_capacity(KEY_BYTES_MAX);
                key.extend_from_slice(&self.email.domains[self.domain].host);
                unpack(local, &mut key);
                return Some(key);
            }
            // The sorted local parts of the last domain are freed before the next are built.
            self.locals = Vec::new().into_iter();
            let next = self.order.pop()?;
            self.begin(next);
        }
    }
}

fn pack(text: &[u8]) -> PackedLocal {
    let mut words = [0; 4];
    for (at, &byte) in text.iter().enumerate() {
        words[at / 8] |= u64::from(byte) << (56 - at % 8 * 8);
    }
    words
}

fn unpack(local: PackedLocal, out: &mut Vec<u8>) {
    out.extend(local.iter().flat_map(|word| word.to_be_bytes()).take_while(|&byte| byte != 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn keys(records: std::ops::Range<u64>) -> Vec<String> {
        let email = Email::new(42);
        records
            .map(|record| {
                let mut key = Vec::new();
                email.key(record, &mut key);
                String::from_utf8(key).unwrap()
            })
            .collect()
    }

    #[test]
    fn lengths_are_2_to_32_and_18_on_average() {
        // At the beginning and far on, where the common stems of large domains are used up.
        for from in [0, 10_000_000, 60_000_000, 120_000_000] {
            let lengths: Vec<usize> = keys(from..from + 200_000).iter().map(String::len).collect();
            assert!(lengths.iter().all(|&n| (2..=32).contains(&n)), "from {from}");
            let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
            assert!((17.5..18.5).contains(&mean), "from {from}: mean {mean}");
            assert!(lengths.iter().any(|&n| n >= 31), "from {from}: none is long");
        }
        assert!(keys(0..2_000_000).iter().any(|key| key.len() == 2), "none is shortest");
    }

    #[test]
    fn popular_providers_have_most_and_small_sites_some() {
        let keys = keys(0..200_000);
        let mut by_host: HashMap<&str, u32> = HashMap::new();
        for key in &keys {
            *by_host.entry(key.split_once('@').unwrap().0).or_default() += 1;
        }
        let share = |host: &str| f64::from(by_host[host]) / keys.len() as f64;
        assert!((0.15..0.22).contains(&share("com.yahoo")) && (0.14..0.20).contains(&share("com.gmail")));
        assert!(share("de.web") < 0.03);
        assert!(by_host.len() > 1000, "{} hosts", by_host.len());
    }

    #[test]
    fn common_names_come_more_often() {
        let keys = keys(0..500_000);
        let count = |name: &str| keys.iter().filter(|key| key.contains(name)).count();
        assert!(count("john") > 2 * count("zbigniew"), "{}", count("john"));
        assert!(count("smith") > count("popescu"));
        assert!(keys.iter().any(|key| key.contains("@john.")));
    }

    #[test]
    fn capacity_holds_the_papers_largest_runs() {
        assert!(Email::new(1).capacity() >= 1_000_000_000);
    }

    #[test]
    fn packing_keeps_order_and_text() {
        let texts = ["a", "a.b", "ab", "abcdefgh", "abcdefghi", "b", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"];
        assert!(texts.map(|text| pack(text.as_bytes())).is_sorted());
        for text in texts {
            let mut out = Vec::new();
            unpack(pack(text.as_bytes()), &mut out);
            assert_eq!(out, text.as_bytes());
        }
    }
}
