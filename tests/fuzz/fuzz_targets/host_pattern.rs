//! libFuzzer on `host_pattern`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::egress::host_pattern(data));
