//! Custom resource definitions: an error that names the place, or a configuration that compiles, with valid names.
#![no_main]

use kstatd::fuzzed::drafted;
use kstatd::resources::custom::load;
use libfuzzer_sys::fuzz_target;

/// The maximum size of the entry of one kind: 60 metrics of at most 16 labels and 16 states.
const MAX_ENTRY: usize = 1 << 20;

/// The maximum number of times that an entry repeats a text of the input.
const MAX_REPEATS: usize = 1000;

fuzz_target!(|text: &str| {
    let draft = match drafted(text) {
        Ok(draft) => draft,
        Err(error) => {
            assert!(
                error.starts_with("input, document ") || error.contains("has no Custom"),
                "{error}"
            );
            return;
        }
    };
    let loaded = load(&draft);
    assert!(loaded.problems.is_empty(), "{:?}\n{draft}", loaded.problems);
    assert!(loaded.config.compile().is_ok(), "{draft}");
    let limit = MAX_ENTRY * loaded.config.entries.len() + MAX_REPEATS * text.len();
    assert!(draft.len() <= limit, "{} of {limit}", draft.len());
    for problem in loaded.config.problems() {
        let class = problem.class.as_str();
        let is_name = class.starts_with("invalid_") && class.ends_with("_name");
        assert!(
            !is_name && class != "duplicate_label" && class != "contradiction",
            "{problem}\n{draft}"
        );
    }
});
