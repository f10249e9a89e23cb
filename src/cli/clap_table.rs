//! Flags of the two tables as arguments of clap: kstatd's own commands take the originals' flags from
//! the definitions that the originals' parsers read.

use clap::builder::ValueParser;
use clap::parser::MatchesError;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::flag::{Flag, Takes};
use crate::go::strconv;

/// A choice of flags from one table.
pub trait Choice: 'static {
    /// What the flags write into.
    type Args: Default + Clone + Send + Sync + 'static;

    /// Heading of the flags in the help.
    const HEADING: &'static str;

    /// Whether booleans also have the form `--no-x`, as in kingpin's grammar.
    const NEGATIONS: bool;

    /// The flags.
    fn flags() -> Vec<Flag<Self::Args>>;
}

/// The parsed flags of a [`Choice`], for `#[command(flatten)]`.
pub struct Table<C: Choice>(pub C::Args);

impl<C: Choice> Clone for Table<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Choice> Default for Table<C> {
    fn default() -> Self {
        Self(C::Args::default())
    }
}

impl<C: Choice> std::fmt::Debug for Table<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&C::HEADING).finish()
    }
}

/// The arguments that stand for `flag`.
pub fn arguments<A: Default + 'static>(
    flag: &Flag<A>,
    heading: &'static str,
    negations: bool,
) -> Vec<Arg> {
    let set = flag.set;
    let check = move |text: &str| -> Result<String, String> {
        set(&mut A::default(), text).map(|()| text.to_owned())
    };
    let help = match flag.default.trim_matches('"') {
        "" => flag.help.to_owned(),
        default => format!("{} [default: {default}]", flag.help),
    };
    let mut arg = Arg::new(flag.name).long(flag.name).help(help).help_heading(heading);
    if let Some(short) = flag.short {
        arg = arg.short(short);
    }
    arg = arg.action(ArgAction::Append);
    match flag.takes {
        Takes::Nothing => {
            let boolean = |text: &str| strconv::parse_bool(text).map(|on| on.to_string());
            arg = arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(ValueParser::new(boolean))
                .hide_possible_values(true)
                .value_name("BOOL");
        }
        Takes::Value(kind) => {
            arg = arg.value_parser(ValueParser::new(check)).value_name(value_name(kind));
        }
        Takes::OneOf(words) => {
            let words: Vec<&'static str> = words.to_vec();
            arg = arg.value_parser(words);
        }
    }
    let mut args = vec![arg];
    if flag.is_switch() && negations {
        let name: &'static str = flag.name;
        let negation = Arg::new(format!("no-{name}"))
            .long(format!("no-{name}"))
            .action(ArgAction::SetTrue)
            .overrides_with(name)
            .hide(true);
        args = args.into_iter().map(|arg| arg.overrides_with(format!("no-{name}"))).collect();
        args.push(negation);
    }
    args
}

fn value_name(kind: &'static str) -> String {
    match kind {
        "string" => "VALUE".to_owned(),
        kind => kind.to_uppercase(),
    }
}

impl<C: Choice> clap::Args for Table<C> {
    fn augment_args(command: Command) -> Command {
        C::flags()
            .iter()
            .fold(command, |command, flag| command.args(arguments(flag, C::HEADING, C::NEGATIONS)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Choice> clap::FromArgMatches for Table<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut table = Self::default();
        table.update_from_arg_matches(matches)?;
        Ok(table)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let invalid = |flag: &str, error: String| {
            clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                format!("--{flag}: {error}\n"),
            )
        };
        for flag in C::flags() {
            let values = match matches.try_get_many::<String>(flag.name) {
                Ok(values) => values,
                Err(MatchesError::UnknownArgument { .. }) => continue,
                Err(error) => return Err(invalid(flag.name, error.to_string())),
            };
            for value in values.into_iter().flatten() {
                (flag.set)(&mut self.0, value).map_err(|error| invalid(flag.name, error))?;
            }
            let negation = format!("no-{}", flag.name);
            if matches!(matches.try_get_one::<bool>(&negation), Ok(Some(true))) {
                (flag.set)(&mut self.0, "false").map_err(|error| invalid(flag.name, error))?;
            }
        }
        Ok(())
    }
}
