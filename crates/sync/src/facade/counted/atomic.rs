//! Atomic words whose accesses are reported.
//!
//! Does not depend on the meaning of the words. Invariant: one report and one operation of the machine per
//! call. Tests: `apps/bench-counted/tests/words.rs`.

use core::sync::atomic;
pub use core::sync::atomic::{Ordering, fence};

use crate::count::{self, Site, What};

/// Methods of every word, over the type `$value` that it holds.
macro_rules! word_operations {
    ($value:ty, $what:expr) => {
        /// The value, by the only thread that can see the word.
        pub fn get_mut(&mut self) -> &mut $value {
            self.0.get_mut()
        }

        /// The value itself.
        pub fn into_inner(self) -> $value {
            self.0.into_inner()
        }

        /// As the machine's.
        #[inline]
        #[track_caller]
        pub fn load(&self, order: Ordering) -> $value {
            self.read();
            self.0.load(order)
        }

        /// As the machine's.
        #[inline]
        #[track_caller]
        pub fn store(&self, value: $value, order: Ordering) {
            self.wrote();
            self.0.store(value, order);
        }

        /// As the machine's.
        #[inline]
        #[track_caller]
        pub fn swap(&self, value: $value, order: Ordering) -> $value {
            self.wrote();
            self.0.swap(value, order)
        }

        /// As the machine's. Counts as a write even if it fails, since it takes the line all the same.
        #[inline]
        #[track_caller]
        pub fn compare_exchange(
            &self,
            from: $value,
            to: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.wrote();
            self.0.compare_exchange(from, to, success, failure)
        }

        /// As the machine's. Counts as a write even if it fails.
        #[inline]
        #[track_caller]
        pub fn compare_exchange_weak(
            &self,
            from: $value,
            to: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.wrote();
            self.0.compare_exchange_weak(from, to, success, failure)
        }

        /// As the machine's. Counts as one write.
        #[inline]
        #[track_caller]
        pub fn fetch_update(
            &self,
            set: Ordering,
            fetch: Ordering,
            to: impl FnMut($value) -> Option<$value>,
        ) -> Result<$value, $value> {
            self.wrote();
            self.0.fetch_update(set, fetch, to)
        }

        #[inline]
        #[track_caller]
        fn wrote(&self) {
            count::wrote(self, $what, Site::here());
        }

        #[inline]
        #[track_caller]
        fn read(&self) {
            count::read(self, $what, Site::here());
        }
    };
}

/// Read-modify-writes with an operand.
macro_rules! fetch_operations {
    ($value:ty: $($name:ident)*) => {
        $(
            /// As the machine's.
            #[inline]
            #[track_caller]
            pub fn $name(&self, value: $value, order: Ordering) -> $value {
                self.wrote();
                self.0.$name(value, order)
            }
        )*
    };
}

/// A word of one of the machine's types, with the operations it has.
macro_rules! word {
    ($name:ident, $value:ty: $($fetch:ident)*) => {
        /// As the machine's; see the head of `counted.rs`.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// A word with this value.
            pub const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            word_operations!($value, What::Word);
            fetch_operations!($value: $($fetch)*);
        }
    };
}

word!(AtomicBool, bool: fetch_and fetch_or fetch_xor fetch_nand);
word!(AtomicU8, u8: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
word!(AtomicU16, u16: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
word!(AtomicU32, u32: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
word!(AtomicU64, u64: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
word!(AtomicUsize, usize: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);

/// As the machine's; see the head of `counted.rs`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// A word with this value.
    pub const fn new(value: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(value))
    }

    word_operations!(*mut T, What::Word);
}

/// A word whose writes are those of a lock, whichever thread takes it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct LockWord(atomic::AtomicU32);

impl LockWord {
    /// A word with this value.
    pub const fn new(value: u32) -> Self {
        Self(atomic::AtomicU32::new(value))
    }

    word_operations!(u32, What::Lock);
}

/// [`LockWord`] of 16 bits, beside which a count has room.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct ShortLockWord(atomic::AtomicU16);

impl ShortLockWord {
    /// A word with this value.
    pub const fn new(value: u16) -> Self {
        Self(atomic::AtomicU16::new(value))
    }

    word_operations!(u16, What::Lock);
}

/// The word under `word`, for the kernel.
pub(in crate::facade) fn raw(word: &AtomicU32) -> &atomic::AtomicU32 {
    &word.0
}
