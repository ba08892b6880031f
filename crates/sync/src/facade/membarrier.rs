//! A pair of fences of which one side costs nothing on Linux: the other side makes all threads of the process take theirs.
//!
//! `light_fence` keeps the compiler from moving accesses across it. `heavy_fence` runs a full fence on every core that
//! runs a thread of this process now; a thread that does not run passes one when it is put on a core. So for every
//! thread, all it did before some point between the start and the end of the call is seen after it by the caller, and
//! the other way round: together they order as two sequentially consistent fences would.
//!
//! Other systems have two such fences. The calls are in `system`. Does not depend on any protocol. Tests: below, and through
//! `brief.rs`; where the kernel refuses, `tests/no_membarrier.rs`.

use super::system;

/// The side that is passed often. No instruction on Linux, elsewhere a full fence.
#[inline(always)]
pub fn light_fence() {
    system::light_fence();
}

/// The side that is passed seldom: on Linux a system call of microseconds, with an interrupt of every core that runs a
/// thread of this process. False if the kernel refuses, and then nothing is ordered.
pub fn heavy_fence() -> bool {
    system::heavy_fence()
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has no such call")]
    fn the_kernel_provides_fences_repeatedly() {
        // Where a sandbox refuses the call, it refuses it always.
        let first = super::heavy_fence();
        assert_eq!(super::heavy_fence(), first);
        super::light_fence();
    }
}
