//! An object as it is kept, for whoever looks at its text.

use super::page::Page;
use super::schema::Rendered;

/// The text of one object, wherever it is.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    place: Place<'a>,
    series: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Paged(&'a Page, usize),
    Rendered(&'a Rendered),
}

impl<'a> Kept<'a> {
    pub(super) fn paged(page: &'a Page, slot: usize, series: u32) -> Self {
        Self { place: Place::Paged(page, slot), series }
    }

    /// How many series it has.
    #[must_use]
    pub fn series(&self) -> u64 {
        u64::from(self.series)
    }

    /// What each of its lines has between name and rest.
    #[must_use]
    pub fn identity(&self) -> &'a [u8] {
        match self.place {
            Place::Paged(page, slot) => page.identity(slot),
            Place::Rendered(object) => &object.identity,
        }
    }

    /// Its lines of family number `family`.
    #[must_use]
    pub fn family(&self, family: usize) -> &'a [u8] {
        match self.place {
            Place::Paged(page, slot) => page.lines(family, slot),
            Place::Rendered(object) => object.family(family),
        }
    }
}

impl<'a> From<&'a Rendered> for Kept<'a> {
    fn from(object: &'a Rendered) -> Self {
        Self { place: Place::Rendered(object), series: object.series }
    }
}
