//! The label sets of an object for metrics that count objects.

/// The label sets that an object contributes to.
#[derive(Clone, Debug, Default)]
pub struct CountedLabels {
    labels: Vec<u8>,
    /// Family and end of text of each label set.
    ends: Vec<(u32, usize)>,
    /// Label set of the overflow series, in the form of [`CountedLabels::push`].
    pub overflow: Vec<u8>,
}

impl CountedLabels {
    /// Adds a label set of a family: `{a="x"}`, or an empty text for one without labels.
    pub fn push(&mut self, family: u32, labels: &[u8]) {
        self.labels.extend_from_slice(labels);
        self.ends.push((family, self.labels.len()));
    }

    /// Removes the label sets of `family` and of later families.
    pub fn truncate_family(&mut self, family: u32) {
        let keep = self.ends.iter().take_while(|(own, _)| *own < family).count();
        self.ends.truncate(keep);
        self.labels.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    /// Returns the length of the text in bytes.
    pub fn text_len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no label sets.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all label sets, keeping the allocations.
    pub fn clear(&mut self) {
        self.labels.clear();
        self.ends.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(family, end)| {
            let from = std::mem::replace(&mut start, end);
            (family, &self.labels[from..end])
        })
    }
}
