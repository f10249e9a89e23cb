//! A cursor over a text that is read character by character.

/// A text and a read position.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    /// Bytes read so far.
    pub(crate) position: usize,
}

impl<'t> Cursor<'t> {
    /// Starts at the beginning of `text`.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    /// Returns the unread text.
    pub(crate) fn rest(&self) -> &'t str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Returns the next character without consuming it.
    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Consumes and returns the next character.
    pub(crate) fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        Some(character)
    }

    /// Consumes `text` if it comes next; returns true if it did.
    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.position += text.len();
        }
        found
    }
}
