//! libFuzzer on `call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::calls::call(data));
