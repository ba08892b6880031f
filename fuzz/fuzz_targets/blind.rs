//! libFuzzer's entrance to the target `blind`: see `lib/src`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sockeye_fuzz_targets::blind(data));
