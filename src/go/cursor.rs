//! A place in a text that is read character by character.

/// A text, and how far it has been read.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    /// Bytes that have been read.
    pub(crate) position: usize,
}

impl<'t> Cursor<'t> {
    /// The start of a text.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'t str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// The next character, which stays where it is.
    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Reads a character.
    pub(crate) fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        Some(character)
    }

    /// Reads `text` if it comes next; tells whether it did.
    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.position += text.len();
        }
        found
    }
}
