//! The parser of statsd_exporter's command line, compatible with kingpin.
//!
//! `--x=v` and `--x v`; a boolean takes no value and `--no-x` clears it; no flag may be repeated; a
//! value that begins with `-` needs the `=` form; `@file` is replaced by the lines of the file;
//! `--` ends the flags.

use std::collections::BTreeSet;
use std::fs;

use super::flag::{Flag, ValueType, find, wrap};
use super::usage_error::UsageError;

/// The action requested by the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run with the stored values.
    Run,
    /// `--help`, `-h`, `--help-long`.
    Help,
    /// `--help-man`.
    Manual,
    /// `--version`.
    Version,
    /// `--completion-bash`: the flag names, one per line, if a flag is being completed.
    CompletionBash {
        /// True if the word being completed is a flag.
        flag: bool,
    },
    /// `--completion-script-bash`.
    CompletionScriptBash,
    /// `--completion-script-zsh`.
    CompletionScriptZsh,
}

/// Flags that take effect as soon as they are parsed; `--help` takes effect at the end.
const REQUESTS: [(&str, Request); 5] = [
    ("help-long", Request::Help),
    ("help-man", Request::Manual),
    ("completion-script-bash", Request::CompletionScriptBash),
    ("completion-script-zsh", Request::CompletionScriptZsh),
    ("version", Request::Version),
];

/// The maximum number of argument files per command line, which ends the recursion of a file that
/// includes itself.
const MAX_FILES: usize = 1_000;

/// Stores the flags of `argv` in `into`.
///
/// Values are validated only once all words are known to be flags, so that a request such as
/// `--help` works regardless of the values.
///
/// # Errors
///
/// The text between `error: ` and `, try --help`.
pub fn parse<A>(flags: &[Flag<A>], into: &mut A, argv: &[String]) -> Result<Request, UsageError> {
    let words = argv.iter().rev().cloned().collect();
    let mut parser = Parser { flags, actions: Vec::new(), words, files: 0, help: false };
    let request = parser.scan()?;
    if matches!(request, Request::Run | Request::CompletionBash { .. }) {
        store(&parser.actions, into)?;
    }
    Ok(request)
}

struct Parser<'a, A: 'static> {
    flags: &'a [Flag<A>],
    /// Flags with their values, in the order of the words.
    actions: Vec<(&'a Flag<A>, String)>,
    /// The remaining words, in reverse order.
    words: Vec<String>,
    /// The number of argument files read so far.
    files: usize,
    /// True if the help was requested, which is shown unless a later word is invalid.
    help: bool,
}

impl<A> Parser<'_, A> {
    fn scan(&mut self) -> Result<Request, UsageError> {
        loop {
            self.expand()?;
            let Some(arg) = self.words.pop().filter(|arg| arg != "--") else { break };
            let request = if let Some(long) = arg.strip_prefix("--") {
                self.long(long)?
            } else if let Some(letters) = arg.strip_prefix('-') {
                self.short(letters)?
            } else {
                return Err(format!("unexpected {arg}").into());
            };
            if let Some(request) = request {
                return Ok(request);
            }
        }
        match self.words.pop() {
            Some(word) => Err(format!("unexpected {word}").into()),
            None if self.help => Ok(Request::Help),
            None => Ok(Request::Run),
        }
    }

    /// Expands an `@file` at the front to the lines of the file, without blank lines and comments.
    fn expand(&mut self) -> Result<(), UsageError> {
        while let Some(word) = self.words.pop_if(|word| word.starts_with('@')) {
            let path = word.strip_prefix('@').unwrap_or_default();
            if path.is_empty() {
                return Err("expected @ file to expand arguments from".into());
            }
            self.files += 1;
            if self.files > MAX_FILES {
                return Err(format!(
                    "arguments file \"{path}\" is one of more than {MAX_FILES}; does it name itself?"
                ).into());
            }
            let text = fs::read_to_string(path).map_err(|error| {
                let reason = match error.kind() {
                    std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                    std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                    _ => error.to_string(),
                };
                format!("failed to open arguments file \"{path}\": open {path}: {reason}")
            })?;
            let lines =
                text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
            self.words.extend(lines.rev().map(str::to_owned));
        }
        Ok(())
    }

