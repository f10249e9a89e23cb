//! Helpers of the black-box tests. Each test binary uses a part of them.
#![allow(dead_code)]

pub mod exposition;

/// Returns the bytes of a recorded line: text, or base64 after `b64:`.
pub fn bytes(line: &str) -> Vec<u8> {
    match line.strip_prefix("b64:") {
        Some(encoded) => base64(encoded),
        None => line.as_bytes().to_vec(),
    }
}

fn base64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => panic!("no base64: {other}"),
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}
