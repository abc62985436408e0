//! libFuzzer on `retry_after`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::answers::retry_after(data));
