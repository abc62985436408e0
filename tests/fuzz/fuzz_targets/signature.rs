//! libFuzzer on `signature`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::wire::signature(data));
