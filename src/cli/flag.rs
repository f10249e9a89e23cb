//! One flag is one definition: the parsers of both grammars, the help texts, the completions and the
//! flags of kstatd's own commands all read the same table.

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
