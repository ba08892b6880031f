//! Differences in the handling of the peer's options that are malformed, or that Sockeye does not implement.
//!
//! Tests: as those of `known.rs`.

use super::Then;
use super::pair::Pair;
use crate::codec::options_of;
use crate::segment::Echo;

/// A segment has a signature (RFC 2385, RFC 5925), and nobody has a key for it. Sockeye skips the signature as an
/// option that is not implemented (RFC 9293 section 3.1, MUST-6). The kernel drops the segment.
pub(super) fn signature_of_nobody(pair: &Pair<'_>) -> Option<Then> {
    drops(pair, Refused::Signature).then_some(Then::Stop)
}

/// An option with an impossible length ends Sockeye's list of options; the segment is processed (RFC 9293 section 3.1,
/// MUST-7). The kernel looks for signatures first, and drops the segment if as many bytes follow as a signature takes.
pub(super) fn malformed_option(pair: &Pair<'_>) -> Option<Then> {
    drops(pair, Refused::Malformed).then_some(Then::Stop)
}

/// An answer of a half-open connection, or of a record without a socket, has no timestamps in the kernel if it would
/// echo zero (`tcp_v4_send_ack`). In Sockeye it has them as any other segment (RFC 7323 section 3.2).
pub(super) fn echo_of_zero(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let echoes_zero = matches!(stack.timestamp(), Some((_, Echo::Is(0) | Echo::Nothing)));
    let is_it = pair.why == "options" && echoes_zero && kernel.options.is_empty();
    (is_it && kernel.is_bare_ack() && stack.is_bare_ack()).then_some(Then::GoOn)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Signature,
    Malformed,
}

/// Whether the kernel has dropped a segment for this reason so far.
fn drops(pair: &Pair<'_>, why: Refused) -> bool {
    pair.peer().any(|(_, segment)| refusal(&options_of(segment)) == Some(why))
}

/// Why the kernel drops a segment with these options (`tcp_do_parse_auth_options`).
fn refusal(mut options: &[u8]) -> Option<Refused> {
    while let [kind, rest @ ..] = options
        && options.len() >= SIGNATURE_LEN
        && *kind != END
    {
        let len = if *kind == NOP { 1 } else { usize::from(*rest.first()?) };
        if *kind != NOP && !(2..=options.len()).contains(&len) {
            return Some(Refused::Malformed);
        }
        match (*kind, len) {
            (SIGNATURE, SIGNATURE_LEN) | (AUTHENTICATION, 5..) => return Some(Refused::Signature),
            (SIGNATURE | AUTHENTICATION, _) => return Some(Refused::Malformed),
            _ => {}
        }
        options = &options[len..];
    }
    None
}

const END: u8 = 0;
const NOP: u8 = 1;
const SIGNATURE: u8 = 19;
const SIGNATURE_LEN: usize = 18;
const AUTHENTICATION: u8 = 29;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_looks_for_signatures_where_there_is_room_for_one() {
        let mut signed = vec![1, 1, 19, 18];
        signed.resize(20, 0);
        assert!(refusal(&signed) == Some(Refused::Signature));
        let long = [[30, 0, 0, 0].as_slice(), &[1; 16]].concat();
        assert!(refusal(&long) == Some(Refused::Malformed));
        assert!(refusal(&long[..16]).is_none());
        let ended = [[0, 30, 0, 0].as_slice(), &[1; 16]].concat();
        assert!(refusal(&ended).is_none());
    }
}
