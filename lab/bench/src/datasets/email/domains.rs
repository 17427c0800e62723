//! Domains and their shares: which positions of a round belong to which host.
//!
//! Providers get the share in [`super::names::PROVIDERS`]; small made-up sites, shares falling with
//! rank, get the rest; a few positions belong to addresses without a domain. Hosts are stored
//! reversed and with their '@': `com.gmail@`. No host is a prefix of another, since '@' occurs
//! at the end only, so sorting hosts sorts addresses of different hosts.

use super::KEY_BYTES_MAX;
use super::names::{CONSONANTS, PROVIDERS, TOP_LEVEL, VOWELS, WORD};
use darter_bench::permutation::{Permutation, derive_seed};
use std::collections::HashSet;

/// Positions of addresses that lost their domain.
const WITHOUT_DOMAIN: u32 = 16;
/// Longest made-up site, with '@'.
const SITE_BYTES_MAX: usize = 20;

/// A host and its share.
#[derive(Debug)]
pub(super) struct Domain {
    /// Reversed, with the '@'.
    pub(super) host: Vec<u8>,
    /// Number of positions of a round that it owns, at least 1.
    pub(super) slots: u32,
}

impl Domain {
    /// Bytes left for the local part.
    pub(super) fn local_bytes_max(&self) -> usize {
        KEY_BYTES_MAX - self.host.len()
    }
}

/// A position of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// The domain that owns it.
    pub(super) domain: u16,
    /// Number of that domain's positions before it.
    pub(super) rank: u16,
}

/// Shares a round's positions among the domains and shuffles them.
pub(super) fn assign(seed: u64, round: u64) -> (Vec<Domain>, Vec<Slot>) {
    let mut domains = vec![Domain { host: b"@".to_vec(), slots: WITHOUT_DOMAIN }];
    let mut left = round as u32 - WITHOUT_DOMAIN;
    for (name, share) in PROVIDERS {
        let slots = share * round as u32 / 10_000;
        left -= slots;
        domains.push(Domain { host: reversed(name), slots });
    }
    let mut hosts: HashSet<Vec<u8>> = domains.iter().map(|domain| domain.host.clone()).collect();
    let mut draw = 0;
    while left > 0 {
        let host = site(derive_seed(seed, draw));
        draw += 1;
        if host.len() <= SITE_BYTES_MAX && hosts.insert(host.clone()) {
            let rank = hosts.len() - PROVIDERS.len();
            let slots = (1500 / (rank as u32 + 20)).clamp(1, left);
            left -= slots;
            domains.push(Domain { host, slots });
        }
    }
    let slots = shuffle(&domains, derive_seed(seed, u64::MAX), round);
    (domains, slots)
}

fn shuffle(domains: &[Domain], key: u64, round: u64) -> Vec<Slot> {
    let owners: Vec<u16> = domains
        .iter()
        .enumerate()
        .flat_map(|(domain, of)| std::iter::repeat_n(domain as u16, of.slots as usize))
        .collect();
    let order = Permutation::new(round);
    let mut ranks = vec![0; domains.len()];
    (0..round)
        .map(|position| {
            let domain = owners[order.apply(position, key) as usize];
            let rank = ranks[usize::from(domain)];
            ranks[usize::from(domain)] += 1;
            Slot { domain, rank }
        })
        .collect()
}

/// `mail.ru` as `ru.mail@`.
fn reversed(name: &str) -> Vec<u8> {
    let mut parts: Vec<&str> = name.split('.').collect();
    parts.reverse();
    (parts.join(".") + "@").into_bytes()
}

/// A made-up site.
fn site(mut bits: u64) -> Vec<u8> {
    let mut draw = |n: usize| {
        let drawn = bits % n as u64;
        bits = derive_seed(bits, 1);
        drawn as usize
    };
    let words: Vec<&str> = WORD.split_whitespace().collect();
    let mut name = String::new();
    if draw(3) == 0 {
        name.push_str(words[draw(words.len())]);
    }
    for _ in 0..2 + draw(2) {
        name.push(char::from(CONSONANTS[draw(CONSONANTS.len())]));
        name.push(char::from(VOWELS[draw(VOWELS.len())]));
    }
    let mut ticket = draw(100) as u32;
    let mut top = TOP_LEVEL[0].0;
    for (level, weight) in TOP_LEVEL {
        if ticket < *weight {
            top = level;
            break;
        }
        ticket -= weight;
    }
    reversed(&format!("{name}.{top}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_shared_out_exactly() {
        let (domains, slots) = assign(7, 1 << 16);
        assert_eq!(slots.len(), 1 << 16);
        assert_eq!(domains.iter().map(|domain| domain.slots).sum::<u32>(), 1 << 16);
        let mut ranks = vec![0; domains.len()];
        for slot in slots {
            assert_eq!(slot.rank, ranks[usize::from(slot.domain)]);
            ranks[usize::from(slot.domain)] += 1;
        }
        assert!(domains.iter().zip(ranks).all(|(domain, rank)| domain.slots == u32::from(rank)));
        assert!(
            domains
                .iter()
                .all(|domain| domain.host.iter().position(|&b| b == b'@') == Some(domain.host.len() - 1))
        );
        assert!(domains.iter().all(|domain| domain.host.len() <= 20));
    }

    #[test]
    fn shares_add_up_to_less_than_all() {
        assert!(PROVIDERS.iter().map(|(_, share)| share).sum::<u32>() < 9500);
        assert_eq!(TOP_LEVEL.iter().map(|(_, weight)| weight).sum::<u32>(), 100);
        assert_eq!(reversed("yahoo.co.uk"), b"uk.co.yahoo@");
    }
}
