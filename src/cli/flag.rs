//! One flag is one definition: the parsers of both grammars, the help texts, the completions and the
//! flags of kstatd's own commands all read the same table, and so do the fields, their defaults and the keys of the
//! options file.

use std::collections::BTreeSet;

use crate::resources::select::selection::AllowLists;

/// What stands after a flag's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing: a boolean. In pflag's grammar `=true` and `=false` may follow.
    Nothing,
    /// A value; the text names its kind in the help (`string`, `int`).
    Value(&'static str),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// A flag that writes into `A`.
pub struct Flag<A: 'static> {
    /// Long name without dashes.
    pub name: &'static str,
    /// One-letter name.
    pub short: Option<char>,
    /// What follows it.
    pub takes: Takes,
    /// The default as the help shows it; empty when the help shows none.
    pub default: &'static str,
    /// One or two sentences.
    pub help: &'static str,
    /// Checks a value and stores it. A boolean gets the text that followed, or `true` or `false`.
    pub set: fn(&mut A, &str) -> Result<(), String>,
    /// What sets it in the options file.
    pub keys: Option<Keys<A>>,
}

/// The keys of the options file that set a flag, in the order in which they are applied, and what it then writes to.
#[derive(Debug)]
pub struct Keys<A: 'static> {
    /// Usually one. An empty text does not count for those after the first.
    pub names: &'static [&'static str],
    /// What their value is.
    pub field: Field<A>,
}

impl<A> Clone for Keys<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Keys<A> {}

/// The field that a flag or key sets.
pub type To<A, T> = fn(&mut A) -> &mut T;

/// What the value of a key is, and where it goes.
#[derive(Debug)]
pub enum Field<A> {
    /// A text.
    Text(To<A, String>),
    /// The URL of an API server, or nothing.
    Url(To<A, String>),
    /// A boolean.
    Switch(To<A, bool>),
    /// An integer of 64 bits.
    Int(To<A, i64>),
    /// An integer of 32 bits.
    ShortInt(To<A, i32>),
    /// A number of a TCP port.
    Port(To<A, i64>),
    /// A number.
    Float(To<A, f64>),
    /// A duration in nanoseconds.
    Nanos(To<A, i64>),
    /// A list of texts.
    Names(To<A, Vec<String>>),
    /// A set of resources.
    Resources(To<A, BTreeSet<String>>),
    /// A set of patterns for names of metrics that are served.
    AllowPatterns(To<A, BTreeSet<String>>),
    /// A set of patterns for names of metrics that are left out.
    DenyPatterns(To<A, BTreeSet<String>>),
    /// A set of patterns for names of metrics that are off by default.
    OptInPatterns(To<A, BTreeSet<String>>),
    /// For each resource a list of label keys.
    Labels(To<A, AllowLists>),
}

impl<A> Clone for Field<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Field<A> {}

/// A kind of value: what a row of a table of flags says of its field.
pub trait ValueKind {
    /// The type of the field.
    type Value;
    /// What stands after the flag.
    const TAKES: Takes;

    /// A field that nothing was said about.
    fn unset() -> Self::Value;

    /// Reads the text of a flag into the field.
    ///
    /// # Errors
    /// Why it is no such value.
    fn read(text: &str, into: &mut Self::Value) -> Result<(), String>;
}

/// Declares kinds of values: name, type of the field, what the help calls it, and how a text is read.
macro_rules! kinds {
    ($($(#[$doc:meta])* $Kind:ident: $Value:ty = $unset:expr, $takes:expr, |$text:ident, $into:ident| $read:expr;)*) => {$(
        $(#[$doc])*
        pub struct $Kind;

        impl $crate::cli::flag::ValueKind for $Kind {
            type Value = $Value;
            const TAKES: $crate::cli::flag::Takes = $takes;

            fn unset() -> $Value {
                $unset
            }

            fn read($text: &str, $into: &mut $Value) -> Result<(), String> {
                $read
            }
        }
    )*};
}

/// Declares the flags of a program: the struct of their values and the table that everything else reads. A row is
/// `field: Kind, "flag", ["key of the options file", …], "default", "help";`, where the keys may be missing. Fields that
/// are no flags stand in the struct's braces. The default is the one that the help shows; where that is none, the
/// kind's own.
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
                takes: <$Kind as $crate::cli::flag::ValueKind>::TAKES,
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
        Some($crate::cli::flag::Keys {
            names: &[$($key),+],
            field: $crate::cli::flag::Field::$Kind(|args| &mut args.$field),
        })
    };
}

pub(crate) use {flags, kinds};

/// Gives each flag the default that the help shows.
pub fn set_defaults<A>(flags: &[Flag<A>], args: &mut A) {
    for flag in flags.iter().filter(|flag| !flag.default.is_empty()) {
        // Every default is a valid value: a test of each table says so.
        let _ = (flag.set)(args, flag.default.trim_matches('"'));
    }
}

impl<A> Flag<A> {
    /// The same definition, for a list put together from several tables.
    pub fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// Whether it is a boolean.
    pub fn is_switch(&self) -> bool {
        self.takes == Takes::Nothing
    }
}

/// The flag with this long name.
pub fn find<'a, A>(flags: &'a [Flag<A>], name: &str) -> Option<&'a Flag<A>> {
    flags.iter().find(|flag| flag.name == name)
}

/// Breaks `text` at spaces so that no line is longer than `width`, if its words allow.
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
