//! The payloads of calls: a request's words, and a node's refusal of a call.

use super::format::{Refusal, TEXT_BYTES_MAX};
use crate::{CallFault, ProcedureError};

/// Appends the payload of a call.
pub fn put_call(out: &mut Vec<u8>, procedure: u64, words: &[u64]) {
    out.extend_from_slice(&procedure.to_le_bytes());
    out.extend_from_slice(bytemuck::cast_slice(words));
}

/// Returns the procedure of a call's payload, and the request's words; `None` if the payload is not
/// whole words, of which the first is the procedure's number.
pub fn take_call(payload: &[u8]) -> Option<(u64, Vec<u64>)> {
    let (procedure, words) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*procedure), take_words(words)?))
}

/// Returns a payload as words; `None` if the last one is incomplete.
pub fn take_words(payload: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = payload.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Returns the refusal that reports a fault to a client, and its payload.
pub fn put_fault(fault: &CallFault) -> (Refusal, Vec<u8>) {
    let counts = |words: usize, max: usize| {
        [words, max].into_iter().flat_map(|count| (count as u64).to_le_bytes()).collect()
    };
    match fault {
        CallFault::NoServer => (Refusal::NoServer, Vec::new()),
        CallFault::Unknown => (Refusal::Unknown, Vec::new()),
        CallFault::Busy => (Refusal::Busy, Vec::new()),
        CallFault::RequestTooLarge { words, max } => (Refusal::RequestTooLarge, counts(*words, *max)),
        CallFault::AnswerTooLarge { words, max } => (Refusal::AnswerTooLarge, counts(*words, *max)),
        CallFault::Failed(ProcedureError { code, message }) => {
            let mut payload = code.to_le_bytes().to_vec();
            payload.extend_from_slice(message.as_bytes());
            (Refusal::Procedure, payload)
        }
        // A node never reports these about itself.
        CallFault::Unsupported | CallFault::ServerGone => (Refusal::Failed, Vec::new()),
    }
}

/// Returns the fault that a refusal reports; `None` if it does not refuse a call, or is damaged.
pub fn take_fault(refusal: Refusal, payload: &[u8]) -> Option<CallFault> {
    let counts = || {
        let words = take_words(payload)?;
        let [words, max] = *words.as_slice() else { return None };
        Some((usize::try_from(words).ok()?, usize::try_from(max).ok()?))
    };
    match refusal {
        Refusal::NoServer => Some(CallFault::NoServer),
        Refusal::Unknown => Some(CallFault::Unknown),
        Refusal::Busy => Some(CallFault::Busy),
        Refusal::RequestTooLarge => counts().map(|(words, max)| CallFault::RequestTooLarge { words, max }),
        Refusal::AnswerTooLarge => counts().map(|(words, max)| CallFault::AnswerTooLarge { words, max }),
        Refusal::Procedure => {
            let (code, text) = payload.split_first_chunk::<8>()?;
            let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
            Some(CallFault::Failed(ProcedureError::new(u64::from_le_bytes(*code), text)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_comes_back_as_it_was_put() {
        for words in [vec![], vec![1], vec![u64::MAX; 100]] {
            let mut payload = Vec::new();
            put_call(&mut payload, 77, &words);
            assert_eq!(take_call(&payload), Some((77, words)));
            payload.push(0);
            assert_eq!(take_call(&payload), None);
        }
        assert_eq!(take_call(&[0; 7]), None);
    }

    #[test]
    fn a_fault_comes_back_as_it_was_put() {
        for fault in [
            CallFault::NoServer,
            CallFault::Unknown,
            CallFault::Busy,
            CallFault::RequestTooLarge { words: 9, max: 8 },
            CallFault::AnswerTooLarge { words: 7, max: 6 },
            CallFault::Failed(ProcedureError::new(5, "nö")),
        ] {
            let (refusal, payload) = put_fault(&fault);
            assert_eq!(take_fault(refusal, &payload), Some(fault));
        }
        assert_eq!(take_fault(Refusal::Procedure, &[0; 7]), None);
        assert_eq!(take_fault(Refusal::AnswerTooLarge, &[0; 24]), None);
        assert_eq!(take_fault(Refusal::Malformed, &[]), None);
    }
}
