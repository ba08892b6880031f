//! Claims of numbers beside uses of them, as in `ports.rs` of `sockeye`.

use loom::thread;
use sockeye_sync::Mutex;
use sockeye_sync::claims::Claims;
use sockeye_sync::facade::Arc;

use super::{check, check_bounded};

/// A table of uses in two parts, and the claims.
struct Table {
    claims: Claims,
    parts: [Mutex<Vec<usize>>; 2],
}

impl Table {
    fn new() -> Arc<Self> {
        Arc::new(Self { claims: Claims::new(2), parts: [Mutex::new(Vec::new()), Mutex::new(Vec::new())] })
    }

    /// Uses `number`, unless it is claimed.
    fn try_use(&self, part: usize, number: usize) -> bool {
        let mut uses = self.parts[part].lock();
        let is_free = !self.claims.is_claimed(number);
        if is_free {
            self.claims.note_use(number);
            uses.push(number);
        }
        is_free
    }

    /// Claims `number`, unless it may be used. Each model has one claiming thread, so it needs no lock for claims.
    fn try_claim(&self, number: usize) -> bool {
        self.claims.claim(number, || self.parts.iter().for_each(|part| drop(part.lock())));
        let is_free = !self.claims.may_be_used(number);
        if !is_free {
            self.claims.release(number);
        }
        is_free
    }

    fn forget_uses(&self) {
        self.claims.forget_uses();
        for part in &self.parts {
            part.lock().iter().for_each(|number| self.claims.note_use(*number));
        }
    }
}

#[test]
fn a_number_is_never_claimed_and_used() {
    check(|| {
        let table = Table::new();
        let user = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.try_use(1, 0))
        };
        let is_claimed = table.try_claim(0);
        let is_used = user.join().unwrap();
        assert!(!(is_claimed && is_used));
        // Alone either succeeds.
        assert!(is_claimed || is_used || table.try_claim(0));
        assert_eq!(table.claims.is_claimed(0), !is_used);
    });
}

#[test]
fn two_users_in_two_parts_and_a_claimant() {
    check_bounded(|| {
        let table = Table::new();
        let users: Vec<_> = (0..2)
            .map(|part| {
                let table = Arc::clone(&table);
                thread::spawn(move || table.try_use(part, 0))
            })
            .collect();
        let is_claimed = table.try_claim(0);
        let uses = users.into_iter().map(|user| user.join().unwrap()).filter(|used| *used).count();
        assert!(!is_claimed || uses == 0, "{uses} uses");
    });
}

#[test]
fn a_use_that_comes_while_notes_are_made_anew_stays_noted() {
    check(|| {
        let table = Table::new();
        assert!(table.try_use(0, 1));
        let user = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.try_use(0, 0))
        };
        table.forget_uses();
        let is_claimed = table.try_claim(0);
        assert!(!(user.join().unwrap() && is_claimed));
        assert!(!table.try_claim(1));
    });
}
