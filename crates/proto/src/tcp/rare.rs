//! State that few connections have: one pointer in the pcb for all of it.
//!
//! An idle connection should cost two kilobytes for both ends, and a pointer for each rare feature would be a hundredth
//! of that. An ordinary segment reads only the pointer.
//!
//! It does not depend on the meaning of the states. Invariant: the box is freed with the last state in it. Tests: those
//! of the features, and below.

use core::num::NonZeroU64;

use super::accecn::AccEcn;
use super::eor::RecordEnds;
use super::fast_open::FastOpen;
use super::nagle::Held;
use super::settings::BASE_MSS;
use super::urgent::Urgent;
use super::user_timeout::UserTimeoutState;
use crate::seq::SeqNum;

/// The states of rare features; see the head of the file.
#[derive(Debug, Default)]
pub(super) struct Rare(Option<Box<States>>);

#[derive(Debug, Default)]
struct States {
    fast_open: Option<FastOpen>,
    user_timeout: Option<UserTimeoutState>,
    urgent: Option<Urgent>,
    records: Option<RecordEnds>,
    max_pacing: Option<NonZeroU64>,
    rcv_limits: Option<RcvLimits>,
    base_mss: Option<u16>,
    accecn: Option<AccEcn>,
    held: Option<Held>,
    pushed: Option<SeqNum>,
}

/// Bounds of the receiver that a program has set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RcvLimits {
    /// TCP_WINDOW_CLAMP, bytes, or `u32::MAX`.
    pub clamp: u32,
    /// SO_RCVLOWAT, bytes.
    pub lowat: u32,
}

impl RcvLimits {
    /// No bounds.
    pub const NONE: Self = Self { clamp: u32::MAX, lowat: 1 };
}

macro_rules! state {
    ($name:ident, $name_mut:ident, $set:ident: $type:ty) => {
        state!($name, $set: $type);

        #[inline]
        pub fn $name_mut(&mut self) -> Option<&mut $type> {
            self.0.as_deref_mut()?.$name.as_mut()
        }
    };
    ($name:ident, $set:ident: $type:ty) => {
        #[inline]
        pub fn $name(&self) -> Option<&$type> {
            self.0.as_deref()?.$name.as_ref()
        }

        pub fn $set(&mut self, state: Option<$type>) {
            if state.is_some() {
                self.0.get_or_insert_default().$name = state;
            } else if let Some(states) = self.0.as_deref_mut() {
                states.$name = None;
                if states.is_empty() {
                    self.0 = None;
                }
            }
        }
    };
}

impl Rare {
    state!(fast_open, fast_open_mut, set_fast_open: FastOpen);
    state!(user_timeout, user_timeout_mut, set_user_timeout: UserTimeoutState);
    state!(urgent, urgent_mut, set_urgent: Urgent);
    state!(rcv_limits, rcv_limits_mut, set_rcv_limits: RcvLimits);
    state!(max_pacing, max_pacing_mut, set_max_pacing: NonZeroU64);
    state!(accecn, accecn_mut, set_accecn: AccEcn);
    state!(held, set_held: Held);
    state!(pushed, set_pushed: SeqNum);
    state!(records, records_mut, set_records: RecordEnds);

    /// The setting `base_mss`.
    pub fn base_mss(&self) -> u16 {
        self.0.as_deref().and_then(|states| states.base_mss).unwrap_or(BASE_MSS)
    }

    /// Takes the ends of records, for a change; the caller stores them again.
    pub fn take_records(&mut self) -> Option<RecordEnds> {
        self.records_mut().map(core::mem::take)
    }

    /// The states of a new connection.
    pub fn new(user_timeout: Option<UserTimeoutState>, base_mss: u16) -> Self {
        let mut rare = Self::default();
        rare.set_user_timeout(user_timeout);
        if base_mss != BASE_MSS {
            rare.0.get_or_insert_default().base_mss = Some(base_mss);
        }
        rare
    }

    /// True if there may be anything to report on a segment.
    #[inline]
    pub fn is_in_headers(&self) -> bool {
        self.0.as_deref().is_some_and(|states| {
            states.user_timeout.is_some() || states.urgent.is_some() || states.accecn.is_some()
        })
    }
}

impl States {
    fn is_empty(&self) -> bool {
        let Self {
            fast_open,
            user_timeout,
            urgent,
            records,
            max_pacing,
            rcv_limits,
            base_mss,
            accecn,
            held,
            pushed,
        } = self;
        fast_open.is_none()
            && user_timeout.is_none()
            && urgent.is_none()
            && records.is_none()
            && max_pacing.is_none()
            && rcv_limits.is_none()
            && base_mss.is_none()
            && held.is_none()
            && pushed.is_none()
            && accecn.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgent() -> Urgent {
        Urgent { up: SeqNum::new(1), tso_max: 0, is_told: false }
    }

    #[test]
    fn the_box_is_there_as_long_as_a_state_is() {
        let mut rare = Rare::default();
        rare.set_urgent(None);
        assert!(rare.0.is_none());
        rare.set_urgent(Some(urgent()));
        assert!(rare.is_in_headers() && rare.urgent().is_some() && rare.fast_open().is_none());
        rare.set_user_timeout(None);
        assert!(rare.urgent_mut().is_some());
        rare.set_urgent(None);
        assert!(rare.0.is_none() && size_of::<Rare>() == size_of::<usize>());
    }
}
