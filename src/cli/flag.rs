//! Flag definitions. Both originals' parsers, the help texts, the completions and kstatd's own
//! commands read the same tables, which also define the fields, their defaults and the keys of the
//! options file.

use std::collections::BTreeSet;

use super::usage_error::UsageError;
use crate::resources::select::selection::AllowLists;

/// The kind of value a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// No value: a boolean. pflag also accepts `=true` and `=false`.
    Boolean,
    /// The same, and `--no-x` clears it as in kingpin.
    Toggle,
    /// A value; the text is its type in the help (`string`, `int`).
    Text(&'static str),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// A flag that writes to `A`.
pub struct Flag<A: 'static> {
    /// The long name without dashes.
    pub name: &'static str,
    /// The one-letter name.
    pub short: Option<char>,
    /// The kind of value.
    pub value_type: ValueType,
    /// The default as shown in the help; empty if the help shows none.
    pub default: &'static str,
    /// The help text, one or two sentences.
    pub help: &'static str,
    /// Validates and stores a value. A boolean receives the text after `=`, or `true` or `false`.
    pub set: fn(&mut A, &str) -> Result<(), UsageError>,
    /// The corresponding keys of the options file.
    pub keys: Option<&'static Keys<A>>,
}

/// The keys of the options file that set a flag, in the order they are applied, and the target.
pub struct Keys<A: 'static> {
    /// Usually one. All but the first ignore an empty string.
    pub names: &'static [&'static str],
    /// The type and target of the value.
    pub field: Field<A>,
}

/// The accessor of the field that a flag or key sets.
pub type FieldAccessor<A, T> = fn(&mut A) -> &mut T;

/// The type and target of a key's value.
pub enum Field<A> {
    /// A string.
    Text(FieldAccessor<A, String>),
    /// The URL of an API server, or an empty string.
    Url(FieldAccessor<A, String>),
    /// A boolean.
    Switch(FieldAccessor<A, bool>),
    /// A 64-bit integer.
    Int(FieldAccessor<A, i64>),
    /// A 32-bit integer.
    ShortInt(FieldAccessor<A, i32>),
    /// A TCP port.
    Port(FieldAccessor<A, i64>),
    /// A number.
    Float(FieldAccessor<A, f64>),
    /// A duration in nanoseconds.
    Nanos(FieldAccessor<A, i64>),
    /// A list of strings.
    Names(FieldAccessor<A, Vec<String>>),
    /// A set of resources.
    Resources(FieldAccessor<A, BTreeSet<String>>),
    /// A set of patterns of metrics to serve or to omit.
    Patterns(FieldAccessor<A, BTreeSet<String>>),
    /// A set of patterns of metrics that are off by default.
    OptInPatterns(FieldAccessor<A, BTreeSet<String>>),
    /// A list of label keys per resource.
    Labels(FieldAccessor<A, AllowLists>),
}

/// A type of flag value.
pub trait ValueKind {
    /// The type of the field.
    type Value;
    /// The kind of value the flag takes.
    const VALUE_TYPE: ValueType;

    /// Returns the value of an unset field.
    fn unset() -> Self::Value;

    /// Parses the text of a flag into the field.
    ///
    /// # Errors
    /// When the text is not a valid value.
    fn read(text: &str, into: &mut Self::Value) -> Result<(), UsageError>;
}

/// Stores a parsed value in the field.
pub(super) fn store<T>(
    into: &mut T,
    read: Result<T, impl Into<UsageError>>,
) -> Result<(), UsageError> {
    read.map(|value| *into = value).map_err(Into::into)
}

