//! Any text as an options file: every error has a position, and values of a wrong type change nothing.
#![no_main]

use kstatd::cli::kube_flags::KubeArgs;
use kstatd::cli::load::Load;
use kstatd::cli::options_file::merge;
use kstatd::mapper::Severity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let merged = merge(text, &KubeArgs::default(), Load::First);
    let lines = text.split(['\n', '\r']).count() as u64;
    for problem in &merged.problems {
        assert!(problem.line > 0 && problem.line <= lines && problem.column > 0, "{problem}");
        assert!(!problem.message.is_empty());
    }
    assert!(merged.problems.is_sorted_by_key(|problem| (problem.line, problem.column)));
    let error = merged.problems.iter().find(|problem| problem.severity == Severity::Error);
    assert_eq!(merged.error(), error);
});
