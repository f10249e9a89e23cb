//! Any text as the regular expression of a rule: rejected with its position, or usable for any name.
#![no_main]

use kstatd::mapper::{Buffer, Mapper, MetricType, ProblemClass};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (pattern, name) = input;
    // JSON text is valid YAML.
    let Ok(quoted) = serde_json::to_string(pattern) else { return };
    let text = format!(
        "mappings:\n- {{match: {quoted}, match_type: regex, name: n, labels: {{l: \"$0$1\"}}}}\n"
    );
    match Mapper::from_yaml(&text) {
        Err(problems) => assert!(problems.iter().all(|problem| matches!(
            problem.class,
            ProblemClass::InvalidRegex | ProblemClass::YamlSyntax
        ))),
        Ok(mapper) => {
            let mut buffer = Buffer::default();
            if let Some(mapped) = mapper.map(name, MetricType::Counter, &mut buffer) {
                assert_eq!(mapped.name, "n");
            }
        }
    }
});
