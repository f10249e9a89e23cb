//! The HELP texts of families. Many families have the same one, so each family has the number of its text.

use std::collections::HashMap;
use std::sync::Arc;

/// The texts by number. The number of a text that no family has any more is used again, so that mappings whose texts change with
/// each reload use no more memory than one.
#[derive(Default)]
pub(super) struct Helps {
    texts: Arc<Vec<Arc<str>>>,
    numbers: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    /// The number of families with each text.
    families: Vec<u32>,
    /// The numbers without a family.
    free: Vec<u32>,
}

impl Helps {
    /// Adds a family with this text and returns the number of the text.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        let number = self.numbers.get(text).copied().unwrap_or_else(|| self.insert(text.into()));
        self.families[number as usize] += 1;
        number
    }

    fn insert(&mut self, text: Arc<str>) -> u32 {
        let texts = Arc::make_mut(&mut self.texts);
        let number = self.free.pop().unwrap_or_else(|| {
            texts.push(Arc::default());
            self.families.push(0);
            texts.len() as u32 - 1
        });
        texts[number as usize] = Arc::clone(&text);
        self.numbers.insert(text, number);
        number
    }

    /// Removes a family whose text has this number.
    pub(super) fn remove(&mut self, number: u32) {
        let families = &mut self.families[number as usize];
        *families -= 1;
        if *families == 0 {
            self.numbers.remove(&self.texts[number as usize]);
            self.free.push(number);
        }
    }

    /// Returns the text with this number.
    pub(super) fn get(&self, number: u32) -> Option<&str> {
        self.texts.get(number as usize).map(|text| &**text)
    }

    /// Returns all texts by number, as they are now.
    pub(super) fn snapshot(&self) -> Arc<Vec<Arc<str>>> {
        Arc::clone(&self.texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_families_are_replaced() {
        let mut helps = Helps::default();
        let kept = [helps.add("kept"), helps.add("kept")];
        assert_eq!(kept[0], kept[1]);
        helps.remove(kept[0]);
        let old = helps.add("old");
        let before = helps.snapshot();
        for revision in 0..100 {
            helps.remove(if revision == 0 {
                old
            } else {
                helps.numbers[&*format!("{}", revision - 1)]
            });
            let new = helps.add(&revision.to_string());
            assert_eq!(helps.get(new), Some(&*revision.to_string()));
        }
        assert_eq!((helps.texts.len(), helps.numbers.len()), (2, 2));
        assert_eq!(helps.get(kept[1]), Some("kept"));
        // A scrape in progress still has the text of the family that it shows.
        assert_eq!(&*before[old as usize], "old");
    }
}
