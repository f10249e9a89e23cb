//! Any text as a mapping file: problems with positions, or a mapping that supports lookups and dumps.
#![no_main]

use kstatd::mapper::{Buffer, Mapper, MetricType, Verdict};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Mapper::from_yaml(text) {
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| problem.line > 0 && problem.column > 0));
        }
        Ok(mapper) => {
            let mut buffer = Buffer::default();
            for name in ["", "a", "a.b", "a.b.c", "é.-.1"] {
                for kind in MetricType::ALL {
                    let explained = mapper.explain(name, kind);
                    let mut deciding =
                        explained.iter().filter(|tried| tried.verdict == Verdict::Wins);
                    let decides =
                        mapper.map(name, kind, &mut buffer).map(|mapped| mapped.rule.index);
                    assert_eq!(deciding.next().map(|tried| tried.index), decides);
                    assert_eq!(deciding.next(), None);
                    if let Some(mapped) = mapper.map(name, kind, &mut buffer) {
                        assert!(mapped.rule.index < mapper.rules().len());
                        assert!(mapped.labels().is_sorted_by(|(a, _), (b, _)| a < b));
                    }
                }
            }
            assert!(mapper.dump_dot().ends_with('}'));
        }
    }
});
