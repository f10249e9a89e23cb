//! The grammar of statsd_exporter's command line: kingpin's flags.
//!
//! `--x=v` and `--x v`; a boolean takes no value, `--no-x` clears it; every flag at most once; a value
//! that begins with `-` needs the `=` form; `@file` stands for the lines of the file; `--` ends the flags.

use std::collections::BTreeSet;
use std::fs;

use super::flag::{Flag, Takes, find, wrap};

/// What the parser found besides values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Go on with the stored values.
    Run,
    /// `--help`, `-h`, `--help-long`.
    Help,
    /// `--help-man`.
    Manual,
    /// `--version`.
    Version,
    /// `--completion-bash`: the flag names, one a line, if a flag is being typed.
    CompletionBash {
        /// Whether the word being typed is a flag.
        flag: bool,
    },
    /// `--completion-script-bash`.
    CompletionScriptBash,
    /// `--completion-script-zsh`.
    CompletionScriptZsh,
}

/// Flags that are answered without running. They end parsing of the words after them only where
/// kingpin does so too: `--help` is answered at the end, the others at once.
const REQUESTS: [(&str, Request); 6] = [
    ("help", Request::Help),
    ("help-long", Request::Help),
    ("help-man", Request::Manual),
    ("completion-script-bash", Request::CompletionScriptBash),
    ("completion-script-zsh", Request::CompletionScriptZsh),
    ("version", Request::Version),
];

/// Stores all flags of `argv` in `into`.
///
/// # Errors
///
/// The text between `error: ` and `, try --help`.
pub fn parse<A>(flags: &[Flag<A>], into: &mut A, argv: &[String]) -> Result<Request, String> {
    if let Some((first, words)) = argv.split_first()
        && first == "--completion-bash"
    {
        // The last word is the one being typed; only flags can be completed.
        let flag = words.last().is_some_and(|word| word.starts_with('-'));
        return Ok(Request::CompletionBash { flag });
    }
    let mut parser = Parser { flags, into, seen: BTreeSet::new(), words: expand(argv)? };
    let mut help = false;
    while let Some(arg) = parser.words.pop() {
        if arg == "--" {
            return match parser.words.pop() {
                Some(word) => Err(format!("unexpected {word}")),
                None if help => Ok(Request::Help),
                None => Ok(Request::Run),
            };
        }
        let request = if let Some(long) = arg.strip_prefix("--") {
            parser.long(long)?
        } else if let Some(letters) = arg.strip_prefix('-') {
            parser.short(letters)?
        } else {
            return Err(format!("unexpected {arg}"));
        };
        match request {
            None => {}
            Some(Request::Help) => help = true,
            Some(request) => return Ok(request),
        }
    }
    Ok(if help { Request::Help } else { Request::Run })
}

/// Replaces `@file` by its lines; blank lines and lines that begin with `#` are left out. The result is
/// reversed, so that the next word is popped.
fn expand(argv: &[String]) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut flags_ended = false;
    for arg in argv {
        flags_ended |= arg == "--";
        let Some(path) = arg.strip_prefix('@').filter(|_| !flags_ended) else {
            words.push(arg.clone());
            continue;
        };
        if path.is_empty() {
            return Err("expected @ file to expand arguments from".to_owned());
        }
        let text = fs::read_to_string(path).map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            };
            format!("failed to open arguments file \"{path}\": open {path}: {reason}")
        })?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        words.extend(lines.map(str::to_owned));
    }
    words.reverse();
    Ok(words)
}

struct Parser<'a, A: 'static> {
    flags: &'a [Flag<A>],
    into: &'a mut A,
    seen: BTreeSet<&'static str>,
    /// In reverse order.
    words: Vec<String>,
}

