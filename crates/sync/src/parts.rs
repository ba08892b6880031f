//! Parts of a shared value, each found again by its type.
//!
//! A value is made of parts that lie in it. Code that knows the type of one part only is handed the whole without its type, and gets its
//! part by a comparison: no call through a table, and nothing to follow but the pointer to the part.
//!
//! Does not depend on the parts. Invariant: every pointer is to a part of `owner`, which is shared and so neither moves nor changes
//! hands for as long as it is here. Tests: below.

use core::any::{Any, TypeId};
use core::fmt;
use core::ptr::NonNull;

use crate::facade::Arc;

/// See the module's head.
pub struct Parts<O: ?Sized, const N: usize> {
    owner: Arc<O>,
    parts: [(TypeId, NonNull<()>); N],
}

// SAFETY: it gives out shared references to the owner and to parts that are `Send` and `Sync` (see `new`), and drops the owner.
unsafe impl<O: ?Sized + Send + Sync, const N: usize> Send for Parts<O, N> {}
// SAFETY: as above.
unsafe impl<O: ?Sized + Send + Sync, const N: usize> Sync for Parts<O, N> {}

impl<O: ?Sized, const N: usize> Parts<O, N> {
    /// The parts of `owner` that `find` finds by their numbers.
    pub fn new(owner: Arc<O>, find: impl for<'o> Fn(&'o O, usize) -> &'o (dyn Any + Send + Sync)) -> Self {
        let parts = core::array::from_fn(|at| {
            let part = find(&owner, at);
            (part.type_id(), NonNull::from(part).cast::<()>())
        });
        Self { owner, parts }
    }

    /// The value.
    #[inline]
    pub fn owner(&self) -> &Arc<O> {
        &self.owner
    }

    /// The part of this number, if it is a `T`.
    #[inline]
    pub fn get<T: Any>(&self, at: usize) -> Option<&T> {
        let &(of, part) = self.parts.get(at)?;
        // SAFETY: `find` returned a `&T` for any time for which the owner is borrowed. The owner is in an `Arc` of ours, which no other
        // thread can reach but to share it, so the part is there, and is shared, for as long as `self` is.
        (of == TypeId::of::<T>()).then(|| unsafe { part.cast::<T>().as_ref() })
    }
}

impl<O: ?Sized, const N: usize> fmt::Debug for Parts<O, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Whole {
        text: String,
        number: u32,
    }

    fn parts(owner: Arc<Whole>) -> Parts<Whole, 2> {
        Parts::new(owner, |whole, at| if at == 0 { &whole.text } else { &whole.number })
    }

    #[test]
    fn a_part_is_found_by_its_number_and_its_type_together() {
        let parts = parts(Arc::new(Whole { text: "a".to_owned(), number: 7 }));
        assert_eq!(parts.get::<String>(0).map(String::as_str), Some("a"));
        assert_eq!(parts.get::<u32>(1), Some(&7));
        assert_eq!((parts.get::<u32>(0), parts.get::<String>(1), parts.get::<u32>(2)), (None, None, None));
    }

    #[test]
    fn the_value_lives_as_long_as_any_of_its_parts() {
        let owner = Arc::new(Whole { text: "kept".to_owned(), number: 0 });
        let parts = parts(Arc::clone(&owner));
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(owner);
        assert_eq!(parts.get::<String>(0).map(String::as_str), Some("kept"));
        assert_eq!(Arc::strong_count(parts.owner()), 1);
    }
}
