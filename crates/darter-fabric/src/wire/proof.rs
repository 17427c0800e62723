//! Proofs that the other side knows the token: each side draws a nonce, and sends HMAC-SHA256 under
//! the token over both nonces, the session and the side's label.
//!
//! A recorded proof is useless later, since its nonces are used once; the labels prevent a node
//! from getting its proof from the client itself. A proof reveals nothing about the token except
//! whether a guess is right. Anyone who intercepts or provokes one can test guesses offline, so a
//! token must be random, not a word.

use hmac_sha256::HMAC;
use std::io;

/// Bytes of a nonce and of a proof.
pub const PROOF_BYTES: usize = 32;
/// Drawn by each side for one connection.
pub type Nonce = [u8; PROOF_BYTES];
/// HMAC-SHA256 under the token.
pub type Proof = [u8; PROOF_BYTES];

/// Returns a nonce from the operating system's randomness.
///
/// # Errors
/// Fails if the system has none.
pub fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// The side that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client.
    Client,
    /// A memory node.
    Node,
}

impl Side {
    /// Returns the prefix of the side's proofs, which has the same length for both.
    fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"darter proof of a client",
            Self::Node => b"darter proof of a node  ",
        }
    }
}

/// The data that both sides have sent before their proofs; each proof covers all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transcript {
    /// The client's nonce.
    pub client: Nonce,
    /// The node's nonce.
    pub node: Nonce,
    /// The client's session.
    pub session: u64,
}

impl Transcript {
    fn mac(&self, token: &[u8], side: Side) -> HMAC {
        let mut mac = HMAC::new(token);
        // HMAC treats some keys of different lengths as equal.
        let (length, session) = ((token.len() as u64).to_le_bytes(), self.session.to_le_bytes());
        for part in [side.label(), &length, &self.client, &self.node, &session] {
            mac.update(part);
        }
        mac
    }

    /// Returns the proof of a side that knows `token`.
    pub fn prove(&self, token: &[u8], side: Side) -> Proof {
        self.mac(token, side).finalize()
    }

    /// Returns whether `proof` shows that a side knows `token`, in constant time.
    pub fn is_proven(&self, token: &[u8], side: Side, proof: &Proof) -> bool {
        self.mac(token, side).finalize_verify(proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_is_valid_for_its_own_transcript_only() {
        let transcript = Transcript { client: nonce().unwrap(), node: nonce().unwrap(), session: 5 };
        assert_ne!(transcript.client, transcript.node);
        let proof = transcript.prove(b"token", Side::Client);
        assert!(transcript.is_proven(b"token", Side::Client, &proof));
        assert!(!transcript.is_proven(b"token", Side::Node, &proof));
        assert!(!transcript.is_proven(b"tokem", Side::Client, &proof));
        assert!(!transcript.is_proven(b"", Side::Client, &proof));
        assert!(!transcript.is_proven(b"token\0", Side::Client, &proof));
        for bit in 0..PROOF_BYTES * 8 {
            let flip = |mut bytes: [u8; PROOF_BYTES]| {
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            };
            for other in [
                Transcript { client: flip(transcript.client), ..transcript },
                Transcript { node: flip(transcript.node), ..transcript },
                Transcript { session: transcript.session ^ 1 << (bit % 64), ..transcript },
            ] {
                assert!(!other.is_proven(b"token", Side::Client, &proof));
            }
            assert!(!transcript.is_proven(b"token", Side::Client, &flip(proof)));
        }
    }

    #[test]
    fn proofs_are_hmac_sha256() {
        // Computed with `openssl dgst -sha256 -hmac`.
        let transcript = Transcript { client: [1; 32], node: [2; 32], session: 3 };
        let hex = |proof: Proof| proof.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        assert_eq!(
            hex(transcript.prove(b"open sesame", Side::Client)),
            "1e943f93bcbb6b1f39fa983511add7932d0d64445e3ea12f6fa970ae42888911"
        );
        assert_eq!(
            hex(transcript.prove(b"open sesame", Side::Node)),
            "4fe9194bb6c8cf33a1c00d90eb4144fcfd1e1e51ce3a1d9cf12d59746c65d483"
        );
    }
}
