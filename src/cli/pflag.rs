//! The parser of kube-state-metrics' command line, compatible with pflag and cobra.
//!
//! `--x=v` and `--x v`; a boolean takes `--x` or `--x=v` and never a separate word; long names need
//! two dashes; `-v5`, `-v=5`, `-v 5` and grouped letters for short names; `--` ends the flags.
//! Error messages are those of pflag and cobra.

use super::flag::{Flag, ValueType, find};
use super::usage_error::UsageError;

/// Stores all flags and returns the positional arguments, in order.
///
/// # Errors
///
/// The text after `Error: `.
pub fn parse<A>(
    flags: &[Flag<A>],
    into: &mut A,
    argv: &[String],
) -> Result<Vec<String>, UsageError> {
    let mut words = Vec::new();
    let mut rest = argv.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            words.extend(rest.by_ref().cloned());
        } else if let Some(long) = arg.strip_prefix("--") {
            parse_long(flags, into, arg, long, &mut rest)?;
        } else if arg.len() > 1 && arg.starts_with('-') {
            parse_short(flags, into, &arg[1..], &mut rest)?;
        } else {
            words.push(arg.clone());
        }
    }
    Ok(words)
}

fn parse_long<'a, A>(
    flags: &[Flag<A>],
    into: &mut A,
    arg: &str,
    long: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(), UsageError> {
    if long.starts_with(['-', '=']) {
        return Err(format!("bad flag syntax: {arg}").into());
    }
    let (name, value) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (long, None),
    };
    let flag = find(flags, name).ok_or_else(|| format!("unknown flag: --{name}"))?;
    let value = match value {
        Some(value) => value,
        None if flag.is_switch() => "true",
        None => rest.next().ok_or_else(|| format!("flag needs an argument: --{name}"))?,
    };
    set(flag, into, value)
}

fn parse_short<'a, A>(
    flags: &[Flag<A>],
    into: &mut A,
    letters: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(), UsageError> {
    let mut left = letters;
    while let Some(letter) = left.chars().next() {
        let tail = &left[letter.len_utf8()..];
        let Some(flag) = flags.iter().find(|flag| flag.short == Some(letter)) else {
            return Err(format!("unknown shorthand flag: '{letter}' in -{left}").into());
        };
        // `-x=v`; but `-x=` alone has the value `=`, as in pflag.
        if tail.len() > 1 && tail.starts_with('=') {
            return set(flag, into, &tail[1..]);
        }
        if flag.is_switch() {
            set(flag, into, "true")?;
            left = tail;
            continue;
        }
        if !tail.is_empty() {
            return set(flag, into, tail);
        }
        let value =
            rest.next().ok_or_else(|| format!("flag needs an argument: '{letter}' in -{left}"))?;
        return set(flag, into, value);
    }
    Ok(())
}

fn set<A>(flag: &Flag<A>, into: &mut A, value: &str) -> Result<(), UsageError> {
    (flag.set)(into, value).map_err(|error| {
        let name = match flag.short {
            Some(short) => format!("-{short}, --{}", flag.name),
            None => format!("--{}", flag.name),
        };
        let value = crate::go::strconv::quote(value);
        format!("invalid argument {value} for \"{name}\" flag: {error}").into()
    })
}

/// Returns the index of the first word that cobra takes for a command: neither a flag nor the value
/// of one. An unknown flag without `=` is assumed to take a value.
pub fn first_word<A>(flags: &[Flag<A>], argv: &[String]) -> Option<usize> {
    let mut index = 0;
    while let Some(arg) = argv.get(index) {
        if arg == "--" {
            return None;
        }
        let takes_next = if let Some(name) = arg.strip_prefix("--") {
            !name.contains('=') && !find(flags, name).is_some_and(Flag::is_switch)
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let mut chars = letters.chars();
            let short = |letter| flags.iter().find(|flag| flag.short == Some(letter));
            let switch = chars.next().and_then(short).is_some_and(Flag::is_switch);
            chars.next().is_none() && !switch
        } else {
            if !arg.is_empty() {
                return Some(index);
            }
            false
        };
        index += 1 + usize::from(takes_next);
    }
    None
}

/// Returns the `Flags:` block of the help, sorted by name.
pub fn usages<A>(flags: &[Flag<A>]) -> String {
    let mut sorted: Vec<&Flag<A>> = flags.iter().collect();
    sorted.sort_unstable_by_key(|flag| flag.name);
    let lines: Vec<(String, String)> = sorted.into_iter().map(usage).collect();
    let width = lines.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    lines.into_iter().map(|(left, right)| format!("{left:width$}   {right}\n")).collect()
}