/// Declares flag value types: names, type of the field, type name in the help, and parser. Several
/// names have the same parser, and differ in the checks of the options file.
macro_rules! kinds {
    ($($($(#[$doc:meta])* $Kind:ident),+: $Value:ty = $unset:expr, $value_type:expr, |$text:ident, $into:ident| $read:expr;)*) => {$($(
        $(#[$doc])*
        pub struct $Kind;

        impl $crate::cli::flag::ValueKind for $Kind {
            type Value = $Value;
            const VALUE_TYPE: $crate::cli::flag::ValueType = $value_type;

            fn unset() -> $Value {
                $unset
            }

            fn read($text: &str, $into: &mut $Value) -> Result<(), $crate::cli::usage_error::UsageError> {
                $read
            }
        }
    )+)*};
}

/// Declares the flags of a program: the struct of their values and the table that everything else
/// reads. A row is `field: Kind, "flag", ["options file key", …], "default", "help";`, where the
/// keys are optional. Fields that are not flags are listed in the struct's braces. The default is
/// shown in the help; if it is empty, the default of the kind applies.
macro_rules! flags {
    (
        $(#[$doc:meta])*
        pub struct $Args:ident { $($(#[$more_doc:meta])* pub $more:ident: $More:ty,)* }

        $(#[$table_doc:meta])*
        $Table:ident {
            $($field:ident: $Kind:ident $(short $short:literal)?, $name:literal,
                $([$($key:literal),+],)? $default:literal, $help:literal;)*
        }
    ) => {
        $(#[$doc])*
        pub struct $Args {
            $(#[doc = concat!("`--", $name, "`")] pub $field: <$Kind as $crate::cli::flag::ValueKind>::Value,)*
            $($(#[$more_doc])* pub $more: $More,)*
        }

        $(#[$table_doc])*
        pub(crate) const $Table: &[$crate::cli::flag::Flag<$Args>] = &[$(
            $crate::cli::flag::Flag {
                name: $name,
                short: flags!(@short $($short)?),
                value_type: <$Kind as $crate::cli::flag::ValueKind>::VALUE_TYPE,
                default: $default,
                help: $help,
                set: |args, text| <$Kind as $crate::cli::flag::ValueKind>::read(text, &mut args.$field),
                keys: flags!(@keys $field $Kind $([$($key),+])?),
            },
        )*];

        impl Default for $Args {
            fn default() -> Self {
                let mut args = Self {
                    $($field: <$Kind as $crate::cli::flag::ValueKind>::unset(),)*
                    $($more: <$More>::default(),)*
                };
                $crate::cli::flag::set_defaults($Table, &mut args);
                args
            }
        }
    };
    (@short) => { None };
    (@short $short:literal) => { Some($short) };
    (@keys $field:ident $Kind:ident) => { None };
    (@keys $field:ident $Kind:ident [$($key:literal),+]) => {
        Some(&$crate::cli::flag::Keys {
            names: &[$($key),+],
            field: $crate::cli::flag::Field::$Kind(|args| &mut args.$field),
        })
    };
}

pub(crate) use {flags, kinds};

kinds! {
    /// Any string.
    Text,
    /// The URL of an API server.
    Url: String = String::new(), ValueType::Text("string"), |text, into| {
            *into = text.to_owned();
            Ok(())
        };
}

/// Sets each flag to the default shown in the help.
pub fn set_defaults<A>(flags: &[Flag<A>], args: &mut A) {
    for flag in flags.iter().filter(|flag| !flag.default.is_empty()) {
        // Every default is a valid value, which a test of each table verifies.
        let _ = (flag.set)(args, flag.default.trim_matches('"'));
    }
}

impl<A> Flag<A> {
    /// Copies the definition, for lists that combine several tables.
    pub fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// Returns whether the flag is a boolean.
    pub fn is_switch(&self) -> bool {
        matches!(self.value_type, ValueType::Boolean | ValueType::Toggle)
    }
}

/// Finds the flag with this long name.
pub fn find<'a, A>(flags: &'a [Flag<A>], name: &str) -> Option<&'a Flag<A>> {
    flags.iter().find(|flag| flag.name == name)
}

/// Wraps `text` at spaces to lines of at most `width` characters, if its words allow that.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let fits = lines.last().is_some_and(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert_eq!(wrap("", 3), [""]);
    }
}
