//! The text of everything at one moment, for whoever counts in it.

use super::page::Page;
use super::resource::Resource;
use super::schema::Family;

/// Who is shown it.
pub(crate) trait Reader {
    /// A family; its series follow. Its text takes so many bytes.
    fn family(&mut self, family: &Family, bytes: u64);

    /// The labels of a series of that family, rendered, without brackets.
    fn series(&mut self, labels: &[u8]);
}

/// The pages of one moment.
pub(crate) struct Texts(pub(super) Vec<Resource>);

impl Texts {
    /// Shows all of it, the same whenever it is called. What all families of a kind have in common counts with the first.
    pub(crate) fn read(&self, reader: &mut dyn Reader) {
        for resource in &self.0 {
            let pages = || resource.stores.iter().flat_map(|store| &store.pages);
            let mut other: usize = pages().map(|page| page.other_bytes()).sum();
            for (number, family) in resource.schema.families.iter().enumerate() {
                let own: usize = pages().map(|page| page.family_bytes(number)).sum();
                reader.family(family, (own + std::mem::take(&mut other)) as u64);
                pages().for_each(|page| read(page, number, reader));
            }
        }
    }
}

/// Shows the series of one family.
fn read(page: &Page, family: usize, reader: &mut dyn Reader) {
    let Some(segment) = page.family(family) else { return };
    let mut labels = Vec::new();
    for (slot, lines) in segment.iter().enumerate() {
        if lines.is_empty() {
            continue;
        }
        let identity = page.identity(slot);
        labels.clear();
        labels.extend_from_slice(identity.strip_prefix(b"{").unwrap_or(identity));
        let common = labels.len();
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let end = memchr::memrchr(b' ', line).unwrap_or(line.len());
            let rest = line.get(..end).unwrap_or(line);
            let rest = rest.strip_suffix(b"}").unwrap_or(rest);
            labels.truncate(common);
            labels.extend_from_slice(rest.strip_prefix(b"{").unwrap_or(rest));
            reader.series(&labels);
        }
    }
}