    /// Parses a long flag. A request ends the command line.
    fn long(&mut self, long: &str) -> Result<Option<Request>, UsageError> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let (positive, negated) = match name.strip_prefix("no-") {
            Some(positive) if find(self.flags, name).is_none() => (positive, true),
            _ => (name, false),
        };
        // A value after a boolean is a positional argument, which is not expected.
        let no_value = |value: Option<String>| {
            value.map_or(Ok(None), |value| Err(format!("unexpected {value}").into()))
        };
        match positive {
            "help" => {
                self.help = true;
                return no_value(value);
            }
            "completion-bash" if negated => return no_value(value),
            "completion-bash" => return Ok(Some(self.completion())),
            _ => {}
        }
        if let Some((_, request)) = REQUESTS.iter().find(|(request, _)| *request == positive) {
            return Ok(Some(*request));
        }
        let unknown = || format!("unknown long flag '--{name}'");
        let flag = find(self.flags, positive).ok_or_else(unknown)?;
        if flag.is_switch() {
            self.actions.push((flag, if negated { "false" } else { "true" }.to_owned()));
            return no_value(value);
        }
        if negated {
            return Err(unknown().into());
        }
        let value = match value {
            Some(value) => value,
            None => {
                self.expand()?;
                self.words
                    .pop_if(|next| !next.starts_with('-'))
                    .ok_or_else(|| format!("expected argument for flag '--{name}'"))?
            }
        };
        self.actions.push((flag, value));
        Ok(None)
    }

    /// Parses short flags, of which there is only `-h`.
    fn short(&mut self, letters: &str) -> Result<Option<Request>, UsageError> {
        match letters.strip_prefix('h').unwrap_or(letters).chars().next() {
            Some(letter) => Err(format!("unknown short flag '-{letter}'").into()),
            None if letters.is_empty() => Err("unexpected ".into()),
            None => {
                self.help = true;
                Ok(None)
            }
        }
    }

    /// Returns the completion request: the last word is being completed, and there are no flags
    /// after `--`.
    fn completion(&self) -> Request {
        let flag = self.words.split_first().is_some_and(|(typed, before)| {
            typed.starts_with('-') && !before.iter().any(|word| word == "--")
        });
        Request::CompletionBash { flag }
    }
}

/// Stores the values in the order of the command line; stops at the first invalid one.
fn store<A>(actions: &[(&Flag<A>, String)], into: &mut A) -> Result<(), UsageError> {
    let mut seen = BTreeSet::new();
    for (flag, value) in actions {
        if !seen.insert(flag.name) {
            return Err(format!("flag '{}' cannot be repeated", flag.name).into());
        }
        if let ValueType::OneOf(words) = flag.value_type
            && !words.contains(&value.as_str())
        {
            let words = words.join(",");
            return Err(format!("enum value must be one of {words}, got '{value}'").into());
        }
        (flag.set)(into, value).map_err(|error| format!("flag '--{}': {error}", flag.name))?;
    }
    Ok(())
}

/// The column of flag descriptions, and the page width.
const HELP_COLUMN: usize = 32;
const PAGE_WIDTH: usize = 80;

/// Returns the text of `--help`.
pub fn usage<A>(program: &str, flags: &[Flag<A>]) -> String {
    let mut text = format!("usage: {program} [<flags>]\n\n\nFlags:\n");
    let help = "Show this text (also --help-long and --help-man).";
    entry(&mut text, "  -h, --[no-]help", help);
    for flag in flags {
        entry(&mut text, &format!("      {}", synopsis(flag)), flag.help);
    }
    entry(&mut text, "      --[no-]version", "Show the version.");
    text.push('\n');
    text
}

fn synopsis<A>(flag: &Flag<A>) -> String {
    let name = flag.name;
    match flag.value_type {
        _ if flag.is_switch() => format!("--[no-]{name}"),
        _ if flag.default.is_empty() => format!("--{name}={}", name.to_uppercase()),
        _ => format!("--{name}={}", flag.default),
    }
}

fn entry(text: &mut String, left: &str, help: &str) {
    let mut lines = wrap(help, PAGE_WIDTH - HELP_COLUMN).into_iter();
    if left.len() + 2 <= HELP_COLUMN {
        let first = lines.next().unwrap_or_default();
        text.push_str(&format!("{left:HELP_COLUMN$}{first}\n"));
    } else {
        text.push_str(&format!("{left}  \n"));
    }
    for line in lines {
        text.push_str(&format!("{:HELP_COLUMN$}{line}\n", ""));
    }
}