impl<A> Parser<'_, A> {
    fn long(&mut self, long: &str) -> Result<Option<Request>, String> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let (positive, negated) = match name.strip_prefix("no-") {
            Some(positive) if find(self.flags, name).is_none() => (positive, true),
            _ => (name, false),
        };
        if let Some((_, request)) = REQUESTS.iter().find(|(request, _)| *request == positive) {
            // A value after a request is a word, and no words are expected.
            return match value {
                Some(value) => Err(format!("unexpected {value}")),
                None => Ok(Some(*request)),
            };
        }
        let unknown = || format!("unknown long flag '--{name}'");
        let flag = find(self.flags, positive).ok_or_else(unknown)?;
        if flag.is_switch() {
            self.store(flag, if negated { "false" } else { "true" })?;
            return value.map_or(Ok(None), |value| Err(format!("unexpected {value}")));
        }
        if negated {
            return Err(unknown());
        }
        let value = match value {
            Some(value) => value,
            None => match self.words.pop_if(|next| !next.starts_with('-')) {
                Some(next) => next,
                None => return Err(format!("expected argument for flag '--{name}'")),
            },
        };
        self.store(flag, &value)?;
        Ok(None)
    }

    fn short(&mut self, letters: &str) -> Result<Option<Request>, String> {
        let mut letters = letters.chars();
        match letters.next() {
            None => Err("unexpected ".to_owned()),
            Some('h') => match letters.next() {
                None => Ok(Some(Request::Help)),
                Some(next) => Err(format!("unknown short flag '-{next}'")),
            },
            Some(letter) => Err(format!("unknown short flag '-{letter}'")),
        }
    }

    fn store(&mut self, flag: &Flag<A>, value: &str) -> Result<(), String> {
        if !self.seen.insert(flag.name) {
            return Err(format!("flag '{}' cannot be repeated", flag.name));
        }
        if let Takes::OneOf(words) = flag.takes
            && !words.contains(&value)
        {
            let words = words.join(",");
            return Err(format!("enum value must be one of {words}, got '{value}'"));
        }
        (flag.set)(self.into, value).map_err(|error| format!("flag '--{}': {error}", flag.name))
    }
}

/// Column at which help sentences begin, and the width of the page.
const COLUMN: usize = 32;
const PAGE: usize = 80;

/// The text of `--help`.
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
    match flag.takes {
        Takes::Nothing => format!("--[no-]{name}"),
        _ if flag.default.is_empty() => format!("--{name}={}", name.to_uppercase()),
        _ => format!("--{name}={}", flag.default),
    }
}

fn entry(text: &mut String, left: &str, help: &str) {
    let mut lines = wrap(help, PAGE - COLUMN).into_iter();
    if left.len() + 2 <= COLUMN {
        let first = lines.next().unwrap_or_default();
        text.push_str(&format!("{left:COLUMN$}{first}\n"));
    } else {
        text.push_str(&format!("{left}  \n"));
    }
    for line in lines {
        text.push_str(&format!("{:COLUMN$}{line}\n", ""));
    }
}

/// The text of `--help-man`: a manual page in troff.
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

/// The output of `--completion-bash`: every flag name.
pub fn names<A>(flags: &[Flag<A>]) -> String {
    let mut names = vec!["--help".to_owned()];
    names.extend(flags.iter().map(|flag| format!("--{}", flag.name)));
    names.push("--version".to_owned());
    names.join("\n")
}

/// A completion script that asks the program for its flag names.
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
            takes: Takes::Value("int"),
            default: "",
            help: "Size.",
            set: |args, text| {
                args.size = text.to_owned();
                Ok(())
            },
        },
        Flag {
            name: "kind",
            short: None,
            takes: Takes::OneOf(&["lru", "random"]),
            default: "lru",
            help: "Kind of the thing that has a kind, in a sentence that does not fit on one line.",
            set: |args, text| {
                args.kind = text.to_owned();
                Ok(())
            },
        },
        Flag {
            name: "check",
            short: None,
            takes: Takes::Nothing,
            default: "",
            help: "Check.",
            set: |args, text| {
                args.check = Some(text == "true");
                Ok(())
            },
        },
    ];

    fn run(argv: &[&str]) -> Result<(Request, Args), String> {
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
        assert_eq!(
            request(&["--completion-bash", "--s"]),
            Ok(Request::CompletionBash { flag: true })
        );
    }

    #[test]
    fn errors_of_kingpin() {
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
            assert_eq!(run(&argv).expect_err("invalid"), expected, "{argv:?}");
        }
    }

    #[test]
    fn a_file_of_arguments() {
        let file = tempfile::NamedTempFile::new().expect("file");
        fs::write(file.path(), "--size=7\n# comment\n\n--check\n").expect("write");
        let (_, args) = run(&[&format!("@{}", file.path().display())]).expect("valid");
        assert_eq!((args.size.as_str(), args.check), ("7", Some(true)));
    }

    #[test]
    fn help_is_laid_out_in_two_columns() {
        let text = usage("p", FLAGS);
        assert!(text.starts_with("usage: p [<flags>]\n\n\nFlags:\n"), "{text}");
        assert!(text.contains(
            "      --kind=lru                Kind of the thing that has a kind, in a sentence\n"
        ));
        assert!(text.contains("\n      --[no-]check              Check.\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= PAGE), "{text}");
    }
}
