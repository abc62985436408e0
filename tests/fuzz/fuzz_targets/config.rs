//! libFuzzer on `config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::configuration::config(data));
