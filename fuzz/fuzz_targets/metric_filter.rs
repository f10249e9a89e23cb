//! Any text as a pattern of an allow or deny list: rejected with the pattern, or a decision for any family.
//!
//! The text after the last line break is the name of the family.
#![no_main]

use kstatd::resources::select::filter::{FamilyFilter, FilterError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (pattern, name) = text.rsplit_once('\n').unwrap_or((text, "kube_pod_info"));
    let list = [pattern.to_owned()];
    match (FamilyFilter::new(&list, &[], &[]), FamilyFilter::new(&[], &list, &[])) {
        // The deny list excludes what the allow list includes.
        (Ok(allow), Ok(deny)) => assert_ne!(allow.enabled(name, false), deny.enabled(name, false)),
        (Err(FilterError::Pattern { pattern: named, .. }), Err(_)) => assert_eq!(named, pattern),
        other => panic!("{other:?}"),
    }
    if let Ok(opt_in) = FamilyFilter::new(&[], &[], &list) {
        assert!(opt_in.enabled(name, false));
        let _ = opt_in.enabled(name, true);
    }
});
