//! Any text as the value of a flag such as `--metric-labels-allowlist`: rejected with a position, or lists whose keys
//! select themselves.
#![no_main]

use kstatd::resources::select::selection::{AllowListError, AllowLists};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lists = match AllowLists::parse_flag(text) {
        Ok(lists) => lists,
        Err(AllowListError::Format { at, .. }) => return assert!(text.contains(&at)),
        Err(AllowListError::Wildcards(key)) => return assert!(text.contains(&key)),
    };
    let names = || text.split([',', '=', '[', ']']).map(str::trim);
    for resource in names() {
        let selection = lists.selection(resource);
        let keys = lists.keys(resource).unwrap_or_default();
        assert_eq!(selection.is_empty(), keys.is_empty());
        for key in keys {
            assert!(text.contains(key.as_str()) && key.matches('*').count() < 2);
            // A lone * is a wildcard only as the first key.
            assert!(key == "*" || selection.matches(&key.replace('*', "x")), "{key:?}");
        }
        assert!(keys.first().is_none_or(|key| key != "*") || selection.matches("any\nkey"));
    }
    let resolved = lists.resolve(names(), |_| true).expect("every resource exists");
    assert!(
        names().all(|name| lists.keys("*").is_none() || resolved.keys(name) == lists.keys("*"))
    );
});
