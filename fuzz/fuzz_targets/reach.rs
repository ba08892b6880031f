//! libFuzzer's entrance to the target `reach`: see `lib/src`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sockeye_fuzz_targets::reach(data));