/// Returns the text of `--help-man`: a manual page in troff.
pub fn manual<A>(program: &str, about: &str, flags: &[Flag<A>]) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('-', "\\-");
    let mut page = format!(
        ".TH {program} 1 \"kstatd {}\"\n.SH NAME\n{program} \\- {}\n.SH SYNOPSIS\n.B {program}\n\
         [flags]\n.SH OPTIONS\n",
        crate::telemetry::VERSION,
        escape(about)
    );
    for flag in flags {
        let synopsis = escape(&synopsis(flag));
        page.push_str(&format!(".TP\n\\fB{synopsis}\\fR\n{}\n", escape(flag.help)));
    }
    page
}

/// Returns the output of `--completion-bash`: every flag name.
pub fn names<A>(flags: &[Flag<A>]) -> String {
    let mut names = vec!["--help".to_owned()];
    names.extend(flags.iter().map(|flag| format!("--{}", flag.name)));
    names.push("--version".to_owned());
    names.join("\n")
}

/// Returns a completion script that asks the program for its flag names.
pub fn completion_script(program: &str, shell: Request) -> String {
    if shell == Request::CompletionScriptZsh {
        return format!(
            "#compdef {program}\n\n_{program}() {{\n    local names\n    \
             names=(${{(f)\"$(${{words[1]}} --completion-bash \"${{(@)words[2,$CURRENT]}}\")\"}})\n    \
             compadd -a names\n    [[ $words[CURRENT] == -* ]] || _files\n}}\n\n\
             compdef _{program} {program}\n"
        );
    }
    format!(
        "_{program}_completion() {{\n    local names\n    \
         names=$(\"${{COMP_WORDS[0]}}\" --completion-bash \"${{COMP_WORDS[@]:1:COMP_CWORD}}\")\n    \
         mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n}}\n\
         complete -F _{program}_completion -o default {program}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Args {
        size: String,
        kind: String,
        check: Option<bool>,
    }

    const FLAGS: &[Flag<Args>] = &[
        Flag {
            name: "size",
            short: None,
            value_type: ValueType::Text("int"),
            default: "",
            help: "Size.",
            set: |args, text| {
                args.size = text.to_owned();
                Ok(())
            },
            keys: None,
        },
        Flag {
            name: "kind",
            short: None,
            value_type: ValueType::OneOf(&["lru", "random"]),
            default: "lru",
            help: "Kind of the thing that has a kind, in a sentence that does not fit on one line.",
            set: |args, text| {
                args.kind = text.to_owned();
                Ok(())
            },
            keys: None,
        },
        Flag {
            name: "check",
            short: None,
            value_type: ValueType::Boolean,
            default: "",
            help: "Check.",
            set: |args, text| {
                args.check = Some(text == "true");
                Ok(())
            },
            keys: None,
        },
    ];

    fn run(argv: &[&str]) -> Result<(Request, Args), UsageError> {
        let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
        let mut args = Args::default();
        parse(FLAGS, &mut args, &argv).map(|request| (request, args))
    }

    #[test]
    fn values_and_negation() {
        let (request, args) =
            run(&["--size", "5", "--no-check", "--kind=random", "--"]).expect("valid");
        assert_eq!(request, Request::Run);
        assert_eq!(args, Args { size: "5".into(), kind: "random".into(), check: Some(false) });
    }

    #[test]
    fn requests() {
        let request = |argv: &[&str]| run(argv).map(|(request, _)| request);
        assert_eq!(request(&["--size=1", "-h"]), Ok(Request::Help));
        assert_eq!(request(&["--help", "--foo"]), Err("unknown long flag '--foo'".into()));
        assert_eq!(request(&["--version", "--foo"]), Ok(Request::Version));
        assert_eq!(request(&["--no-version"]), Ok(Request::Version));
        assert_eq!(request(&["--completion-bash"]), Ok(Request::CompletionBash { flag: false }));
        assert_eq!(request(&["--no-completion-bash", "--check"]), Ok(Request::Run));
        assert_eq!(
            request(&["--check", "--completion-bash", "--size=1", "--s"]),
            Ok(Request::CompletionBash { flag: true })
        );
        assert_eq!(
            request(&["--completion-bash", "--", "--s"]),
            Ok(Request::CompletionBash { flag: false })
        );
        assert_eq!(
            request(&["--completion-bash", "--s"]),
            Ok(Request::CompletionBash { flag: true })
        );
    }

    #[test]
    fn requests_take_precedence_over_invalid_values() {
        let request = |argv: &[&str]| run(argv).map(|(request, _)| request);
        for (word, answer) in [
            ("--help", Request::Help),
            ("-h", Request::Help),
            ("--no-help", Request::Help),
            ("--help-long=1", Request::Help),
            ("--help-man", Request::Manual),
            ("--version", Request::Version),
            ("--version=true", Request::Version),
            ("--completion-script-zsh", Request::CompletionScriptZsh),
        ] {
            assert_eq!(request(&["--kind=x", word]), Ok(answer), "{word}");
            assert_eq!(request(&[word, "--kind=x"]), Ok(answer), "{word}");
            assert_eq!(request(&["--size=1", "--size=2", word]), Ok(answer), "{word}");
        }
        assert_eq!(request(&["--help-long", "--foo"]), Ok(Request::Help));
        assert_eq!(request(&["--help=1"]), Err("unexpected 1".into()));
        assert_eq!(request(&["--version", "@/none"]), Ok(Request::Version));
        assert!(request(&["@/none", "--version"]).is_err());
        assert!(request(&["--help", "@/none"]).is_err());
        assert!(request(&["--kind=x", "--completion-bash"]).is_err());
    }

    #[test]
    fn errors_match_kingpin() {
        for (argv, expected) in [
            (vec!["--foo"], "unknown long flag '--foo'"),
            (vec!["--no-size"], "unknown long flag '--no-size'"),
            (vec!["-x"], "unknown short flag '-x'"),
            (vec!["-hx"], "unknown short flag '-x'"),
            (vec!["-"], "unexpected "),
            (vec!["foo"], "unexpected foo"),
            (vec!["--", "foo"], "unexpected foo"),
            (vec!["--check=true"], "unexpected true"),
            (vec!["--check", "--no-check"], "flag 'check' cannot be repeated"),
            (vec!["--size"], "expected argument for flag '--size'"),
            (vec!["--size", "--check"], "expected argument for flag '--size'"),
            (vec!["--size", "-1"], "expected argument for flag '--size'"),
            (vec!["--kind=LRU"], "enum value must be one of lru,random, got 'LRU'"),
            (vec!["@"], "expected @ file to expand arguments from"),
            (
                vec!["@/none"],
                "failed to open arguments file \"/none\": open /none: no such file or directory",
            ),
        ] {
            assert_eq!(run(&argv).expect_err("invalid").to_string(), expected, "{argv:?}");
        }
    }

    #[test]
    fn arguments_are_read_from_files() {
        let file = tempfile::NamedTempFile::new().expect("file");
        fs::write(file.path(), "--size=7\n# comment\n\n  \n--check\n").expect("write");
        let (_, args) = run(&[&format!("@{}", file.path().display())]).expect("valid");
        assert_eq!((args.size.as_str(), args.check), ("7", Some(true)));
        let outer = tempfile::NamedTempFile::new().expect("file");
        fs::write(outer.path(), format!("@{}\r\n--kind\r\n", file.path().display()))
            .expect("write");
        let outer = format!("@{}", outer.path().display());
        let (_, args) = run(&[&outer, "lru"]).expect("valid");
        assert_eq!((args.size.as_str(), args.kind.as_str()), ("7", "lru"));
        // After `--` it is a positional argument.
        let error = run(&["--", &outer]).expect_err("a word");
        assert_eq!(error.to_string(), format!("unexpected {outer}"));
    }

    #[test]
    fn recursive_argument_files_are_rejected() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let word = format!("@{}", file.path().display());
        fs::write(file.path(), &word).expect("write");
        assert!(run(&[&word]).expect_err("endless").to_string().contains("does it name itself?"));
    }

    #[test]
    fn help_has_two_columns() {
        let text = usage("p", FLAGS);
        assert!(text.starts_with("usage: p [<flags>]\n\n\nFlags:\n"), "{text}");
        assert!(text.contains(
            "      --kind=lru                Kind of the thing that has a kind, in a sentence\n"
        ));
        assert!(text.contains("\n      --[no-]check              Check.\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= PAGE_WIDTH), "{text}");
    }
}
