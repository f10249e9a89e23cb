//! The memory mappings of this process.

/// A mapping of the address space.
pub(crate) struct Mapping<'t> {
    pub(crate) start: u64,
    /// The end address (exclusive).
    pub(crate) end: u64,
    /// Such as `r-xp`.
    pub(crate) permissions: &'t str,
    /// The offset of the first address in the file.
    pub(crate) offset: u64,
    /// The path of the file, or the kernel's name for other mappings (`[vdso]`); empty for anonymous ones.
    pub(crate) path: &'t str,
}

/// Parses a line of `/proc/self/maps`: `start-end perms offset device inode path`.
pub(crate) fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (permissions, offset) = (fields.next()?, fields.next()?);
    let path = fields.nth(2).unwrap_or_default().trim();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
    Some(Mapping { start, end, permissions, offset, path })
}
