//! The pages of the runbook: each starts with two commands, and the program accepts every command that a page shows.

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::run;
use repository::{entries, read, root};

/// Returns the commands of an indented block, without comments and pipes.
fn commands(block: &str) -> Vec<&str> {
    let lines = block.lines().filter_map(|line| line.strip_prefix("    "));
    let command = |line: &str| {
        let end = line.find(" #").or(line.find(" | ")).unwrap_or(line.len());
        line.get(..end).map_or(0, |line| line.trim_end().len())
    };
    lines.map(|line| line.get(..command(line)).unwrap_or_default()).collect()
}

/// Splits a command line at blanks outside single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (part, text) in command.split('\'').enumerate() {
        if part % 2 == 1 {
            words.last_mut().expect("a word").push_str(text);
            continue;
        }
        for (number, word) in text.split(' ').enumerate() {
            if number > 0 {
                words.push(String::new());
            }
            words.last_mut().expect("a word").push_str(word);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn pages_start_with_two_commands_that_the_program_accepts() {
    let pages = entries(&root().join("docs/runbook"));
    assert!(pages.len() >= 20, "{pages:?}");
    let mut accepted = 0;
    for page in pages {
        let text = read(&page);
        let first = text.split("\n\n").nth(1).expect("a block after the title");
        let first = commands(first);
        assert_eq!(first.len(), 2, "{}: {first:?}", page.display());
        assert!(first.iter().any(|command| command.contains("kstatd status ")), "{first:?}");
        for command in commands(&text) {
            let (program, usage) = match command.split_once("kstatd ") {
                Some(("", _)) => ("kstatd", "Usage: kstatd "),
                Some(("kubectl ", _)) => ("kubectl-kstatd", "Usage: kubectl kstatd "),
                _ => continue,
            };
            // Arguments are parsed in order, so that an unknown one is an error before the help.
            let mut args = words(command.trim_start_matches("kubectl ")).split_off(1);
            args.push("--help".to_owned());
            let output = run(program, &args);
            let problem = format!("{}: {command}: {output:?}", page.display());
            assert!(output.status.success() && output.stdout.contains(usage), "{problem}");
            accepted += 1;
        }
    }
    assert!(accepted >= 40, "{accepted}");
    // The check itself distinguishes.
    assert!(!run("kstatd", ["top", "--sort", "size", "--help"]).status.success());
    assert!(!run("kstatd", ["status", "--adr", "HOST:8080", "--help"]).status.success());
}
