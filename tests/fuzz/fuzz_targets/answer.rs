//! libFuzzer on `answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::answers::answer(data));
