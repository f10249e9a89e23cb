//! Profiles of any profiler, as `kstatd profile diff` reads them: an error, or an SVG that is XML; equal profiles show no change.
//!
//! The first bit of the first byte compares the first profile with itself, the second one normalizes. The next two bytes
//! are the length of the first profile.
#![no_main]

use kstatd::fuzzed;
use libfuzzer_sys::fuzz_target;

/// Returns whether all characters may be in XML and all tags are closed.
fn is_xml(svg: &str) -> bool {
    let allowed = |letter: char| matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    let mut open = Vec::new();
    // The script of the graph is CDATA and the only place with a bare `<`.
    let (mut rest, mut sound) = (svg.to_owned(), svg.chars().all(allowed));
    while let Some((before, after)) = rest.split_once("<![CDATA[") {
        let Some((_, after)) = after.split_once("]]>") else { return false };
        rest = format!("{before}{after}");
    }
    for tag in rest.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else { return false };
        let name = tag
            .split([' ', '\n', '/'])
            .find(|part| !part.is_empty())
            .unwrap_or_default()
            .to_owned();
        if tag.starts_with('/') {
            sound &= open.pop() == Some(name);
        } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
            open.push(name);
        }
    }
    sound && open.is_empty()
}

fuzz_target!(|data: &[u8]| {
    let [how, low, high, rest @ ..] = data else { return };
    let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (base, now) = rest.split_at(length);
    let (same, normalize) = (how & 1 == 1, how & 2 == 2);
    let now = if same { base } else { now };
    match fuzzed::profile_change(base, now, normalize) {
        Err(error) => assert!(!error.is_empty() && error.len() < 1_000, "{error}"),
        Ok((svg, stacks)) => {
            assert!(is_xml(&svg), "{svg}");
            assert!(stacks <= now.len());
            // A grown frame has a signed share.
            assert!(!same || !svg.contains("%; +"), "{svg}");
        }
    }
});
