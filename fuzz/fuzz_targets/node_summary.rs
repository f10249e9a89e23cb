//! The kubelet's summary and the mount table: the same series for every split of a body, a valid exposition, and each
//! overlay mount at its path.
//!
//! The first byte sets the size of the pieces, and whether the rest is a raw mount table.
#![no_main]

use std::collections::BTreeSet;
use std::path::PathBuf;

use bytes::Bytes;
use kstatd::fuzzed;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../tests/support/exposition.rs"]
mod exposition;

/// Removes values that depend on the time of the scrape.
fn node(body: &[u8], step: usize, torn: bool) -> String {
    let pieces = body.chunks(step).map(Bytes::copy_from_slice).collect();
    let text = fuzzed::node(pieces, torn);
    assert_eq!(exposition::check_text(&text), Ok(()), "{text}");
    let timeless = |line: &&str| !line.contains("_age_seconds") && !line.contains("_until_full_");
    text.lines().filter(timeless).collect::<Vec<_>>().join("\n")
}

/// Escapes as `seq_show_option` of the kernel does.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.chars() {
        match byte {
            ' ' | '\t' | '\n' | '\\' | ',' | '#' => out += &format!("\\{:03o}", u32::from(byte)),
            other => out.push(other),
        }
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, body)) = data.split_first() else { return };
    match how & 3 {
        0 => {
            let found = fuzzed::overlays(body);
            let uppers: BTreeSet<_> = found.iter().map(|(_, upper)| upper).collect();
            assert_eq!(uppers.len(), found.len());
            assert!(uppers.iter().all(|upper| upper.is_absolute()));
        }
        1 => {
            let Ok(text) = std::str::from_utf8(body) else { return };
            let names: Vec<&str> = text.split('\0').filter(|name| !name.contains('\r')).collect();
            let mut table = String::new();
            let mut want = BTreeSet::new();
            for pair in names.chunks_exact(2) {
                let (point, upper) = (format!("/{}", pair[0]), format!("/{}", pair[1]));
                table += &format!(
                    "31 22 0:40 / {} rw,relatime shared:9 - overlay overlay rw,lowerdir=/l,upperdir={},workdir=/w\n",
                    escaped(&point),
                    escaped(&upper),
                );
                want.insert(PathBuf::from(upper));
            }
            let found = fuzzed::overlays(table.as_bytes());
            let found: BTreeSet<PathBuf> = found.into_iter().map(|(_, upper)| upper).collect();
            assert_eq!(found, want, "{table}");
        }
        _ => {
            let step = usize::from(how >> 2).max(1);
            let torn = how & 1 == 1;
            assert_eq!(node(body, step, torn), node(body, usize::MAX, torn));
        }
    }
});
