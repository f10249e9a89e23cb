//! Converts the flag tables to clap arguments, so that kstatd's own commands and the originals'
//! parsers share the definitions.

use clap::builder::ValueParser;
use clap::parser::MatchesError;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::flag::{Flag, ValueType};
use super::usage_error::UsageError;
use crate::go::strconv;

/// A selection of flags from one table.
pub trait FlagSelection: Default + 'static {
    /// The struct that holds the parsed values.
    type Args: Default + Clone + Send + Sync + 'static;

    /// The heading of these flags in the help.
    const HEADING: &'static str;

    /// Returns the selected flags.
    fn flags() -> Vec<Flag<Self::Args>>;

    /// Returns whether a flag is accepted but has no effect on the command, so that the help omits it.
    fn is_hidden(_name: &str) -> bool {
        false
    }
}

/// The parsed flags of a [`FlagSelection`], for `#[command(flatten)]`.
#[derive(Clone, Default)]
pub struct Table<C: FlagSelection>(pub C::Args);

/// Returns the clap arguments for `flag`.
pub fn arguments<A: Default + 'static>(flag: &Flag<A>, heading: &'static str) -> Vec<Arg> {
    let set = flag.set;
    let check = move |text: &str| -> Result<String, UsageError> {
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
    match flag.value_type {
        ValueType::Boolean | ValueType::Toggle => {
            let boolean = |text: &str| strconv::parse_bool(text).map(|on| on.to_string());
            arg = arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(ValueParser::new(boolean))
                .hide_possible_values(true)
                .value_name("BOOL");
        }
        ValueType::Text(kind) => {
            arg = arg.value_parser(ValueParser::new(check)).value_name(value_name(kind));
        }
        ValueType::OneOf(words) => arg = arg.value_parser(words.to_vec()),
    }
    if flag.value_type != ValueType::Toggle {
        return vec![arg];
    }
    let no = format!("no-{}", flag.name);
    let negation = Arg::new(no.clone()).long(no.clone()).action(ArgAction::SetTrue);
    vec![arg.overrides_with(no), negation.overrides_with(flag.name).hide(true)]
}

fn value_name(kind: &'static str) -> String {
    match kind {
        "string" => "VALUE".to_owned(),
        kind => kind.to_uppercase(),
    }
}

impl<C: FlagSelection> clap::Args for Table<C> {
    fn augment_args(command: Command) -> Command {
        C::flags().iter().fold(command, |command, flag| {
            let args = arguments(flag, C::HEADING).into_iter();
            command.args(args.map(|arg| if C::is_hidden(flag.name) { arg.hide(true) } else { arg }))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: FlagSelection> clap::FromArgMatches for Table<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut table = Self::default();
        table.update_from_arg_matches(matches)?;
        Ok(table)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let invalid = |flag: &str, error: &dyn std::fmt::Display| {
            clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                format!("--{flag}: {error}\n"),
            )
        };
        for flag in C::flags() {
            let values = match matches.try_get_many::<String>(flag.name) {
                Ok(values) => values,
                Err(MatchesError::UnknownArgument { .. }) => continue,
                Err(error) => return Err(invalid(flag.name, &error)),
            };
            for value in values.into_iter().flatten() {
                (flag.set)(&mut self.0, value).map_err(|error| invalid(flag.name, &error))?;
            }
            let negation = format!("no-{}", flag.name);
            if matches!(matches.try_get_one::<bool>(&negation), Ok(Some(true))) {
                (flag.set)(&mut self.0, "false").map_err(|error| invalid(flag.name, &error))?;
            }
        }
        Ok(())
    }
}
