//! libFuzzer on `profile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::wire::profile(data));
