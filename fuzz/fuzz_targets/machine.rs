//! libFuzzer's entrance to the target `machine`: see `lib/src`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sockeye_fuzz_targets::machine(data));
