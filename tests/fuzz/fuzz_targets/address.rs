//! libFuzzer on `address`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::egress::address(data));
