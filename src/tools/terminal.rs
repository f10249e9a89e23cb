//! A screen on a terminal that is drawn again and again.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Rows and columns of the terminal on standard output, if there is one that tells.
pub(crate) fn size() -> Option<(usize, usize)> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the pointer leads to a `winsize`, which TIOCGWINSZ fills in and which is valid when zeroed.
    let size = unsafe {
        if libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, size.as_mut_ptr()) != 0 {
            return None;
        }
        size.assume_init()
    };
    let is_known = size.ws_row > 0 && size.ws_col > 0;
    is_known.then(|| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// What draws a text over what was there before: as much of it as there is room for.
pub(crate) fn drawn(text: &str, (rows, columns): (usize, usize)) -> String {
    let mut out = "\u{1b}[H".to_owned();
    for line in text.lines().take(rows.saturating_sub(1)) {
        out.extend(line.chars().take(columns));
        // Whatever was there to the right goes.
        out.push_str("\u{1b}[K\n");
    }
    out.push_str("\u{1b}[J");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_cut_to_its_size() {
        let drawn = drawn("abcdef\ng\nh\ni\n", (3, 4));
        assert_eq!(drawn, "\u{1b}[Habcd\u{1b}[K\ng\u{1b}[K\n\u{1b}[J");
    }
}
