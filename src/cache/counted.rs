//! What an object is counted in, before it is.

/// The label sets that an object is counted in.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    labels: Vec<u8>,
    /// The family of each, and where its text ends.
    ends: Vec<(u32, usize)>,
    /// The label set, as in [`Counted::push`], of what comes when there are too many others.
    pub overflow: Vec<u8>,
}

impl Counted {
    /// Adds a label set of family number `family`: `{a="x"}`, or nothing for one without labels.
    pub fn push(&mut self, family: u32, labels: &[u8]) {
        self.labels.extend_from_slice(labels);
        self.ends.push((family, self.labels.len()));
    }

    /// Takes back those of family number `family` and of later ones.
    pub fn take_back(&mut self, family: u32) {
        let keep = self.ends.iter().take_while(|(own, _)| *own < family).count();
        self.ends.truncate(keep);
        self.labels.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    /// Bytes of text.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.labels.len()
    }

    /// Whether the object is counted nowhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Forgets all of them, keeping the allocations.
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