fn usage<A>(flag: &Flag<A>) -> (String, String) {
    let mut left = match flag.short {
        Some(short) => format!("  -{short}, --{}", flag.name),
        None => format!("      --{}", flag.name),
    };
    let kind = match flag.value_type {
        ValueType::Boolean | ValueType::Toggle => "",
        ValueType::Text(kind) => kind,
        ValueType::OneOf(_) => "string",
    };
    if !kind.is_empty() {
        left.push(' ');
        left.push_str(kind);
    }
    let mut right = flag.help.to_owned();
    if !flag.default.is_empty() {
        let default = match kind {
            "string" => format!(" (default \"{}\")", flag.default),
            _ => format!(" (default {})", flag.default),
        };
        right.push_str(&default);
    }
    (left, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flag::store;
    use crate::go::strconv;

    #[derive(Default)]
    struct Args {
        port: i64,
        name: String,
        gzip: bool,
        level: i64,
    }

    const FLAGS: &[Flag<Args>] = &[
        Flag {
            name: "port",
            short: None,
            value_type: ValueType::Text("int"),
            default: "8080",
            help: "Port.",
            set: |args, text| store(&mut args.port, strconv::parse_int(text, 64)),
            keys: None,
        },
        Flag {
            name: "name",
            short: None,
            value_type: ValueType::Text("string"),
            default: "x",
            help: "Name.",
            set: |args, text| {
                args.name = text.to_owned();
                Ok(())
            },
            keys: None,
        },
        Flag {
            name: "gzip",
            short: Some('g'),
            value_type: ValueType::Boolean,
            default: "",
            help: "Compress.",
            set: |args, text| store(&mut args.gzip, strconv::parse_bool(text)),
            keys: None,
        },
        Flag {
            name: "v",
            short: Some('v'),
            value_type: ValueType::Text("Level"),
            default: "",
            help: "Verbosity.",
            set: |args, text| store(&mut args.level, strconv::parse_int(text, 32)),
            keys: None,
        },
    ];

    fn words(argv: &[&str]) -> Vec<String> {
        argv.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn forms_of_values() {
        let mut args = Args::default();
        let argv = words(&["--port", "0x10", "a", "--name=n=m", "--gzip", "-v=3", "--", "--port"]);
        let left = parse(FLAGS, &mut args, &argv).expect("valid");
        assert_eq!(left, ["a", "--port"]);
        assert_eq!((args.port, args.name.as_str(), args.gzip, args.level), (16, "n=m", true, 3));
        parse(FLAGS, &mut args, &words(&["--gzip=f", "-gv5"])).expect("valid");
        assert_eq!((args.gzip, args.level), (true, 5));
        parse(FLAGS, &mut args, &words(&["-g=0", "-v", "-1", "-"])).expect("valid");
        assert_eq!((args.gzip, args.level), (false, -1));
    }

    #[test]
    fn errors_match_pflag() {
        for (argv, expected) in [
            (vec!["--foo"], "unknown flag: --foo"),
            (vec!["-port=1"], "unknown shorthand flag: 'p' in -port=1"),
            (vec!["-gx"], "unknown shorthand flag: 'x' in -x"),
            (vec!["--port"], "flag needs an argument: --port"),
            (vec!["-gv"], "flag needs an argument: 'v' in -v"),
            (vec!["--=x"], "bad flag syntax: --=x"),
            (vec!["---x"], "bad flag syntax: ---x"),
            (
                vec!["--port=abc"],
                "invalid argument \"abc\" for \"--port\" flag: strconv.ParseInt: parsing \"abc\": \
                 invalid syntax",
            ),
            (
                vec!["-vx"],
                "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseInt: parsing \"x\": \
                 invalid syntax",
            ),
        ] {
            let error = parse(FLAGS, &mut Args::default(), &words(&argv)).expect_err("invalid");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn the_first_positional_word_is_the_command() {
        for (argv, expected) in [
            (vec!["version"], Some(0)),
            (vec!["--port", "1", "version"], Some(2)),
            (vec!["--gzip", "version"], Some(1)),
            (vec!["-g", "-v", "1", "version"], Some(3)),
            (vec!["--unknown", "version"], None),
            (vec!["--port=1"], None),
            (vec!["--", "version"], None),
        ] {
            assert_eq!(first_word(FLAGS, &words(&argv)), expected, "{argv:?}");
        }
    }

    #[test]
    fn help_lines_are_sorted_and_aligned() {
        assert_eq!(
            usages(FLAGS),
            "  -g, --gzip          Compress.\n      --name string   Name. (default \"x\")\n      \
             --port int      Port. (default 8080)\n  -v, --v Level       Verbosity.\n"
        );
    }
}
